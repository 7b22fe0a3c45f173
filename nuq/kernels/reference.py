"""The operators of ``nuq.kernels.operators`` in plain PyTorch, on any device, whose bits all others must give."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Float64, Int32, UInt8
from torch import Tensor

from nuq.kernels import bit_packing
from nuq.kernels.host import square_root
from nuq.kernels.spec import (
    ALONE,
    QUANTILE_FACTOR,
    SMALLEST_NORM,
    Among,
    Key,
    Noise,
    Words,
    check_among,
    check_num_coordinates,
    check_scales,
    hadamard_blocks,
    lanes,
    last_product,
    num_buckets,
    signed,
    words_of,
)

BLOCK = 1024  # coordinates in one tree of the sum of squares


# --- random numbers ------------------------------------------------------------------------------------------------


def _shift(x: Tensor, count: int) -> Tensor:
    """The logical right shift of int32."""
    return (x >> count) & ((1 << (32 - count)) - 1)


def hash_bits(
    num_coordinates: int, key: Key | Words, device: torch.device | None = None, among: Among = ALONE
) -> Int32[Tensor, " n"]:
    """The ``h`` of step 6 for coordinates 0 .. num_coordinates-1: int32[num_coordinates] of 32 random bits each."""
    check_num_coordinates(num_coordinates)
    return hashed(torch.arange(num_coordinates, dtype=torch.int32, device=device), key, among)


def hashed(indices: Int32[Tensor, " n"], key: Key | Words, among: Among = ALONE) -> Int32[Tensor, " n"]:
    """The ``h`` of step 6 for some coordinates."""
    check_among(among)
    k0, k1 = words_of(key)
    factor, summand = last_product(among)
    x = indices ^ signed(k0)
    x ^= _shift(x, 16)
    x *= 0x7FEB352D
    x ^= _shift(x, 15)
    x ^= signed(k1)
    x *= signed(factor)
    x += signed(summand)
    x ^= _shift(x, 16)
    return x


def uniforms(
    num_coordinates: int, key: Key | Words, device: torch.device | None = None, among: Among = ALONE
) -> Float32[Tensor, " n"]:
    """Uniform random numbers in [0, 1) on a grid of 2^-24: float32[num_coordinates]."""
    return _shift(hash_bits(num_coordinates, key, device, among), 8).to(torch.float32) * 2.0**-24


def leading_bits(
    num_coordinates: int, k0: int, k1: int, count: int, device: torch.device | None = None
) -> UInt8[Tensor, " n"]:
    """The operator ``ops.leading_bits``."""
    return _shift(hash_bits(num_coordinates, (k0, k1), device), 32 - count).to(torch.uint8)


def fraction_bits(num_levels: int) -> int:
    """The number F of step 5."""
    return min(24, 30 - bit_packing.code_bits(num_levels))


# --- buckets and their scales --------------------------------------------------------------------------------------


def bucketed(vector: Float[Tensor, " n"], bucket_size: int) -> Float32[Tensor, "buckets size"]:
    """The vector as float32[num_buckets, bucket_size], the last bucket padded with zeros."""
    bucket_size = min(bucket_size, max(vector.numel(), 1))
    count = num_buckets(vector.numel(), bucket_size)
    padded = torch.nn.functional.pad(vector.to(torch.float32), (0, count * bucket_size - vector.numel()))
    return padded.view(count, bucket_size)


def bucket_lengths(
    num_coordinates: int, bucket_size: int, device: torch.device | None = None
) -> Float64[Tensor, " buckets"]:
    """The number of coordinates in every bucket."""
    starts = torch.arange(0, num_coordinates, bucket_size, dtype=torch.float64, device=device)
    return (num_coordinates - starts).clamp_max(bucket_size)


def _halve(values: Float64[Tensor, "rows n"]) -> Float64[Tensor, " rows"]:
    size = values.shape[-1]
    while size > 1:
        size //= 2
        values = values[:, :size] + values[:, size:]
    return values[:, 0]


def tree_sum(values: Float64[Tensor, "rows n"]) -> Float64[Tensor, " rows"]:
    """The sum of step 2 over the last dimension: by halving within blocks of 1024, then over the blocks."""
    rows = values.shape[0]
    size = 1 << max(values.shape[-1] - 1, 0).bit_length()
    values = torch.nn.functional.pad(values, (0, size - values.shape[-1]))
    if size > BLOCK:
        values = _halve(values.reshape(-1, BLOCK)).view(rows, size // BLOCK)
    return _halve(values)


def bucket_scales(
    vector: Float[Tensor, " n"], bucket_size: int, norm: str, multiple: float = 0.0
) -> Float32[Tensor, " scales"]:
    """The scales of step 2: float32[num_buckets], (scale, top) each under quantile; NonFiniteError."""
    buckets = bucketed(vector, bucket_size)
    if not buckets.numel():
        return buckets.new_zeros(0)
    largest = buckets.abs().amax(dim=1)
    if norm == "linf":
        scales = largest
    elif norm == "l2":
        scales = square_root(tree_sum(buckets.to(torch.float64).square())).to(torch.float32)
    elif norm == "rms":
        lengths = bucket_lengths(vector.numel(), bucket_size, vector.device)
        rms = square_root(tree_sum(buckets.to(torch.float64).square()) / lengths).to(torch.float32)
        scales = torch.maximum(largest, rms * torch.tensor(multiple, dtype=torch.float32, device=vector.device))
    else:
        last = vector.numel() - (len(buckets) - 1) * buckets.shape[1]
        low = _lane_quantile(buckets, last, lanes(bucket_size, vector.numel()))
        scales = quantile_scales(low, largest)
    check_scales(scales, norm)
    return torch.where(scales < SMALLEST_NORM, torch.zeros_like(scales), scales)


def quantile_scales(low: Float32[Tensor, " buckets"], largest: Float32[Tensor, " buckets"]) -> Float32[Tensor, " s"]:
    """The scales of step 2 under quantile, (scale, top) each, from the ``q`` and the largest |x| of every bucket."""
    scale = QUANTILE_FACTOR * torch.where(low < SMALLEST_NORM, largest, low)
    scales = torch.stack([scale, largest], dim=1)
    return torch.where(largest[:, None] < SMALLEST_NORM, torch.zeros_like(scales), scales).reshape(-1)


def put(values: Tensor, total: Tensor, *, accumulate: bool) -> None:
    """Write the values into the total, or add them."""
    total.add_(values) if accumulate else total.copy_(values)


def bucket_dots(a: Float32[Tensor, " n"], b: Float32[Tensor, " n"], bucket_size: int) -> Float64[Tensor, " buckets"]:
    """The operator ``ops.bucket_dots``."""
    return tree_sum(bucketed(a, bucket_size).to(torch.float64) * bucketed(b, bucket_size).to(torch.float64))


def _lane_quantile(buckets: Float32[Tensor, "buckets size"], last: int, num_lanes: int) -> Float32[Tensor, " buckets"]:
    """The smallest of the lanes' maxima, but for lanes without one of the last bucket's ``last`` coordinates."""
    padded = torch.nn.functional.pad(buckets.abs(), (0, -buckets.shape[1] % num_lanes))
    maxima = padded.view(len(buckets), -1, num_lanes).amax(dim=1)
    if last < num_lanes:
        maxima[-1, last:] = torch.inf
    return maxima.amin(dim=1)


def normalized(
    vector: Float[Tensor, " n"], scales: Float32[Tensor, " scales"], bucket_size: int
) -> tuple[Float32[Tensor, " n"], Float32[Tensor, " n"] | None]:
    """The coordinates of step 3 in units of their bucket's scale, clamped; and t, where it is not 1 everywhere."""
    buckets = bucketed(vector, bucket_size)
    scale, top = _split(scales, len(buckets))
    inverse = torch.where(scale > 0, 1.0 / scale, torch.zeros_like(scale))
    r = buckets * inverse[:, None]
    if top is None:
        return r.clamp(-1.0, 1.0).reshape(-1)[: vector.numel()], None
    t = torch.where(scale > 0, top * inverse, torch.ones_like(scale))[:, None].expand_as(buckets)
    return torch.minimum(torch.maximum(r, -t), t).reshape(-1)[: vector.numel()], t.reshape(-1)[: vector.numel()]


def _split(scales: Float32[Tensor, " scales"], count: int) -> tuple[Tensor, Tensor | None]:
    if scales.numel() == count:
        return scales, None
    pairs = scales.view(count, 2)
    return pairs[:, 0], pairs[:, 1]


# --- encode --------------------------------------------------------------------------------------------------------


def quantize(
    vector: Float[Tensor, " n"],
    levels: Float32[Tensor, " L"],
    scales: Float32[Tensor, " scales"],
    bucket_size: int,
    key: Key | Words,
    stochastic: bool = True,
    among: Among = ALONE,
) -> Int32[Tensor, " n"]:
    """The code of every coordinate by step 4."""
    r, t = normalized(vector, scales, bucket_size)
    k = torch.bucketize(r, levels[1:-1], right=True, out_int32=True)
    if not stochastic:
        return k
    lower, upper = levels[k], levels[k + 1]
    if t is not None:
        lower = torch.where(k == 0, -t, lower)
        upper = torch.where(k == len(levels) - 2, t, upper)
    q = (r - lower) * (1.0 / (upper - lower))
    return k + (uniforms(vector.numel(), key, vector.device, among) < q)


def quantize_uniform(
    vector: Float[Tensor, " n"],
    num_levels: int,
    scales: Float32[Tensor, " scales"],
    bucket_size: int,
    key: Key | Words,
    among: Among = ALONE,
) -> Int32[Tensor, " n"]:
    """The code of every coordinate by step 5."""
    r, _ = normalized(vector, scales, bucket_size)
    bits = fraction_bits(num_levels)
    half = (num_levels - 1) << (bits - 1)
    noise = _shift(hash_bits(vector.numel(), key, vector.device, among), 32 - bits)
    return ((r * float(half)).to(torch.int32) + half + noise) >> bits


def encode_(
    vector: Tensor,
    levels: Tensor | None,
    num_levels: int,
    scales: Tensor,
    packed: Tensor,
    bucket_size: int,
    norm: str,
    multiple: float,
    packing: int,
    noise: Noise,
    stochastic: bool,
) -> None:
    """The operator ``torch.ops.nuq.encode_``: see ``nuq.kernels.operators.encode_``."""
    scales.copy_(bucket_scales(vector, bucket_size, norm, multiple))
    k0, k1, own, workers = noise
    key, among = (k0, k1), (own, workers)
    if levels is None:
        codes = quantize_uniform(vector, num_levels, scales, bucket_size, key, among)
    else:
        codes = quantize(vector, levels, scales, bucket_size, key, stochastic, among)
    packed.copy_(bit_packing.pack_codes(codes, packing))


# --- decode --------------------------------------------------------------------------------------------------------


def decode_(
    packed: Tensor,
    scales: Tensor,
    levels: Tensor,
    total: Tensor,
    bucket_size: int,
    packing: int,
    accumulate: bool,
    dither: bool,
    k0: int,
    k1: int,
) -> None:
    """The operator ``torch.ops.nuq.decode_``: see ``nuq.kernels.operators.decode_``."""
    n = total.numel()
    codes = bit_packing.unpack_codes(packed, n, len(levels), packing)
    repeats = min(bucket_size, max(n, 1))  # a bucket may be larger than the vector
    scale, top = _split(scales, num_buckets(n, bucket_size))
    values = levels[codes]
    if dither:
        bits = fraction_bits(len(levels))
        noise = _shift(hash_bits(n, (k0, k1), total.device), 32 - bits).to(torch.float32) * 2.0**-bits
        step = torch.tensor(2.0 / (len(levels) - 1), dtype=torch.float32, device=total.device)
        values = values - (noise - 0.5) * step
    values = values * scale.repeat_interleave(repeats)[:n]
    if top is not None:
        ends = top.repeat_interleave(repeats)[:n]
        values = torch.where(codes == 0, -ends, torch.where(codes == len(levels) - 1, ends, values))
    put(values, total, accumulate=accumulate)


# --- rotation ------------------------------------------------------------------------------------------------------


def hadamard_(vector: Tensor, block: int, k0: int, k1: int, inverse: bool) -> None:
    """The operator ``torch.ops.nuq.hadamard_``: see ``nuq.kernels.operators.hadamard_``."""
    n = vector.numel()
    flipped = hash_bits(n, (k0, k1), vector.device) < 0
    if not inverse:
        vector.copy_(torch.where(flipped, -vector, vector))
    whole = n // block * block
    _butterflies(vector[:whole].view(-1, block))
    for start, size in hadamard_blocks(n, block):
        _butterflies(vector[start : start + size].view(1, size))
    if inverse:
        vector.copy_(torch.where(flipped, -vector, vector))


def _butterflies(rows: Float32[Tensor, "rows size"]) -> None:
    size = rows.shape[1]
    distance = 1
    while distance < size:
        pairs = rows.view(-1, size // (2 * distance), 2, distance)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        pairs.copy_(torch.stack([a + b, a - b], dim=2))
        distance *= 2
    rows *= torch.tensor(size**-0.5, dtype=torch.float32, device=rows.device)
