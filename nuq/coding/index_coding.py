r"""Coding of k ascending indices among n coordinates in the fewest bytes.

There are no bytes where k is 0 or n.  Else there is one byte for the form, followed by

- 0, int32: 4 bytes a place;
- 1, bitmap: a bit for each of the n coordinates;
- 2, Rice: gaps ``g = place - place before - 1`` in blocks of 512.  A block's parameter r (uint8) splits its gaps into r
  low bits and a quotient ``g >> r``.  Parameters; low bits one after another, padded to a byte; quotients in unary (as
  many zeros, then a one), padded;
- 3, rANS: the class of ``g + 1``, its exponent e and 3 bits after the leading one, by ``nuq.coding.entropy``; as
  context the number of bits of the block's mean gap less the smallest of them, at most 15, of 4 bits a block.
  Contexts; bytes of the coded classes uint32; classes; the ``e - 3`` low bits of every gap, one after another;
- 4, the others: where more than 15 of 16 coordinates are meant, those that are not, in one of the forms above.

Rice codes (Golomb, 1966; Rice, 1979) take about 1.5 bits and log2(n / k) for indices at random, within .1 bits of the
entropy, and follow by their parameters a density that changes from layer to layer.  rANS takes .02 bits more than the
entropy for many indices at random, and gains more where a block's gaps are not geometric.  The sender tells the form by
size: exact for the first three, an estimate in integers for rANS, which is tried where it promises to be smaller.  The
others (4) are taken where they are smaller than 0 and 1; where the absent indices lie in runs, 2 or 3 might have been
some hundred bytes smaller, which is nothing beside so many values.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nuq import native
from nuq.coding import entropy, index_coding_device, index_coding_reference
from nuq.coding.entropy_tables import Bytes, Ints
from nuq.coding.index_forms import (
    BITMAP,
    BLOCK,
    FORMS,
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
from nuq.errors import MessageError
from nuq.kernels.cuda.launch import Modules, device_code
from nuq.kernels.host import numpy_of
from nuq.native import bits as kernels

ON_DEVICE_FROM: Final = 1 << 17  # indices; below, the processor was quicker (results/gpu, of PyTorch's operators)


def _bits() -> ModuleType:
    return index_coding_reference if native.library() is None else kernels


def bound(k: int, n: int, form: str = "auto") -> int:
    """The largest number of bytes that ``encode`` returns."""
    if k in (0, n):
        return 0
    return 1 + {"auto": min(4 * k, -(-n // 8)), "bitmap": -(-n // 8)}.get(form, 4 * k)


def bound_up_to(k: int, n: int, form: str, exactly: bool) -> int:
    """The ``bound`` of k indices, or (not ``exactly``) of k or fewer, beside values of 2 bytes or more each."""
    return bound(k, n, form) if exactly or k < n else max(bound(k, n, form), bound(n - 1, n, form))


class _Gaps(NamedTuple):
    """Gaps int64[k] and, by block, what their codes need."""

    gaps: Ints
    parameters: Bytes  # of Rice, uint8[blocks]
    rice_bytes: int

    @property
    def widths(self) -> Bytes:
        """The number of low bits of every gap under Rice: uint8[k]."""
        return np.repeat(self.parameters, BLOCK)[: self.gaps.size]


def encode(indices: Tensor, n: int, form: str = "auto") -> Tensor:
    """Encode the indices as uint8[bytes], at most ``bound`` bytes, on the device of the indices.

    indices: int32[k], ascending, below n (at most 2^31).  form: auto: the smallest; int32; bitmap; delta: Rice or rANS
    (or int32, for few indices far apart, where that is smaller).  ValueError for indices that do not ascend or lie
    beyond n, and for another form.
    """
    if form not in FORMS:
        raise ValueError(f"indices={form!r}: must be one of {', '.join(FORMS)}")
    device = _coding_device(indices, indices.numel(), n)
    raw = indices if device is not None else torch.from_numpy(numpy_of(indices, "indices"))
    k = raw.numel()
    if k and (int(raw[0]) < 0 or int(raw[-1]) >= n or not (raw[1:] > raw[:-1]).all()):
        raise ValueError(f"{k} indices among {n}: must ascend from 0 or more to at most n - 1")
    if k in (0, n):
        return torch.empty(0, dtype=torch.uint8, device=indices.device)
    if device is not None:
        return index_coding_device.encode(device, indices, n, form)
    return torch.from_numpy(_encode(raw.numpy(), n, form)).to(indices.device)


def _coding_device(data: Tensor, k: int, n: int) -> Modules | None:
    """The device code, where the data lie on a GPU, it is quicker, and PyTorch counts that many bits there."""
    return device_code() if data.is_cuda and k >= ON_DEVICE_FROM and n < 1 << 30 else None


def _encode(raw: Ints, n: int, form: str) -> Bytes:
    k, options = raw.size, options_of(form, raw.size, n)
    if form in ("auto", "delta") and 16 * (n - k) < n:
        others = _encode(_others(raw, n), n, form)
        if others.size < min(options_of("auto", k, n).values()):
            return np.concatenate([_form(OTHERS), others])
    if form in ("auto", "delta"):
        gaps = _gaps(raw)
        options[RICE] = gaps.rice_bytes
        smallest = min(options, key=lambda option: (options[option], option))
        if (every := sampled_every(k)) and _rans_estimate(gaps, every) < options[smallest]:
            coded = _encode_rans(gaps)
            if coded.size - 1 < options[smallest]:
                return coded
        if smallest == RICE:
            return _encode_rice(gaps)
    else:
        (smallest,) = options
    if smallest == INT32:
        return np.concatenate([_form(INT32), raw.astype("<u4").view(np.uint8)])
    return np.concatenate([_form(BITMAP), _bits().set_bits(raw.astype(np.int64), n)])


def decode(data: Tensor, k: int, n: int) -> Tensor:
    """The indices int32[k], ascending, below n; MessageError for bytes that are not a whole encoding of them."""
    if k in (0, n):
        if data.numel():
            raise MessageError(f"{data.numel()} bytes of indices where {k} of {n} need none")
        return torch.arange(k, dtype=torch.int32, device=data.device)
    if not 0 < k < n or not data.numel():
        raise MessageError(f"{data.numel()} bytes are not {k} indices among {n}")
    device = _coding_device(data, k, n)
    if device is not None and (found := index_coding_device.decode(device, data, k, n)) is not None:
        return found  # else what follows says what is wrong with the bytes
    indices = _decode(np.ascontiguousarray(numpy_of(data, "indices")), k, n)
    return torch.from_numpy(indices.astype(np.int32)).to(data.device)


def _decode(raw: Bytes, k: int, n: int) -> Ints:
    form, body = int(raw[0]), raw[1:]
    legal = {INT32: _decode_int32, BITMAP: _decode_bitmap, RICE: _decode_rice, RANS: _decode_rans}
    if 2 * k > n:  # so that it comes once
        legal[OTHERS] = _decode_others
    if form not in legal:
        raise MessageError(f"indices of form {form}: must be one of {', '.join(map(str, legal))}")
    indices = legal[form](body, k, n)
    if indices.size != k or indices[0] < 0 or indices[-1] >= n or not (indices[1:] > indices[:-1]).all():
        raise MessageError(f"indices that do not ascend, or do not lie among {n}: damaged")
    return indices


def _form(form: int) -> Bytes:
    return np.array([form], dtype=np.uint8)


def _cut_short(size: int, needed: int) -> MessageError:
    return MessageError(f"{size} bytes of indices where {needed} are needed")


def _decode_int32(body: Bytes, k: int, n: int) -> Ints:
    del n
    if body.size != 4 * k:
        raise _cut_short(body.size, 4 * k)
    return body.copy().view("<u4").astype(np.int64)


def _decode_bitmap(body: Bytes, k: int, n: int) -> Ints:
    if body.size != -(-n // 8):
        raise _cut_short(body.size, -(-n // 8))
    return _exactly(body, k)


def _exactly(bitmap: Bytes, k: int) -> Ints:
    """The k bits that are set; MessageError for another number of them."""
    found = _bits().find_bits(np.ascontiguousarray(bitmap), k)
    if found is None or found.size != k:
        raise MessageError(f"a bitmap that has not {k} bits set: damaged")
    return found


def _decode_others(body: Bytes, k: int, n: int) -> Ints:
    if not body.size:
        raise _cut_short(0, 1)
    others = _decode(np.ascontiguousarray(body), n - k, n)
    runs = np.diff(others - np.arange(n - k), prepend=0, append=k)  # lengths of those between them
    return np.arange(k) + np.repeat(np.arange(n - k + 1), runs)


def _others(indices: Ints, n: int) -> Ints:
    """The indices below n that are not among these."""
    absent = np.ones(n, dtype=bool)
    absent[indices] = False
    return np.flatnonzero(absent)


# --- Rice ---------------------------------------------------------------------------------------------------------


def _gaps(raw: Ints) -> _Gaps:
    k = raw.size
    blocks = -(-k // BLOCK)
    padded = np.zeros(blocks * BLOCK, dtype=np.int64)
    gaps = padded[:k]
    gaps[0] = raw[0]
    np.subtract(raw[1:], raw[:-1], out=gaps[1:], casting="unsafe")
    gaps[1:] -= 1
    rows = padded.reshape(blocks, BLOCK)
    counts = np.full(blocks, BLOCK)
    counts[-1] = k - BLOCK * (blocks - 1)
    # The best parameter lies near log2 of .7 times the mean gap: two are tried, exactly.
    means = np.maximum(rows.sum(axis=1) * 7 // (10 * counts), 1)
    lower = np.frexp(means.astype(np.float64))[1].astype(np.int64) - 1
    halves = rows >> lower[:, None]
    less = halves.sum(axis=1)
    more = np.right_shift(halves, 1, out=halves).sum(axis=1)
    raised = counts + more < less
    parameters = lower + raised
    bits = int(np.sum(counts * parameters)), k + int(np.sum(np.where(raised, more, less)))
    return _Gaps(gaps, parameters.astype(np.uint8), blocks + -(-bits[0] // 8) + -(-bits[1] // 8))


def _encode_rice(gaps: _Gaps) -> Bytes:
    widths = gaps.widths
    wide = widths.astype(np.int64)
    low = (gaps.gaps & ((1 << wide) - 1)).astype(np.uint32)
    ones = np.cumsum((gaps.gaps >> wide) + 1) - 1
    return np.concatenate(
        [_form(RICE), gaps.parameters, _bits().pack(low, widths), _bits().set_bits(ones, int(ones[-1]) + 1)]
    )


def _decode_rice(body: Bytes, k: int, n: int) -> Ints:
    blocks = -(-k // BLOCK)
    parameters = body[:blocks]
    if body.size <= blocks or int(parameters.max()) > 31:
        raise MessageError("Rice codes without parameters from 0 to 31: damaged")
    widths = np.repeat(parameters, BLOCK)[:k]
    size = -(-int(widths.sum(dtype=np.int64)) // 8)
    unary = body[blocks + size :]
    if not unary.size or not unary[-1]:
        raise MessageError("Rice codes that do not end with a one: damaged")
    ones = _exactly(unary, k)
    quotients = np.diff(ones, prepend=-1) - 1
    low = _bits().unpack(np.ascontiguousarray(body[blocks : blocks + size]), widths)
    return _indices((quotients << widths.astype(np.int64)) + low, n)


def _indices(gaps: Ints, n: int) -> Ints:
    if int(gaps.max()) >= n:  # before their sum could run over
        raise MessageError(f"a gap of {int(gaps.max())} among {n} indices: damaged")
    return np.cumsum(gaps + 1) - 1


# --- rANS ---------------------------------------------------------------------------------------------------------


def _classes(gaps: Ints) -> tuple[Bytes, Bytes]:
    """The class of every gap, and the number of its low bits."""
    leading = (gaps + 1).astype(np.float64).view(np.int64) >> (52 - MANTISSA)  # exact: below 2^53
    classes = leading - (1023 << MANTISSA)
    return classes.astype(np.uint8), np.maximum((classes >> MANTISSA) - MANTISSA, 0).astype(np.uint8)


def _spread(contexts: Bytes, k: int) -> Bytes:
    """The context of every gap, which is that of its block."""
    return np.repeat(contexts, BLOCK)[:k]


def _context_of(gaps: _Gaps) -> Bytes:
    return np.minimum(gaps.parameters - gaps.parameters.min(), MAX_CONTEXTS - 1).astype(np.uint8)


def _rans_estimate(gaps: _Gaps, every: int) -> int:
    """The approximate bytes of rANS, from a sample of the blocks."""
    whole = gaps.gaps.size // BLOCK
    rows = gaps.gaps[: whole * BLOCK].reshape(whole, BLOCK)[::every]
    contexts = _context_of(gaps)
    classes, low = _classes(rows.reshape(-1))
    pairs = classes.astype(np.int64) + np.repeat(contexts[:whole:every].astype(np.int64) * NUM_CLASSES, BLOCK)
    counts = np.bincount(pairs, minlength=NUM_CLASSES * MAX_CONTEXTS).reshape(MAX_CONTEXTS, NUM_CLASSES)
    return estimated_bytes(counts, int(low.sum(dtype=np.int64)), contexts.size, rows.size, gaps.gaps.size)


def _encode_rans(gaps: _Gaps) -> Bytes:
    classes, low = _classes(gaps.gaps)
    contexts = _context_of(gaps)
    by_gap = _spread(contexts, classes.size)
    coded = entropy.encode(classes, NUM_CLASSES, "rans", by_gap, MAX_CONTEXTS, threads=torch.get_num_threads())
    values = ((gaps.gaps + 1) & ((1 << low.astype(np.int64)) - 1)).astype(np.uint32)
    paired = np.concatenate([contexts, np.zeros(contexts.size % 2, dtype=np.uint8)]).reshape(-1, 2)
    size = np.array([coded.size], dtype="<u4").view(np.uint8)
    nibbles = (paired[:, 0] | paired[:, 1] << 4).astype(np.uint8)
    return np.concatenate([_form(RANS), nibbles, size, coded, _bits().pack(values, low)])


def _decode_rans(body: Bytes, k: int, n: int) -> Ints:
    blocks = -(-k // BLOCK)
    start = -(-blocks // 2)
    if body.size < start + 4:
        raise _cut_short(body.size, start + 4)
    nibbles = body[:start]
    contexts = np.stack([nibbles & 15, nibbles >> 4], axis=1).astype(np.uint8).reshape(-1)[:blocks]
    size = int(body[start : start + 4].copy().view("<u4")[0])
    coded, rest = body[start + 4 : start + 4 + size], body[start + 4 + size :]
    threads = torch.get_num_threads()
    classes = entropy.decode(coded, k, NUM_CLASSES, "rans", _spread(contexts, k), MAX_CONTEXTS, threads=threads)
    exponents, mantissas = np.divmod(classes.astype(np.int64), 1 << MANTISSA)
    low = np.maximum(exponents - MANTISSA, 0)
    needed = -(-int(low.sum()) // 8)
    if rest.size != needed:
        raise _cut_short(rest.size, needed)
    leading = ((1 << MANTISSA) | mantissas) << low >> np.maximum(MANTISSA - exponents, 0)
    return _indices(leading + _bits().unpack(np.ascontiguousarray(rest), low.astype(np.uint8)) - 1, n)
