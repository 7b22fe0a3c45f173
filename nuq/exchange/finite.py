"""Checks for numbers that are not finite: they are found in one pass, and named by the tensor that they are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def surely_finite(vectors: Sequence[Tensor]) -> bool:
    """Whether a finite sum proves every coordinate finite; False may also mean that only the sum overflows."""
    return not vectors or bool(torch.isfinite(torch.stack([vector.sum() for vector in vectors])).all())


def first_not_finite(tensors: Iterable[Tensor]) -> int | None:
    """The number of the first of these tensors that is not finite, or None."""
    return next((number for number, part in enumerate(tensors) if not bool(torch.isfinite(part).all())), None)


def largest(tensors: Sequence[Tensor]) -> int:
    """The number of the tensor with the largest coordinate by magnitude."""
    sizes = [float(tensor.abs().amax()) if tensor.numel() else 0.0 for tensor in tensors]
    return max(range(len(tensors)), key=sizes.__getitem__)
