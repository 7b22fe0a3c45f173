"""Checks for gradients that are not finite: they are found in one pass, and named by their parameter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def surely_finite(vectors: Sequence[Tensor]) -> bool:
    """Whether every coordinate is surely finite: a finite sum proves it.

    False may also mean that only the sum overflows.
    """
    return not vectors or bool(torch.isfinite(torch.stack([vector.sum() for vector in vectors])).all())


def non_finite_parameter(gradient: Gradient) -> int | None:
    """The number of the first parameter whose gradient is not finite, or None."""
    return next((number for number, part in enumerate(gradient) if not bool(torch.isfinite(part).all())), None)


def _largest_parameter(gradient: Gradient) -> int:
    return max(
        range(len(gradient)),
        key=lambda number: float(gradient[number].abs().amax()) if gradient[number].numel() else 0.0,
    )


Gradient = Sequence[Tensor]  # one tensor per parameter, in the model's order


def joined(gradient: Gradient) -> Tensor:
    """The gradient as one vector, without a copy where its tensors already lie one after another in memory."""
    first, end = gradient[0], gradient[0].storage_offset()
    memory = first.untyped_storage().data_ptr()
    for part in gradient:
        same = part.untyped_storage().data_ptr() == memory and part.dtype == first.dtype
        if not (same and part.is_contiguous() and part.storage_offset() == end):
            return torch.cat([part.reshape(-1) for part in gradient])
        end += part.numel()
    if end * first.element_size() > first.untyped_storage().nbytes():  # another storage begins where this one does
        return torch.cat([part.reshape(-1) for part in gradient])
    return first.as_strided((end - first.storage_offset(),), (1,))
