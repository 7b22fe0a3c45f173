"""Settings at which methods of different kinds send about as many bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

Matrices = Sequence[tuple[int, int]]  # (rows, columns) of every weight, a kernel's as (outputs, all else)


def cifar_resnet(depth: int) -> Matrices:
    """Of a CIFAR ResNet, whose shortcuts have no weights."""
    blocks, found, inputs = (depth - 2) // 6, [(16, 27)], 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            found += [(width, 9 * inputs), (width, 9 * width)]
            inputs = width
    return [*found, (10, 64)]


def cnn_of_digits() -> Matrices:
    """Of the small cnn for 8x8 digits."""
    return [(16, 9), (32, 144), (64, 512), (10, 64)]


def sparse_bits(ratio: float, value_bits: float = 32.0, indices: bool = True) -> float:
    """Bits per coordinate of a share ``ratio`` of values, their places in the fewest bits that random places take: ratio v + H(ratio)."""
    entropy = -sum(p * math.log2(p) for p in (ratio, 1.0 - ratio) if p > 0)
    return ratio * value_bits + (entropy if indices else 0.0)


def sparse_ratio(bits: float, value_bits: float = 32.0, indices: bool = True) -> float:
    """The ratio below one half that takes so many bits per coordinate, to three digits."""
    low, high = 0.0, 0.5
    if not 0 < bits <= sparse_bits(high, value_bits, indices):
        raise ValueError(
            f"bits={bits}: must be above 0 and at most {sparse_bits(high, value_bits, indices):g}, those of half of the values"
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sparse_bits(middle, value_bits, indices) < bits else (low, middle)
    return float(f"{high:.3g}")


def factor_bits(matrices: Matrices, rank: float, value_bits: float = 32.0) -> float:
    """Bits per coordinate of so many singular vectors and values of every matrix."""
    sent = sum(min(rank, *shape) * (sum(shape) + 1) for shape in matrices)
    return value_bits * sent / sum(rows * columns for rows, columns in matrices)
