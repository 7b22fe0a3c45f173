"""SmaQ (``nuq.kernels.smaq``) in plain PyTorch, some blocks at a time, whose bits C++ and Triton must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nuq.kernels import reference

BLOCK = 4096  # coordinates
_PORTION = 256  # blocks at a time
LANES = 16  # of the sums


def _rows(vector: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """The blocks from ``first`` on as float32[blocks, BLOCK], padded with zeros, and which indices are coordinates."""
    piece = vector[first * BLOCK : (first + _PORTION) * BLOCK].to(torch.float32)
    padding = -piece.numel() % BLOCK
    inside = torch.ones_like(piece, dtype=torch.bool)
    pad = torch.nn.functional.pad
    return pad(piece, (0, padding)).view(-1, BLOCK), pad(inside, (0, padding)).view(-1, BLOCK)


def _portions(vector: Tensor) -> range:
    return range(0, -(-vector.numel() // BLOCK), _PORTION)


def measure(vector: Tensor, pivot: float) -> tuple[float, float, int, float, float]:
    """Measure a vector by step 1: sum, squares, zeros, lowest, highest."""
    sums, squares, zeros, bounds = [], [], 0, []
    for first in _portions(vector):
        rows, inside = _rows(vector, first)
        nonzero = rows != 0
        wide = torch.where(nonzero, rows.to(torch.float64) - pivot, 0.0)
        sums.append(_lane_sums(wide))
        squares.append(_lane_sums(wide * wide))
        zeros += int((inside & ~nonzero).sum())
        bounds.append([torch.where(nonzero, rows, end * torch.inf).aminmax() for end in (1.0, -1.0)])
    lowest = min(float(low.min) for low, _ in bounds)
    highest = max(float(high.max) for _, high in bounds)
    return _tree(torch.cat(sums)), _tree(torch.cat(squares)), zeros, lowest, highest


def _lane_sums(wide: Tensor) -> Tensor:
    """The sums of the blocks float64[blocks, BLOCK], by lanes: float64[blocks]."""
    lanes = wide.view(len(wide), -1, LANES)
    total = torch.zeros_like(lanes[:, 0])
    for step in range(lanes.shape[1]):
        total += lanes[:, step]
    return reference.tree_sum(total)


def _tree(blocks: Tensor) -> float:
    """The sum of blocks of any number, by halving all of them."""
    size = 1 << (len(blocks) - 1).bit_length()
    blocks = torch.nn.functional.pad(blocks, (0, size - len(blocks)))
    while len(blocks) > 1:
        blocks = blocks[: len(blocks) // 2] + blocks[len(blocks) // 2 :]
    return float(blocks[0])


def _bits(bytes_: Tensor, count: int) -> Tensor:
    """The lowest ``count`` bits of uint8[rows, m] as uint8[rows, m * count]."""
    return ((bytes_.unsqueeze(-1) >> torch.arange(count, dtype=torch.uint8, device=bytes_.device)) & 1).flatten(1)


def _packed(bits: Tensor) -> Tensor:
    """Pack uint8[rows, m] of 0 and 1 into bytes, lowest first."""
    bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8)).view(len(bits), -1, 8)
    return (bits << torch.arange(8, dtype=torch.uint8, device=bits.device)).sum(-1, dtype=torch.uint8)


def _front(rows: Tensor, kept: Tensor) -> Tensor:
    """The kept entries of every row, moved to its front, with zeros behind."""
    indices = kept.cumsum(1) - 1
    moved = torch.zeros_like(rows)
    number = torch.arange(len(rows), dtype=torch.int64, device=rows.device)[:, None].expand_as(rows)
    moved[number[kept], indices[kept]] = rows[kept]
    return moved


def _below(counts: Tensor, size: int) -> Tensor:
    """A mask of the first ``counts`` entries of every row: bool[rows, size]."""
    return torch.arange(size, dtype=torch.int64, device=counts.device) < counts[:, None]


def encode(vector: Tensor, codes: Tensor, outliers: Tensor, **fields: Any) -> tuple[int, Callable[[Tensor], None]]:
    """The same as ``nuq.native.smaq.encode``."""
    pieces = []
    for first in _portions(vector):
        rows, inside = _rows(vector, first)
        hashes = _hashes(first, rows, fields) if fields["stochastic"] else None
        sections = []
        if fields["masked"]:
            kept = rows != 0
            sections.append((_packed(kept.to(torch.uint8)), (inside.sum(1) + 7) // 8))
            rows = _front(rows, kept)
            inside = _below(kept.sum(1), BLOCK)
        counts = inside.sum(1)
        long = torch.zeros_like(counts)
        if not fields["constant"]:
            low, high, outside = _codes(rows, hashes, fields)
            outside &= inside
            long = outside.sum(1)
            sections.append((_packed(outside.to(torch.uint8)), (counts + 7) // 8))
            low = torch.where(inside, low, 0)
            sections.append((_packed(_bits(low, fields["low_bits"])), (counts * fields["low_bits"] + 7) // 8))
            extra = _packed(_bits(_front(high, outside), fields["extra_bits"]))
            sections.append((extra, (long * fields["extra_bits"] + 7) // 8))
        codes[first : first + len(rows)] = counts.to(torch.int16)
        outliers[first : first + len(rows)] = long.to(torch.int16)
        if sections:
            used = torch.cat([_below(sizes, data.shape[1]) for data, sizes in sections], 1)
            pieces.append(torch.cat([data for data, _ in sections], 1)[used])

    def write(to: Tensor) -> None:
        if pieces:
            torch.cat(pieces, out=to)

    return sum(piece.numel() for piece in pieces), write


def _hashes(first: int, rows: Tensor, fields: dict[str, Any]) -> Tensor:
    """The hashes of the indices of some blocks: int32[blocks, BLOCK]."""
    index = torch.arange(first * BLOCK, (first + len(rows)) * BLOCK, dtype=torch.int64, device=rows.device)
    words, among = (fields["k0"], fields["k1"]), (fields["own"], fields["workers"])
    return reference.hashed(index.to(torch.int32), words, among).view(rows.shape)


def _codes(rows: Tensor, hashes: Tensor | None, fields: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The codes of steps 3 and 4: low part and other bits of every code, uint8, and which coordinates are outliers."""

    def number(name: str) -> Tensor:
        return torch.tensor(fields[name], dtype=torch.float32, device=rows.device)

    z = (rows * number("factor") - number("mean")) * number("inverse")
    size = z.abs()
    outside = size > number("threshold")
    large = torch.minimum((size - number("threshold")) * number("large_slope"), number("large_most"))
    q = torch.where(outside, large, torch.minimum(size * number("small_slope"), number("small_most")))
    if hashes is not None and fields["workers"] > 1:
        hashes = hashes ^ (z.view(torch.int32) >> 31)
    noise = 1 << 23 if hashes is None else hashes >> 8 & 0xFFFFFF
    k = ((q * 2.0**24).to(torch.int32) + noise) >> 24
    size_bits = fields["low_bits"] - 1
    low = (k & ((1 << size_bits) - 1)) | torch.signbit(z).to(torch.int32) << size_bits
    return low.to(torch.uint8), (k >> size_bits).to(torch.uint8), outside


class Layout(NamedTuple):
    """The layout of the codes of all blocks."""

    codes: Tensor  # int64[blocks]: how many each has
    outliers: Tensor  # int64[blocks]: how many of them are long
    sizes: Tensor  # int64[4, blocks]: bytes of the mask, the classes, the low parts and the outliers' other bits
    ends: Tensor  # int64[blocks]: bytes up to the end of each
    sound: Tensor  # bool[]: no block has more codes than coordinates or more outliers than codes


def layout(n: int, codes: Tensor, outliers: Tensor, fields: dict[str, Any]) -> Layout:
    """The layout for n coordinates, from int16[blocks] of the message; codes: read where zeros are masked."""
    lengths = reference.bucket_lengths(n, BLOCK, outliers.device).to(torch.int64)
    counts = codes.to(torch.int64) & 0xFFFF if fields["masked"] else lengths
    long = outliers.to(torch.int64) & 0xFFFF
    parts = [(counts + 7) // 8, (counts * fields["low_bits"] + 7) // 8, (long * fields["extra_bits"] + 7) // 8]
    if fields["constant"]:
        parts = [0 * part for part in parts]
    sizes = torch.stack([(lengths + 7) // 8 if fields["masked"] else 0 * lengths, *parts])
    return Layout(counts, long, sizes, sizes.sum(0).cumsum(0), ((counts <= lengths) & (long <= counts)).all())


def decode(data: Tensor, codes: Tensor, outliers: Tensor, table: Tensor, total: Tensor, **fields: Any) -> bool:
    """The same as ``nuq.native.smaq.decode``."""
    n = total.numel()
    found = layout(n, codes, outliers, fields)
    if not bool(found.sound) or (int(found.ends[-1]) if n else 0) != data.numel():
        return False
    sizes = found.sizes
    starts = (found.ends - sizes.sum(0)) + torch.cat([0 * sizes[:1], sizes.cumsum(0)[:-1]])  # [sections, blocks]
    decoded = []
    for first in range(0, len(codes), _PORTION):
        some = slice(first, first + _PORTION)
        given = (data, starts[:, some], sizes[:, some], found.codes[some], found.outliers[some], table, fields)
        rows = _values(*given)
        if rows is None:
            return False
        decoded.append(rows)
    values = torch.cat(decoded).view(-1)[:n] if decoded else table[:0]
    total.copy_(total + values if fields["accumulate"] else values)
    return True


def _section(data: Tensor, starts: Tensor, sizes: Tensor, bits: int) -> Tensor:
    """The bytes of one section of some blocks: uint8[blocks, bits * BLOCK / 8], zeros behind."""
    width = torch.arange(bits * BLOCK // 8, dtype=torch.int64, device=data.device)
    used = width < sizes[:, None]
    read = torch.where(used, starts[:, None] + width, 0)
    return torch.where(used, data[read] if data.numel() else torch.zeros_like(read, dtype=torch.uint8), 0)


def _numbers(section: Tensor, bits: int) -> Tensor:
    """The numbers uint8[blocks, BLOCK] of so many bits each."""
    if not bits:
        return torch.zeros(len(section), BLOCK, dtype=torch.uint8, device=section.device)
    each = _bits(section, 8).view(len(section), BLOCK, bits)
    return (each << torch.arange(bits, dtype=torch.uint8, device=section.device)).sum(-1, dtype=torch.uint8)


def _values(
    data: Tensor, starts: Tensor, sizes: Tensor, counts: Tensor, long: Tensor, table: Tensor, fields: dict[str, Any]
) -> Tensor | None:
    """The values of step 6, float32[blocks, BLOCK]; None where a bitmap holds another number than it should."""
    low_bits, extra_bits = fields["low_bits"], fields["extra_bits"]
    if fields["constant"]:
        values = table[:1].expand(len(counts), BLOCK)
    else:
        outside = _numbers(_section(data, starts[1], sizes[1], 1), 1)
        if not torch.equal(outside.sum(1), long):
            return None
        low = _numbers(_section(data, starts[2], sizes[2], low_bits), low_bits)
        indices = (outside.cumsum(1) - 1).clamp_min(0)
        extra = _numbers(_section(data, starts[3], sizes[3], extra_bits), extra_bits).gather(1, indices) * outside
        values = table[(low | extra << low_bits | outside << 7).long()]
    if not fields["masked"]:
        return values
    mask = _numbers(_section(data, starts[0], sizes[0], 1), 1)
    if not torch.equal(mask.sum(1), counts):
        return None
    indices = (mask.cumsum(1) - 1).clamp_min(0)
    return torch.where(mask.bool(), values.gather(1, indices), 0.0)
