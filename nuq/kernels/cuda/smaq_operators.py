"""SmaQ (``nuq.kernels.smaq``) on a GPU: the arguments and the bits of ``nuq.kernels.smaq_reference``.

The host side of the Triton kernels.  PyTorch does the small parts: the sums over blocks, and the place where each block
begins.  ``measure`` waits for the GPU once (for its numbers), ``encode`` once (for the size of the message), ``decode``
once (for whether it was damaged).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nuq.kernels import smaq_reference
from nuq.kernels.cuda.launch import device_code, on
from nuq.kernels.cuda.operators import halved
from nuq.kernels.cuda.tiles import OPTIONS, power_of_two
from nuq.kernels.smaq_reference import BLOCK, LANES, layout
from nuq.kernels.spec import last_product, signed

_MEASURED = 8  # blocks that one program measures: a lane of one to each thread
NUMBERS = ("factor", "mean", "inverse", "threshold", "small_slope", "large_slope", "small_most", "large_most")


def measure(vector: Tensor, pivot: float) -> tuple[float, float, int, float, float]:
    """Measure a vector by step 1: sum, squares, zeros, lowest, highest."""
    device = device_code()
    if device is None:
        return smaq_reference.measure(vector, pivot)
    n, blocks = vector.numel(), -(-vector.numel() // BLOCK)
    found = torch.zeros(5, power_of_two(blocks), dtype=torch.float64, device=vector.device)
    with on(vector):
        device.smaq.measure_kernel[(-(-blocks // _MEASURED),)](
            vector, pivot, found, n, found.shape[1], BLOCKS=_MEASURED, LANES=LANES, num_warps=4, **OPTIONS
        )
    total, squares, zeros, lowest, highest = torch.cat([halved(found[:3]), found[3:, :blocks].amin(1)]).tolist()
    return total, squares, int(zeros), lowest, -highest


def encode(vector: Tensor, codes: Tensor, outliers: Tensor, **fields: Any) -> tuple[int, Callable[[Tensor], None]]:
    """The same as ``nuq.native.smaq.encode``."""
    device = device_code()
    if device is None:
        return smaq_reference.encode(vector, codes, outliers, **fields)
    n, grid, kind = vector.numel(), (len(codes),), _kind(fields)
    room = torch.empty(len(codes) * device.smaq.ROOM.value, dtype=torch.uint8, device=vector.device)
    with on(vector):
        device.smaq.code_kernel[grid](
            vector,
            codes,
            outliers,
            room,
            n,
            *(fields[name] for name in NUMBERS),
            *map(signed, (fields["k0"], fields["k1"], *last_product((fields["own"], fields["workers"])))),
            -1 if fields["workers"] > 1 else 0,
            STOCHASTIC=fields["stochastic"],
            **kind,
            num_warps=8,
            **OPTIONS,
        )
    found = layout(n, codes, outliers, fields)
    starts = found.ends - found.sizes.sum(0)

    def write(to: Tensor) -> None:
        with on(to):
            device.smaq.join_kernel[grid](room, codes, outliers, starts, to, n, **kind, num_warps=4, **OPTIONS)

    return int(found.ends[-1]), write


def decode(data: Tensor, codes: Tensor, outliers: Tensor, table: Tensor, total: Tensor, **fields: Any) -> bool:
    """The same as ``nuq.native.smaq.decode``."""
    device = device_code()
    if device is None:
        return smaq_reference.decode(data, codes, outliers, table, total, **fields)
    n, grid, kind = total.numel(), (len(codes),), _kind(fields)
    found = layout(n, codes, outliers, fields)
    starts = found.ends - found.sizes.sum(0)
    damaged = (~found.sound | (found.ends[-1] != data.numel())).to(torch.int32).view(1)
    with on(total):
        checked = {name: kind[name] for name in ("MASKED", "CONSTANT")}
        device.smaq.check_kernel[grid](data, starts, codes, outliers, damaged, n, **checked, num_warps=4, **OPTIONS)
        # The kernel waits for no answer: where there is damage, the kernel leaves the total as it was.
        # Triton 3.9 spills registers with 8, Triton 3.7 those of the others with 16
        warps = 16 if kind["CONSTANT"] else 8
        device.smaq.decode_kernel[grid](
            data,
            starts,
            codes,
            table,
            total,
            damaged,
            n,
            **kind,
            ACCUMULATE=fields["accumulate"],
            num_warps=warps,
            **OPTIONS,
        )
    return not int(damaged)


def _kind(fields: dict[str, Any]) -> dict[str, Any]:
    """The kind of vector for which kernels are compiled."""
    return {name.upper(): fields[name] for name in ("masked", "constant", "low_bits", "extra_bits")}
