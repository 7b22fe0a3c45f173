"""The operators of ``nuq.kernels.operators`` on a GPU: the arguments and the bits of ``nuq.kernels.reference``.

The host side of the Triton kernels.  A call costs one launch.  More are needed by buckets above ``tiles.LARGEST``
(their norm takes a pass of its own), by packings whose buckets end inside a byte (ternary, 9 bits, bucket sizes that
are no multiple of 8: the codes are written first, one to an element, and packed by a second kernel), by the last,
shorter part of a rotation (one program) and by rotations of blocks above ``tiles.BLOCK``, one for each factor of 16.
Encoding waits for the GPU once, to raise NonFiniteError; decoding does so where a code could be no level's.  After such
an error the outputs hold no meaning.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nuq.kernels import bit_packing, reference
from nuq.kernels.cuda.launch import Modules, device_code, on
from nuq.kernels.cuda.tiles import BLOCK, LARGEST, OPTIONS, Tile, power_of_two, rotation_tile, tile
from nuq.kernels.spec import (
    SMALLEST_NORM,
    Noise,
    check_among,
    check_block,
    check_decode,
    check_encode,
    check_scales,
    check_tensor,
    hadamard_blocks,
    lanes,
    last_product,
    num_buckets,
    signed,
)

_COPIED_SCALES = 1 << 16
_RADIX, _COLUMNS = 16, 512  # of outer_kernel: 64 numbers to a thread
_PACK_SIZE = 1024  # bytes that one program of pack_kernel writes


def _check_contiguous(**tensors: Tensor) -> None:
    for what, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{what} with strides {tensor.stride()}: the GPU kernels take contiguous tensors")


# --- encode --------------------------------------------------------------------------------------------------------


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
    """Steps 1 to 7; see ``ops.encode_``."""
    device = device_code()
    if device is None:
        reference.encode_(
            vector, levels, num_levels, scales, packed, bucket_size, norm, multiple, packing, noise, stochastic
        )
        return
    if levels is not None:
        check_tensor(levels, "levels", vector.device, torch.float32, num_levels)
    k0, k1, own, workers = noise
    check_among((own, workers))
    check_encode(vector, num_levels, scales, packed, bucket_size, norm, packing, stochastic, levels is not None)
    table = scales if levels is None else levels  # which the kernel does not read without levels
    _check_contiguous(vector=vector, levels=table, scales=scales, packed=packed)
    n = vector.numel()
    if not n:
        return
    with on(vector):
        large = min(bucket_size, n) > LARGEST
        if large:
            scales.copy_(_large_scales(device, vector, bucket_size, norm, multiple))
        tiles = tile(n, bucket_size, itemsize=vector.itemsize, whole=not large)
        bits, out = _destination(packed, n, bucket_size, packing, num_levels, tiles)
        device.encode.encode_kernel[(tiles.programs,)](
            vector,
            table,
            scales,
            out,
            n,
            multiple,
            *map(signed, (k0, k1, *last_product((own, workers)))),
            BUCKET=_stride(n, bucket_size, tiles),
            NORM=norm,
            LANES=lanes(bucket_size, n) if norm == "quantile" else 1,
            BITS=bits,
            ALIGNED=out.data_ptr() % 4 == 0,
            GIVEN=large,
            L=num_levels,
            UNIFORM=levels is None,
            F=reference.fraction_bits(num_levels) if levels is None else 1,
            STOCHASTIC=stochastic,
            **tiles.constants,
            num_warps=tiles.warps,
            **OPTIONS,
        )
        if out.data_ptr() != packed.data_ptr():
            device.encode.pack_kernel[(-(-packed.numel() // _PACK_SIZE),)](
                out, packed, n, packed.numel(), PACKING=packing, SIZE=_PACK_SIZE, num_warps=4, **OPTIONS
            )
    # The copy waits for the GPU; of a few numbers it is cheaper than the kernels that would look at them there.
    check_scales(scales.cpu() if scales.numel() <= _COPIED_SCALES else scales, norm)


def _stride(n: int, bucket_size: int, tiles: Tile) -> int:
    """The bucket size that kernels are compiled for; of a single bucket, the power of two that holds it."""
    return bucket_size if n > bucket_size else tiles.width * tiles.pieces


def _bytewise(n: int, bucket_size: int, packing: int, tiles: Tile) -> bool:
    """Whether every bucket (and every piece of one) begins on a byte, eight codes to ``packing`` of them."""
    return 1 <= packing <= 8 and tiles.width >= 8 and (bucket_size % 8 == 0 or n <= bucket_size)


def _destination(
    packed: Tensor, n: int, bucket_size: int, packing: int, num_levels: int, tiles: Tile
) -> tuple[int, Tensor]:
    """The output of encode_kernel: (bits of a packed code, or 0 for one element per code; the tensor)."""
    if _bytewise(n, bucket_size, packing, tiles):
        return packing, packed
    if packing == 8:
        return 0, packed
    if packing == 16 and packed.data_ptr() % 2 == 0:
        return 0, packed.view(torch.int16)
    codes = torch.empty(n, dtype=torch.uint8 if num_levels <= 256 else torch.int16, device=packed.device)
    return (8 if num_levels <= 256 and _bytewise(n, bucket_size, 8, tiles) else 0), codes


def _large_scales(device: Modules, vector: Tensor, bucket_size: int, norm: str, multiple: float) -> Tensor:
    """The scales of step 2 for buckets above LARGEST: partial sums and maxima by a kernel, the rest by PyTorch."""
    n = vector.numel()
    buckets = num_buckets(n, bucket_size)
    tiles = tile(n, bucket_size, itemsize=vector.itemsize, whole=False)
    num_lanes = lanes(bucket_size, n) if norm == "quantile" else 1
    blocks = power_of_two(min(bucket_size, n)) // BLOCK
    with_sums, with_maxima = norm in ("l2", "rms"), norm != "l2"
    sums = torch.zeros(buckets * blocks if with_sums else 1, dtype=torch.float64, device=vector.device)
    maxima = torch.empty(
        buckets * tiles.pieces * num_lanes if with_maxima else 1, dtype=torch.int32, device=vector.device
    )
    device.encode.partial_kernel[(tiles.programs,)](
        vector,
        sums,
        maxima,
        n,
        BUCKET=_stride(n, bucket_size, tiles),
        LANES=num_lanes,
        SUMS=with_sums,
        MAXIMA=with_maxima,
        BLOCKS=blocks,
        **tiles.constants,
        num_warps=tiles.warps,
        **OPTIONS,
    )
    if norm == "l2":
        scales = halved(sums.view(buckets, blocks)).sqrt().to(torch.float32)
    else:
        # The bits of |x| are ordered as the numbers are, NaN above all.
        lane_maxima = maxima.view(buckets, tiles.pieces, num_lanes).amax(dim=1)
        largest = lane_maxima.amax(dim=1).view(torch.float32)
        if norm == "linf":
            scales = largest
        elif norm == "rms":
            lengths = reference.bucket_lengths(n, bucket_size, vector.device)
            rms = (halved(sums.view(buckets, blocks)) / lengths).sqrt().to(torch.float32)
            scales = torch.maximum(largest, rms * torch.tensor(multiple, dtype=torch.float32, device=vector.device))
        else:
            last = n - (buckets - 1) * bucket_size
            lane_maxima[-1, last:] = 0x7F800000  # lanes without a coordinate count as infinite
            low = lane_maxima.amin(dim=1).view(torch.float32)
            scales = reference.quantile_scales(low, largest)
    return torch.where(scales < SMALLEST_NORM, torch.zeros_like(scales), scales)


def halved(sums: Tensor) -> Tensor:
    """The upper part of step 2's tree: float64[rows, 2^k] -> [rows]."""
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


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
    """Step 8; see ``ops.decode_``."""
    device = device_code()
    if device is None:
        reference.decode_(packed, scales, levels, total, bucket_size, packing, accumulate, dither, k0, k1)
        return
    check_decode(total, packed, scales, levels, bucket_size, packing)
    _check_contiguous(total=total, packed=packed, scales=scales, levels=levels)
    n, num_levels = total.numel(), levels.numel()
    if not n:
        return
    checked = packing == bit_packing.TERNARY or num_levels < 1 << packing
    damaged = torch.zeros(1, dtype=torch.int32, device=total.device) if checked else scales
    with on(total):
        tiles = tile(n, bucket_size, whole=False)
        device.decode.decode_kernel[(tiles.programs,)](
            packed,
            scales,
            levels,
            total,
            damaged,
            n,
            packed.numel(),
            signed(k0),
            signed(k1),
            BUCKET=_stride(n, bucket_size, tiles),
            L=num_levels,
            PACKING=packing,
            GROUPS=packing < 8 and _bytewise(n, bucket_size, packing, tiles),
            ALIGNED=packed.data_ptr() % 4 == 0,
            CHECKED=checked,
            ENDS=scales.numel() != num_buckets(n, bucket_size),
            DITHER=dither,
            STEP=2.0 / (num_levels - 1),
            F=reference.fraction_bits(num_levels),
            ACCUMULATE=accumulate,
            ROWS=tiles.rows,
            PIECES=tiles.pieces,
            WIDTH=tiles.width,
            num_warps=min(tiles.warps, 4),
            **OPTIONS,
        )
    if checked and int(damaged):
        raise ValueError(f"a code beyond {num_levels} levels: the codes are damaged")


# --- rotation ------------------------------------------------------------------------------------------------------


def hadamard_(vector: Tensor, block: int, k0: int, k1: int, inverse: bool) -> None:
    """Step 9; see ``ops.hadamard_``."""
    device = device_code()
    if device is None:
        reference.hadamard_(vector, block, k0, k1, inverse)
        return
    n = vector.numel()
    check_tensor(vector, "a vector", vector.device, torch.float32)
    _check_contiguous(vector=vector)
    check_block(block)
    # only the binary digits count of a block that the vector does not fill
    inner = min(block, power_of_two(n + 1), BLOCK)
    whole = n // inner * inner
    outer = block > inner and whole > 0

    def rotate_inner(size: int, programs: int, factor: float, *, tail: bool) -> None:
        """Rotate over all distances within blocks of at most BLOCK; a tail knows its factors itself."""
        layout = rotation_tile(inner, size, tail=tail)
        flips: dict[str, Any] = {"FLIP_FIRST": not inverse, "FLIP_LAST": inverse and (tail or not outer)}
        given, warps = (vector, n, signed(k0), signed(k1), factor), min(layout["NB"], 16)
        device.rotate.hadamard_kernel[(programs,)](
            *given, BLOCK=inner, **flips, TAIL=tail, **layout, num_warps=warps, **OPTIONS
        )

    with on(vector):
        if whole:
            size = max(inner, min(power_of_two(n), 4096))
            rotate_inner(size, -(-whole // size), 1.0 if outer else inner**-0.5, tail=False)
        if whole < n:
            rotate_inner(inner, 1, 1.0, tail=True)
        if outer:
            _rotate_outer(device, vector, block, k0, k1, inverse)


def _rotate_outer(device: Modules, vector: Tensor, block: int, k0: int, k1: int, inverse: bool) -> None:
    """Rotate over the distances from BLOCK on: in the whole blocks, and in the large ones of the rest."""
    n = vector.numel()
    rest = [(start, size, 1) for start, size in hadamard_blocks(n, block) if size >= BLOCK]
    spans = [(0, block, n // block), *rest]
    for start, size, count in spans:
        distance, last = BLOCK, count == 0
        while not last:
            radix = min(size // distance, _RADIX)
            last = distance * radix == size
            device.rotate.outer_kernel[(count * size // (radix * _COLUMNS),)](
                vector,
                start,
                signed(k0),
                signed(k1),
                size**-0.5 if last else 1.0,
                D=distance,
                RADIX=radix,
                COLUMNS=_COLUMNS,
                FLIP_LAST=inverse and last,
                num_warps=4,
                **OPTIONS,
            )
            distance *= radix
