"""Index coding of indices that lie on a GPU: the bytes of ``nuq.coding.index_coding``, in PyTorch's own operators.

Indices and bytes stay on the device.  What the host reads: sizes, a histogram of classes (32 kB) where rANS may be the
smallest form, and what ``nuq.coding.entropy_device`` says.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from nuq.coding import entropy_device
from nuq.coding.index_forms import (
    BITMAP,
    BLOCK,
    INT32,
    MANTISSA,
    MAX_CONTEXTS,
    NUM_CLASSES,
    OTHERS,
    RANS,
    RICE,
    estimated_bytes,
    options_of,
    sampled_every,
)
from nuq.kernels.cuda.launch import Modules


def encode(device: Modules, indices: Tensor, n: int, form: str) -> Tensor:
    """The bytes of ``index_coding.encode``, on the device of the indices: ascending, int32[k], 0 < k < n."""
    k, near = indices.numel(), indices.device
    if form in ("auto", "delta") and 16 * (n - k) < n:
        others = encode(device, _others(indices, n), n, form)
        if others.numel() < min(options_of("auto", k, n).values()):
            return torch.cat([_byte(OTHERS, near), others])
    options = options_of(form, k, n)
    if form in ("auto", "delta"):
        rows, parameters, rice_bytes = _gaps(indices)
        options[RICE] = rice_bytes
        smallest = min(options, key=lambda option: (options[option], option))
        contexts = (parameters - parameters.min()).clamp(max=MAX_CONTEXTS - 1)
        gaps = rows.reshape(-1)[:k]
        if (every := sampled_every(k)) and _estimate(rows, k, contexts, every) < options[smallest]:
            coded = _encode_rans(device, gaps, contexts)
            if coded.numel() - 1 < options[smallest]:
                return coded
        if smallest == RICE:
            return _encode_rice(gaps, parameters)
    else:
        (smallest,) = options
    if smallest == INT32:
        return torch.cat([_byte(INT32, near), indices.contiguous().view(torch.uint8)])
    return torch.cat([_byte(BITMAP, near), _set_bits(indices.long(), n)])


def decode(device: Modules, data: Tensor, k: int, n: int) -> Tensor | None:
    """The indices int32[k], ascending, below n, 0 < k < n; None for bytes that are not a whole encoding of them."""
    indices = _decode(device, data, k, n)
    if indices is None or indices.numel() != k:
        return None
    legal = (indices[0] >= 0) & (indices[-1] < n) & (indices[1:] > indices[:-1]).all()
    return indices.to(torch.int32) if bool(legal) else None


def _decode(device: Modules, data: Tensor, k: int, n: int) -> Tensor | None:
    form, body = int(data[0]), data[1:]
    if form == INT32 and body.numel() == 4 * k:
        return body.clone().view(torch.int32).long()
    if form == BITMAP and body.numel() == -(-n // 8):
        return _found_bits(body)
    if form == RICE:
        return _decode_rice(body, k, n)
    if form == RANS:
        return _decode_rans(device, body, k, n)
    if form == OTHERS and 2 * k > n and body.numel():
        others = decode(device, body, n - k, n)
        return None if others is None else _others(others, n)
    return None


def _byte(value: int, near: torch.device) -> Tensor:
    return torch.full((1,), value, dtype=torch.uint8, device=near)


def _others(indices: Tensor, n: int) -> Tensor:
    """The indices below n that are not among these: int32."""
    absent = torch.ones(n, dtype=torch.bool, device=indices.device)
    absent[indices.long()] = False
    return absent.nonzero().flatten().to(torch.int32)


def _by_gap(of_blocks: Tensor, k: int) -> Tensor:
    return of_blocks.repeat_interleave(BLOCK)[:k]


# --- bit streams --------------------------------------------------------------------------------------------------


def _set_bits(places: Tensor, n: int) -> Tensor:
    """A stream of n bits, those at the places set."""
    bits = torch.zeros(-(-n // 8) * 8, dtype=torch.uint8, device=places.device)
    bits[places] = 1
    return (bits.view(-1, 8) << torch.arange(8, dtype=torch.uint8, device=bits.device)).sum(1, dtype=torch.uint8)


def _found_bits(data: Tensor) -> Tensor:
    bits = data[:, None] >> torch.arange(8, dtype=torch.uint8, device=data.device) & 1
    return bits.reshape(-1).nonzero().flatten()


def _packed(values: Tensor, widths: Tensor) -> Tensor:
    """Values int64, of these widths (31 bits at most), one after another in words of 32 bits."""
    ends = widths.cumsum(0)
    starts, num_bits = ends - widths, int(ends[-1])
    words = torch.zeros(num_bits // 32 + 2, dtype=torch.int64, device=values.device)
    shifted = values << (starts & 31)
    words.scatter_add_(0, starts >> 5, shifted & 0xFFFFFFFF)
    words.scatter_add_(0, (starts >> 5) + 1, shifted >> 32)
    return words.to(torch.int32).view(torch.uint8)[: -(-num_bits // 8)]


def _unpacked(data: Tensor, widths: Tensor) -> Tensor:
    starts = widths.cumsum(0) - widths
    words = pad(data, (0, -data.numel() % 4 + 8)).view(torch.int32).long() & 0xFFFFFFFF
    pairs = words[starts >> 5] | words[(starts >> 5) + 1] << 32
    return pairs >> (starts & 31) & ((1 << widths) - 1)


# --- Rice ---------------------------------------------------------------------------------------------------------


def _gaps(indices: Tensor) -> tuple[Tensor, Tensor, int]:
    """Gaps int64[blocks, BLOCK], the last row padded with zeros; the parameter of each block; bytes of Rice."""
    k, blocks = indices.numel(), -(-indices.numel() // BLOCK)
    places = indices.long()
    rows = pad(places.diff(prepend=places.new_full((1,), -1)) - 1, (0, blocks * BLOCK - k)).view(blocks, BLOCK)
    counts = places.new_full((blocks,), BLOCK)
    counts[-1] = k - BLOCK * (blocks - 1)
    means = (rows.sum(1) * 7 // (10 * counts)).clamp(min=1)
    lower = torch.frexp(means.double()).exponent.long() - 1
    less = (rows >> lower[:, None]).sum(1)
    more = (rows >> (lower + 1)[:, None]).sum(1)
    raised = counts + more < less
    parameters = lower + raised
    low_bits, unary_bits = torch.stack(
        [(counts * parameters).sum(), k + torch.where(raised, more, less).sum()]
    ).tolist()
    return rows, parameters, blocks + -(-low_bits // 8) + -(-unary_bits // 8)


def _encode_rice(gaps: Tensor, parameters: Tensor) -> Tensor:
    widths = _by_gap(parameters, gaps.numel())
    ones = ((gaps >> widths) + 1).cumsum(0) - 1
    low = _packed(gaps & ((1 << widths) - 1), widths)
    return torch.cat([_byte(RICE, gaps.device), parameters.to(torch.uint8), low, _set_bits(ones, int(ones[-1]) + 1)])


def _decode_rice(body: Tensor, k: int, n: int) -> Tensor | None:
    blocks = -(-k // BLOCK)
    parameters = body[:blocks].long()
    if body.numel() <= blocks or int(parameters.max()) > 31:
        return None
    widths = _by_gap(parameters, k)
    size = -(-int(widths.sum()) // 8)
    unary = body[blocks + size :]
    if not unary.numel() or not int(unary[-1]):
        return None
    ones = _found_bits(unary)
    if ones.numel() != k:
        return None
    quotients = ones.diff(prepend=ones.new_full((1,), -1)) - 1
    return _indices((quotients << widths) + _unpacked(body[blocks : blocks + size], widths), n)


def _indices(gaps: Tensor, n: int) -> Tensor | None:
    return None if int(gaps.max()) >= n else (gaps + 1).cumsum(0) - 1


# --- rANS ---------------------------------------------------------------------------------------------------------


def _classes(gaps: Tensor) -> tuple[Tensor, Tensor]:
    """The class of every gap, and the number of its low bits: int64."""
    leading = (gaps + 1).double().view(torch.int64) >> (52 - MANTISSA)
    classes = leading - (1023 << MANTISSA)
    return classes, ((classes >> MANTISSA) - MANTISSA).clamp(min=0)


def _estimate(rows: Tensor, k: int, contexts: Tensor, every: int) -> int:
    """The approximate bytes of rANS, from a sample of the blocks."""
    whole = k // BLOCK
    sample = rows[:whole:every]
    classes, low = _classes(sample)
    pairs = (classes + contexts[:whole:every, None] * NUM_CLASSES).reshape(-1)
    counts = torch.bincount(pairs, minlength=NUM_CLASSES * MAX_CONTEXTS).cpu().numpy()
    return estimated_bytes(counts.reshape(MAX_CONTEXTS, NUM_CLASSES), int(low.sum()), rows.shape[0], sample.numel(), k)


def _encode_rans(device: Modules, gaps: Tensor, contexts: Tensor) -> Tensor:
    classes, low = _classes(gaps)
    own = contexts.to(torch.uint8)
    beside = _by_gap(own, gaps.numel())
    coded = entropy_device.encode(device, classes.to(torch.uint8), NUM_CLASSES, beside, MAX_CONTEXTS)
    size = torch.from_numpy(np.array([coded.numel()], dtype="<u4").view(np.uint8)).to(gaps.device)
    paired = pad(own, (0, own.numel() % 2)).view(-1, 2)
    nibbles = paired[:, 0] | paired[:, 1] << 4
    low_bits = _packed((gaps + 1) & ((1 << low) - 1), low)
    return torch.cat([_byte(RANS, gaps.device), nibbles, size, coded, low_bits])


def _decode_rans(device: Modules, body: Tensor, k: int, n: int) -> Tensor | None:
    blocks = -(-k // BLOCK)
    start = -(-blocks // 2)
    if body.numel() < start + 4:
        return None
    contexts = torch.stack([body[:start] & 15, body[:start] >> 4], dim=1).reshape(-1)[:blocks]
    size = int(body[start : start + 4].cpu().numpy().view("<u4")[0])
    coded, rest = body[start + 4 : start + 4 + size], body[start + 4 + size :]
    classes = entropy_device.decode(device, coded, k, NUM_CLASSES, _by_gap(contexts, k), MAX_CONTEXTS).long()
    exponents, mantissas = classes >> MANTISSA, classes & ((1 << MANTISSA) - 1)
    low = (exponents - MANTISSA).clamp(min=0)
    if rest.numel() != -(-int(low.sum()) // 8):
        return None
    leading = ((1 << MANTISSA) | mantissas) << low >> (MANTISSA - exponents).clamp(min=0)
    return _indices(leading + _unpacked(rest, low) - 1, n)
