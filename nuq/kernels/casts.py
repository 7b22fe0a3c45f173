"""Casts of float32 to shorter floating-point numbers, rounded at random.

Plain PyTorch on any device, C++ where it is built: the same bits.  A coordinate goes to the number below or above it in
size, with probabilities that make the expectation the coordinate itself.  ``h`` is its 32-bit hash
(``nuq.kernels.spec``, step 6); among several workers that round together it is ``h_i``, and ``2^32 - 1 - h_i`` for
negative coordinates, which fall where their size grows.  ``u = (h >> 8) 2^-24``, and a float32 of bits ``s`` (sign) and
``a`` (the others) is meant.

- bf16: ``min(a + (h >> 16), most 2^16 + 0xFFFF) >> 16``: the last 16 bits are the probability.  Exactly unbiased,
  denormals included.
- fp16, of ``y = |x| scale``: from ``2^-14`` on ``(a + (h >> 19) - (112 << 23)) >> 13``, exactly unbiased; below, in
  units of ``2^-24``, ``k + (u < y - k)`` with ``k = floor(y)``.  At most ``most``.
- fp8 likewise, with m = 2 (e5m2) or 3 (e4m3) bits of mantissa: from ``2^-14`` or ``2^-6`` on
  ``(a + (h >> (9 + m)) - offset) >> (23 - m)`` with an offset of ``112 << 23`` or ``120 << 23``; below, in units of
  ``2^-16`` or ``2^-9``.
- natural (Horvath et al., 2019): the powers of two ``2^(least - 127) 2^j``, j = 0 .. 126, as 1 + j, and 0.  From the
  smallest power on ``((a + (h >> 9)) >> 23) - least + 1``, exactly unbiased since the mantissa is the probability;
  below it ``u < |x| / 2^(least - 127)``.

The nearest is what PyTorch's own casts give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.kernels.cpu import in_cpp
from nuq.kernels.reference import hash_bits
from nuq.kernels.spec import ALONE, Among, Words, check_among
from nuq.native import casts as compiled

MOST_BF16, MOST_FP16 = 0x7F7F, 0x7BFF  # the largest finite numbers
MOST_FP8 = {torch.float8_e4m3fn: 0x7E, torch.float8_e5m2: 0x7B}
MOST_POWERS = 127
ONE_BYTE = ("natural", "fp8")


def smallest_power(largest: float) -> int:
    """The ``least`` of natural for a vector whose largest ``|x|`` is 2^-126 or more.

    There are 127 powers of two, up to one that is not smaller.  It is 0 where that one is 2^128, which float32 does not
    hold.
    """
    bits = int(torch.tensor(largest, dtype=torch.float32, device="cpu").view(torch.int32))
    top = (bits >> 23) + bool(bits & 0x7FFFFF)
    return 0 if top > 254 else max(top - MOST_POWERS + 1, 1)


def natural_values(least: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Step 8's levels float32[256] of codes 0 .. 255, and the scale float32[1] that they are multiplied with."""
    powers = torch.exp2(torch.arange(MOST_POWERS, dtype=torch.float64, device="cpu")).to(torch.float32)
    positive = torch.nn.functional.pad(powers, (1, 0))
    scale = torch.tensor([2.0 ** (least - 127)], dtype=torch.float32, device=device)
    return torch.cat([positive, -positive]).to(device), scale


def _cast(vector: Tensor, codes: Tensor, format: str, words: Words, among: Among, **how: int | float) -> bool:
    """Cast in C++, where that is possible."""
    assert vector.dtype == torch.float32 and codes.dtype == (torch.uint8 if format in ONE_BYTE else torch.int16)
    assert vector.is_contiguous() and codes.is_contiguous() and codes.numel() == vector.numel()
    assert codes.device == vector.device
    check_among(among)
    if not in_cpp(vector):
        return False
    n, noise, threads = vector.numel(), (*words, *among), torch.get_num_threads()
    compiled.cast(vector.data_ptr(), n, format, codes.data_ptr(), noise, threads, **how)  # type: ignore[arg-type]
    return True


def _sign(vector: Tensor, place: int) -> Tensor:
    """The sign bit of float32, moved to another place of an int32."""
    return (vector.view(torch.int32) >> (31 - place)) & (1 << place)


def _size_bits(vector: Tensor) -> Tensor:
    return vector.view(torch.int32) & 0x7FFFFFFF


def _hashes(words: Words, among: Among, vector: Tensor) -> Tensor:
    """The h of every coordinate; of negative ones, among others, turned round: sizes grow where numbers fall."""
    hashes = hash_bits(vector.numel(), words, vector.device, among)
    return hashes ^ (vector.view(torch.int32) >> 31) if among != ALONE else hashes


def _leading(hashes: Tensor, count: int) -> Tensor:
    """The first ``count`` bits."""
    return (hashes >> (32 - count)) & ((1 << count) - 1)


def _uniforms(hashes: Tensor) -> Tensor:
    return _leading(hashes, 24).to(torch.float32) * 2.0**-24


def _stored(codes: Tensor, into: Tensor) -> None:
    """The int32 numbers below 2^16 as int16 of the same bits."""
    into.copy_(torch.where(codes >= 1 << 15, codes - (1 << 16), codes))


def to_bfloat16_(vector: Tensor, codes: Tensor, words: Words, *, among: Among = ALONE) -> None:
    """Cast vector float32[n] to bfloat16. codes: int16[n], the bits of bfloat16."""
    if _cast(vector, codes, "bf16", words, among, most=MOST_BF16):
        return
    hashes = _hashes(words, among, vector)
    rounded = (_size_bits(vector) + _leading(hashes, 16)).clamp_max(MOST_BF16 << 16 | 0xFFFF)
    _stored((rounded >> 16) | _sign(vector, 15), codes)


def to_float16_(
    vector: Tensor, codes: Tensor, words: Words, scale: float = 1.0, most: int = MOST_FP16, *, among: Among = ALONE
) -> None:
    """Cast vector float32[n] to float16. codes: int16[n], the bits of float16; scale: a power of two."""
    if _cast(vector, codes, "fp16", words, among, scale=scale, most=most):
        return
    hashes = _hashes(words, among, vector)
    y = (vector * scale).abs()
    bits = _size_bits(y)
    normal = (bits + _leading(hashes, 13) - (112 << 23)) >> 13
    units = y.clamp_max(2.0**-14) * 2.0**24
    whole = units.to(torch.int32)
    small = whole + (_uniforms(hashes) < units - whole)
    code = torch.where(bits < 113 << 23, small, normal).clamp_max(most)
    _stored(code | _sign(vector, 15), codes)


def to_float8_(vector: Tensor, codes: Tensor, words: Words, format: torch.dtype, *, among: Among = ALONE) -> None:
    """Cast vector float32[n] to float8_e4m3fn or float8_e5m2; codes: uint8[n], the bits of the format."""
    mantissa, most = 2 if format == torch.float8_e5m2 else 3, MOST_FP8[format]
    if _cast(vector, codes, "fp8", words, among, most=most, least=mantissa):
        return
    hashes = _hashes(words, among, vector)
    least, unit = (-14, 16) if mantissa == 2 else (-6, 9)
    bits = _size_bits(vector)
    normal = (bits + _leading(hashes, 23 - mantissa) - ((126 + least) << 23)) >> (23 - mantissa)
    units = vector.abs().clamp_max(2.0**least) * 2.0**unit
    whole = units.to(torch.int32)
    small = whole + (_uniforms(hashes) < units - whole)
    code = torch.where(bits < (127 + least) << 23, small, normal).clamp_max(most)
    codes.copy_(code | _sign(vector, 7))


def to_natural_(vector: Tensor, codes: Tensor, words: Words, least: int, *, among: Among = ALONE) -> None:
    """Cast vector float32[n] to powers of two; codes: uint8[n], a sign and seven bits; least: of ``smallest_power``."""
    scale = 2.0 ** (127 - least)
    if _cast(vector, codes, "natural", words, among, scale=scale, least=least):
        return
    hashes = _hashes(words, among, vector)
    bits = _size_bits(vector)
    power = ((bits + _leading(hashes, 23)) >> 23) - (least - 1)
    below = _uniforms(hashes) < vector.abs() * scale
    codes.copy_(torch.where(bits < least << 23, below.to(torch.int32), power) | _sign(vector, 7))
