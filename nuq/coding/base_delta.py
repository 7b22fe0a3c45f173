"""Blocks of 64 fixed-point words as deltas from zero or from one base, and the specification of their bytes.

Two implementations give the same bytes: plain PyTorch (``nuq.coding.base_delta_reference``: any device) and C++
(``nuq/native``).  The last block is filled with zeros.

1. A word is ``x / 2^(e - bits + 1)``, rounded.  e is the least from -110 to 128 for which ``|x| / 2^(e - bits + 1)`` is
   at most ``M = 2^(bits - 1) - 1`` everywhere in the block; with e = 128 words are clamped to -M .. M.
2. To the nearest, ties to even; or ``floor(y) + (u < y - floor(y))`` with ``u = (h >> 8) 2^-24``, ``h`` as in
   ``nuq.kernels.spec``, step 6.
3. The code of a word from a base is the delta d, modulo 256 within -128 .. 127, as ``2 d``, or ``-2 d - 1`` where it is
   negative: what takes w bits is -2^(w-1) .. 2^(w-1) - 1, and 0 bits take 0.
4. A block's codes are of one width.  Either all words are coded from zero (``8 w`` bytes); or all from its first word
   (1 + 8 w); or those that take more than w bits from zero are coded from the first of them (9 + 8 w), if they then
   take no more, w < bits - 1.  The block takes the kind of the fewest bytes, the earlier one where two are alike.
5. The kind's byte is the width, + 16 or + 32 for the latter two kinds; the exponent's is e + 127.  The block's bytes:
   the base; of the third kind a bit for every word, 1: from the base; the codes, lowest bits first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.coding import base_delta_reference
from nuq.coding.base_delta_reference import BASE, BIAS, BLOCK, LEAST_EXPONENT, MIXED
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import ALONE, Among, Words
from nuq.native import base_delta as compiled


def encode(vector: Tensor, bits: int, words: Words | None, among: Among = ALONE) -> tuple[Tensor, Tensor, Tensor]:
    """Kinds and exponents uint8[blocks], and the blocks' bytes, of a finite float32[n].

    words: of the key, None rounds to the nearest; among: the place among those that round together.
    """
    assert vector.dtype == torch.float32 and vector.is_contiguous()
    if not in_cpp(vector):
        return base_delta_reference.encode(vector, bits, words, among)
    noise = None if words is None else (*words, *among)
    coded = compiled.encode(vector.detach().numpy(), bits, noise, torch.get_num_threads())
    kinds, exponents, data = map(torch.from_numpy, coded)
    return kinds, exponents, data


def decode(kinds: Tensor, exponents: Tensor, data: Tensor, bits: int, total: Tensor, *, accumulate: bool) -> bool:
    """Decode into the total float32[n > 0], or add; False, and an unchanged total, where the bytes are damaged."""
    kind, width = kinds & 0xF0, kinds & 0x0F
    if int(width.max()) > bits or int(kind.max()) > MIXED or int(exponents.min()) < LEAST_EXPONENT + BIAS:
        return False
    sizes = BLOCK // 8 * width.to(torch.int64) + (kind >= BASE) + BLOCK // 8 * (kind == MIXED)
    starts = sizes.cumsum(0) - sizes
    if int(starts[-1] + sizes[-1]) != data.numel():
        return False
    if not in_cpp(total):
        decoded = base_delta_reference.decode(kind, width, exponents, starts, data, bits)[: total.numel()]
        total.add_(decoded) if accumulate else total.copy_(decoded)
        return True
    assert total.dtype == torch.float32
    given = (kinds.numpy(), exponents.numpy(), starts.numpy(), data.numpy(), bits)
    compiled.decode(*given, total.numpy(), accumulate, torch.get_num_threads())
    return True
