"""Matrices and their low-rank factors: the computations of PowerSGD.

Plain PyTorch on any device, C++ where it is built: the same bits on the CPU.  A matrix is a float32 vector of ``size``
coordinates in rows of ``columns``; the last row may be shorter, its missing coordinates count as zeros.  Factors are
rows: ``left`` float32[rank, rows], ``right`` float32[rank, columns].  Every product and every sum is rounded once to
float32, in this order, whatever the number of threads:

- ``left_product``, sum over j of matrix[i, j] right[k, j]: 32 lanes, lane l taking j = l mod 32 in ascending order;
  then the lanes by halving, ``s[l] += s[l + h]`` for h = 16 .. 1;
- ``right_product``, sum over i of matrix[i, j] left[k, i]: blocks of 256 rows, each in ascending order, then the
  blocks;
- ``outer_product``, sum over k of left[k, i] right[k, j], in ascending order.

On a GPU they are PyTorch's matrix products, whose bits are the same on equal devices only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nuq.kernels.cpu import in_cpp
from nuq.kernels.host import numpy_of
from nuq.kernels.reference import hash_bits, put
from nuq.kernels.spec import Key
from nuq.native import low_rank as compiled

_LANES, _BLOCK = 32, 256
_DEPENDENT = 1e-5  # of its own norm that a vector has left beside the others: noise of float32


def columns_of(shape: Sequence[int]) -> int:
    """The number of columns of a tensor as a matrix.

    From two dimensions on the first one is the rows (a layer's outputs) and all others are the columns, as in the
    paper; a flat vector becomes as nearly square as can be.  0 for an empty tensor.
    """
    size = math.prod(shape)
    if len(shape) >= 2:
        return size // shape[0] if size else 0
    return math.isqrt(size - 1) + 1 if size else 0


def num_rows(size: int, columns: int) -> int:
    """The number of rows of a matrix of ``size`` coordinates."""
    return -(-size // columns)


def saved(size: int, columns: int, rank: int) -> bool:
    """Whether the factors are fewer numbers than the matrix."""
    return size > 0 and rank * (num_rows(size, columns) + columns) < size


def _in_cpp(*tensors: Tensor) -> bool:
    for tensor in tensors:
        assert tensor.dtype == torch.float32 and tensor.is_contiguous()
    return in_cpp(tensors[0])


def _padded(matrix: Tensor, columns: int) -> Tensor:
    """The matrix float32[rows, columns], padded with zeros."""
    missing = -matrix.numel() % columns
    return (torch.nn.functional.pad(matrix, (0, missing)) if missing else matrix).view(-1, columns)


def left_product(matrix: Tensor, columns: int, right: Tensor) -> Tensor:
    """The product M Q: float32[size] and float32[rank, columns] -> float32[rank, rows]."""
    size, rank = matrix.numel(), right.shape[0]
    if _in_cpp(matrix, right):
        left = torch.empty(rank, num_rows(size, columns), dtype=torch.float32, device="cpu")
        compiled.left_product(
            matrix.data_ptr(), size, columns, right.data_ptr(), rank, left.data_ptr(), torch.get_num_threads()
        )
        return left
    rows = _padded(matrix, columns)
    if matrix.device.type != "cpu":
        return right @ rows.T
    missing = -columns % _LANES
    lanes = torch.nn.functional.pad(rows, (0, missing)).view(rows.shape[0], -1, _LANES)
    factors = torch.nn.functional.pad(right, (0, missing)).view(rank, 1, -1, _LANES)
    sums = torch.zeros(rank, rows.shape[0], _LANES, dtype=torch.float32, device="cpu")
    for number in range(lanes.shape[1]):
        sums += lanes[:, number] * factors[:, :, number]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0].contiguous()


def right_product(matrix: Tensor, columns: int, left: Tensor) -> Tensor:
    """The product M^T P: float32[size] and float32[rank, rows] -> float32[rank, columns]."""
    size, rank = matrix.numel(), left.shape[0]
    if _in_cpp(matrix, left):
        right = torch.empty(rank, columns, dtype=torch.float32, device="cpu")
        compiled.right_product(
            matrix.data_ptr(), size, columns, left.data_ptr(), rank, right.data_ptr(), torch.get_num_threads()
        )
        return right
    rows = _padded(matrix, columns)
    if matrix.device.type != "cpu":
        return left @ rows
    total = torch.zeros(rank, columns, dtype=torch.float32, device="cpu")
    for start in range(0, rows.shape[0], _BLOCK):
        block = torch.zeros(rank, columns, dtype=torch.float32, device="cpu")
        for i in range(start, min(start + _BLOCK, rows.shape[0])):
            block += rows[i] * left[:, i : i + 1]
        total += block
    return total


def outer_product(left: Tensor, right: Tensor, total: Tensor, *, accumulate: bool = False) -> None:
    """Write P Q^T into ``total`` float32[size], or add it."""
    size, (rank, columns) = total.numel(), right.shape
    if _in_cpp(total, left, right):
        threads = torch.get_num_threads()
        compiled.outer_product(
            left.data_ptr(), right.data_ptr(), size, columns, rank, total.data_ptr(), accumulate, threads
        )
        return
    if total.device.type == "cpu":
        product = left[0, :, None] * right[0]
        for k in range(1, rank):
            product += left[k, :, None] * right[k]
    else:
        product = left.T @ right
    product = product.reshape(-1)[:size]
    put(product, total, accumulate=accumulate)


def orthonormal(factor: Tensor) -> Tensor:
    """The rows of ``factor`` float32[rank, length], made orthonormal one after another.

    The method is Gram-Schmidt, twice, in float64.  A row that lies in the span of those before it, or is zero, becomes
    zero.  Computed in NumPy's order of sums by one thread, on the CPU also for a GPU's factors: the same bits on all
    ranks of one kind of machine.
    """
    wide = numpy_of(factor, "factor").astype(np.float64)
    for k, row in enumerate(wide):
        size = _norm(row)
        for _ in range(2):
            for before in wide[:k]:
                row -= (before * row).sum() * before
        left = _norm(row)
        row *= 1 / left if left > _DEPENDENT * size else 0.0
    return torch.from_numpy(wide.astype(np.float32)).to(factor.device)


def _norm(row: np.ndarray) -> float:
    """The norm without overflow or underflow: the squares of float32 numbers are float64 numbers."""
    return float(np.sqrt((row * row).sum()))


def start(columns: int, rank: int, key: Key, device: torch.device | None = None) -> Tensor:
    """Random orthonormal rows float32[rank, columns], from the key alone, to begin the first power iteration."""
    return orthonormal(_random(columns, rank, key, device))


def _random(columns: int, rank: int, key: Key, device: torch.device | None) -> Tensor:
    """Uniform random numbers in [-1, 1)."""
    return (hash_bits(rank * columns, key.of("start"), device).to(torch.float32) * 2.0**-31).view(rank, columns)


def started_again(right: Tensor, key: Key) -> Tensor:
    """Orthonormal rows that span the last step's ``right``; random rows replace what it lacks of its rank."""
    found = orthonormal(right)
    missing = ~found.any(dim=1)
    if not bool(missing.any()):
        return found
    return orthonormal(torch.where(missing[:, None], _random(right.shape[1], right.shape[0], key, right.device), found))
