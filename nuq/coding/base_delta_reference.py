"""The reference of ``nuq.coding.base_delta`` in plain PyTorch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.kernels import reference
from nuq.kernels.spec import Among, Words

BLOCK = 64
BASE, MIXED = 16, 32  # kinds of blocks
LEAST_EXPONENT, MOST_EXPONENT, BIAS = -110, 128, 127
_PORTION = 1 << 14  # blocks at a time
_BYTES = BLOCK // 8  # of one bit of every word


def encode(vector: Tensor, bits: int, words: Words | None, among: Among) -> tuple[Tensor, Tensor, Tensor]:
    """The same as ``nuq.coding.base_delta.encode``."""
    size = BLOCK * _PORTION
    parts = []
    for first in range(0, vector.numel(), size):
        piece = vector[first : first + size]
        rows = torch.nn.functional.pad(piece, (0, -piece.numel() % BLOCK)).view(-1, BLOCK)
        whole, exponents = _words(rows, bits, words, among, first)
        kinds, data = _blocks(whole, bits)
        parts.append((kinds, exponents, data))
    kinds, exponents, data = (torch.cat(part) for part in zip(*parts, strict=True))
    return kinds, exponents, data


def decode(kind: Tensor, width: Tensor, exponents: Tensor, starts: Tensor, data: Tensor, bits: int) -> Tensor:
    """The values float32[64 * blocks]; kind, width: of the kinds' bytes; starts: where blocks begin in the data."""
    based, mixed = kind >= BASE, kind == MIXED
    base = torch.zeros(len(kind), dtype=torch.uint8, device=kind.device)
    base[based] = data[starts[based]]
    mask = based[:, None].expand(-1, BLOCK).clone()
    mask[mixed] = _unpacked(data[_indices(starts + 1, mixed, _BYTES)], 1).bool()
    codes = torch.zeros(len(kind), BLOCK, dtype=torch.uint8, device=kind.device)
    for each in range(1, bits + 1):
        which = width == each
        codes[which] = _unpacked(data[_indices(_behind_base(starts, kind), which, _BYTES * each)], each)
    deltas = ((codes >> 1) ^ ((codes & 1) * 0xFF)).view(torch.int8)
    words = deltas + torch.where(mask, base[:, None].view(torch.int8), 0).to(torch.int8)
    return torch.ldexp(words.to(torch.float32), (exponents.to(torch.int32) - BIAS - (bits - 1))[:, None]).view(-1)


def _words(rows: Tensor, bits: int, words: Words | None, among: Among, first: int) -> tuple[Tensor, Tensor]:
    """The words int8[blocks, 64], and exponents + 127 as uint8[blocks]; first: the number of the first coordinate."""
    most = 2.0 ** (bits - 1) - 1
    largest = rows.abs().amax(dim=1)
    exponents = torch.where(largest > 0, torch.frexp(largest)[1], LEAST_EXPONENT).clamp_min(LEAST_EXPONENT)
    raised = (torch.ldexp(largest, bits - 1 - exponents) > most).to(torch.int32)
    exponents = (exponents + raised).clamp_max(MOST_EXPONENT)
    scaled = torch.ldexp(rows, (bits - 1 - exponents)[:, None]).clamp(-most, most)
    if words is None:
        whole = scaled.round_()
    else:
        index = torch.arange(first, first + rows.numel(), dtype=torch.int32, device=rows.device)
        noise = ((reference.hashed(index, words, among) >> 8) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24)
        whole = scaled.floor() + (noise.view(rows.shape) < scaled - scaled.floor())
    return whole.to(torch.int8), (exponents + BIAS).to(torch.uint8)


def _codes(deltas: Tensor) -> Tensor:
    """Words int8 as codes uint8: small magnitudes of either sign become small codes."""
    return ((deltas << 1) ^ (deltas >> 7)).view(torch.uint8)


def _width(codes: Tensor) -> Tensor:
    """The number of bits that hold every word of a row: int16[blocks]."""
    most = codes.amax(dim=1)
    return torch.stack([most >> bit > 0 for bit in range(8)]).sum(0, dtype=torch.int16)


def _blocks(words: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The kinds uint8[blocks] of the words int8[blocks, 64], and the bytes of all blocks."""
    plain = _codes(words)
    width = _width(plain)
    kind, size, base = torch.zeros_like(width), _BYTES * width, torch.zeros_like(words[:, 0])
    codes, mask = plain.clone(), torch.zeros_like(words, dtype=torch.bool)

    def take(
        better: Tensor, new_kind: int, new_width: Tensor, new_size: Tensor, new_base: Tensor, new_codes: Tensor
    ) -> None:
        kind.masked_fill_(better, new_kind)
        for old, new in ((width, new_width), (size, new_size), (base, new_base)):
            old.copy_(torch.where(better, new, old))
        codes.copy_(torch.where(better[:, None], new_codes, codes))

    own = _codes(words - words[:, :1])
    own_width = _width(own)
    take(_BYTES * own_width + 1 < size, BASE, own_width, _BYTES * own_width + 1, words[:, 0], own)
    for tried in range(bits - 1):
        outside = plain >= 1 << tried
        start = words.gather(1, outside.to(torch.uint8).argmax(dim=1, keepdim=True))
        deltas = _codes(words - start)
        cost = _BYTES * tried + _BYTES + 1
        better = ((deltas < 1 << tried) | ~outside).all(dim=1) & (cost < size)
        if bool(better.any()):
            mask |= outside & better[:, None]
            sizes = torch.full_like(width, tried), torch.full_like(size, cost)
            take(better, MIXED, *sizes, start[:, 0], torch.where(outside, deltas, plain))
    ends = size.cumsum(0, dtype=torch.int64)
    starts = ends - size
    data = torch.empty(int(ends[-1]), dtype=torch.uint8, device=words.device)
    data[starts[kind >= BASE]] = base[kind >= BASE].view(torch.uint8)
    data[_indices(starts + 1, kind == MIXED, _BYTES)] = _packed(mask[kind == MIXED].to(torch.uint8), 1)
    for each in range(1, bits + 1):
        data[_indices(_behind_base(starts, kind), width == each, _BYTES * each)] = _packed(codes[width == each], each)
    return (kind + width).to(torch.uint8), data


def _behind_base(starts: Tensor, kind: Tensor) -> Tensor:
    """The place where the codes of every block begin."""
    return starts + (kind >= BASE) + _BYTES * (kind == MIXED)


def _indices(starts: Tensor, which: Tensor, length: int) -> Tensor:
    """The indices of the parts of so many bytes of the selected blocks: int64[selected blocks, length]."""
    return starts[which][:, None] + torch.arange(length, dtype=torch.int64, device=starts.device)


def _packed(numbers: Tensor, bits: int) -> Tensor:
    """The low bits of uint8[blocks, 64], packed: uint8[blocks, 8 * bits]."""
    each = (numbers.unsqueeze(-1) >> torch.arange(bits, dtype=torch.uint8, device=numbers.device)) & 1
    rows = each.view(len(numbers), 8 * bits, 8)
    return (rows << torch.arange(8, dtype=torch.uint8, device=rows.device)).sum(-1, dtype=torch.uint8)


def _unpacked(data: Tensor, bits: int) -> Tensor:
    """The inverse of ``_packed``: uint8[blocks, 8 * bits] as uint8[blocks, 64]."""
    each = (data.view(-1, 8 * bits, 1) >> torch.arange(8, dtype=torch.uint8, device=data.device)) & 1
    rows = each.reshape(-1, BLOCK, bits)
    return (rows << torch.arange(bits, dtype=torch.uint8, device=rows.device)).sum(-1, dtype=torch.uint8)
