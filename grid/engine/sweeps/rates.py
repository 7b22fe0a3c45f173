"""Settings at which methods of different kinds send about as many bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

# (rows, columns) of every parameter: a kernel's as (outputs, all else), a vector's as (1, all)
Matrices = Sequence[tuple[int, int]]
WHOLE = 3  # a matrix whose factors take more than one in so many of its bits travels whole (nuq.compressors.atomo)


def cifar_resnet(depth: int) -> Matrices:
    """The shapes of the parameters of a CIFAR ResNet with batch norm, whose shortcuts have no weights."""
    found: list[tuple[int, int]] = [(10, 64), (1, 10)]
    inputs = 3
    for width, convolutions in ((16, 1), (16, (depth - 2) // 3), (32, (depth - 2) // 3), (64, (depth - 2) // 3)):
        for _ in range(convolutions):
            found += [(width, 9 * inputs), (1, width), (1, width)]
            inputs = width
    return found


def cnn_of_digits() -> Matrices:
    """The shapes of the parameters of the small cnn for 8x8 digits."""
    return [(16, 9), (1, 16), (32, 144), (1, 32), (64, 512), (1, 64), (10, 64), (1, 10)]


def sparse_bits(ratio: float, indices: bool = True) -> float:
    """The bits per coordinate when a share ``ratio`` of values is sent: 32 ratio + H(ratio).

    Their indices take the fewest bits that random indices take.
    """
    entropy = -sum(p * math.log2(p) for p in (ratio, 1.0 - ratio) if p > 0)
    return 32.0 * ratio + (entropy if indices else 0.0)


def sparse_ratio(bits: float, indices: bool = True) -> float:
    """The ratio below one half that takes so many bits per coordinate, to three digits."""
    low, high = 0.0, 0.5
    if not 0 < bits <= sparse_bits(high, indices):
        raise ValueError(
            f"bits={bits}: must be above 0 and at most {sparse_bits(high, indices):g}, those of half of the values"
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sparse_bits(middle, indices) < bits else (low, middle)
    return float(f"{high:.3g}")


def factor_bits(matrices: Matrices, rank: int, value_bits: float = 32.0) -> float:
    """The bits per coordinate of so many singular vectors and values of every matrix, of ``value_bits`` each.

    A matrix of which they take more than a third travels whole, with 32 bits a value.
    """
    sent = 0.0
    for rows, columns in matrices:
        factors, whole = value_bits * rank * (rows + columns + 1), 32.0 * rows * columns
        sent += factors if WHOLE * factors <= whole else whole
    return sent / sum(rows * columns for rows, columns in matrices)
