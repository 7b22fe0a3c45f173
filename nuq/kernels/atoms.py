r"""The mathematics of ATOMO: a matrix or vector as a sum of atoms, of which a few are kept at random.

The expectation of what is kept is the whole.

``A = sum_i lambda_i a_i`` with ``|a_i| = 1``; an atom that is kept, with probability p_i, counts ``1 / p_i`` times.
For atoms that are orthogonal to one another the expected squared error is ``sum_i lambda_i^2 (1 / p_i - 1)``, whatever
the joint distribution of what is kept.

**Probabilities** (``water_level``): the least error under ``sum_i p_i <= budget`` has
``p_i = min(1, |lambda_i| / level)``: every atom above the level is certain, and every other one counts ``level`` when
it is kept (Wang et al., NeurIPS 2018, arXiv 1806.04090, Algorithm 1 and Theorem 5).  An atom of size zero is never
kept.

**Which are kept** (``drawn``): the paper tosses a coin for each; here one random number indices equally spaced marks on
the line of the probabilities laid end to end (systematic sampling: Madow, 1949).  Each atom is kept as probably as
before, and their number is the budget, so it is never zero and a message has a bound.  The paper's code draws again
where nothing was kept, which biases.  Entries (``tossed``) are many, and have their coins.

**Atoms of a matrix** of m rows and n >= m columns:

- ``exact``: singular values and left vectors from the eigenvectors U of ``A A^T`` in float64, 9 times as fast as an
  SVD; the right ones as ``A^T u_i``.  ``U U^T = 1`` to 1e-15, so the atoms sum to A however well the singular values
  are separated.
- ``randomized`` (Halko, Martinsson and Tropp, 2011, Algorithms 4.3 and 5.1, one power iteration, keyed signs as the
  test matrix): ``A = Q Q^T A + R`` with few columns in Q.  The singular atoms of the first term and the rows of R,
  ``e_j R_j^T`` of size ``|R_j|``, share one budget, so that nothing is left out: unbiased as the exact form, which the
  sketch alone would not be.  This is ours, not the paper's.  For a flat spectrum rows cost hardly more error than
  singular atoms: both sums of sizes are at most ``sqrt(m) |R|``.

Atoms below 2^-22 of the largest are rounding errors of float32 and count as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float32, Float64, Int32, Int64
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.kernels import operators, reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import Key, Words
from nuq.native import atoms as kernels

OVERSAMPLED = 5  # columns of Q beyond the budget: Halko et al. advise 5 to 10
RESOLUTION = 2.0**-22
_EXACT_UP_TO = 64  # rows: a larger matrix is faster by the randomized form
_BLOCK = 128  # rows of the Gram matrix at a time


# --- probabilities -------------------------------------------------------------------------------------------------


def water_level(largest: Float64[Tensor, " k"], beyond: float, budget: float) -> float:
    """The level above which atoms are certain: ``p_i = min(1, size_i / level)``; 0 where all nonzero atoms are.

    largest: the ceil(budget) largest sizes or more, falling.  beyond: the sum of all others.  budget: above 0.
    """
    assert budget > 0
    left = budget - torch.arange(largest.numel(), dtype=torch.float64, device=largest.device)
    masses = largest.flip(0).cumsum(0).flip(0) + beyond
    certain = int((left * largest > masses).cumprod(0).sum())
    mass = float(masses[certain]) if certain < largest.numel() else beyond
    return max(mass, 0.0) / (budget - certain) if budget > certain else 0.0


def keep_probabilities(sizes: Float64[Tensor, " n"], budget: float) -> Float64[Tensor, " n"]:
    """The probabilities of least expected error for sizes >= 0, whose sum is the budget or the number of nonzeros."""
    level = water_level(sizes.sort(descending=True).values, 0.0, budget)
    return (sizes / level).clamp(max=1.0) if level > 0 else (sizes > 0).double()


def drawn(p: Float64[Tensor, " n"], uniform: float) -> Int64[Tensor, " kept"]:
    """The atoms that systematic sampling keeps, ascending: floor or ceil of ``sum p`` of them.

    uniform: in [0, 1), of at most 32 bits.
    """
    # certain ones first: their ends are whole numbers, which marks cannot miss
    order = p.argsort(descending=True, stable=True)
    ends = p[order].cumsum(0)
    total = float(ends[-1]) if p.numel() else 0.0
    marks = uniform + torch.arange(math.ceil(total), dtype=torch.float64, device=p.device)
    return order[torch.searchsorted(ends, marks[marks < total], right=True)].unique()


def tossed(x: Float32[Tensor, " n"], level: float, words: Words) -> Int32[Tensor, " kept"]:
    """The coordinates kept, ascending, each by a coin: ``h 2^-32 level < |x|``, h of ``nuq.kernels.spec``, step 6."""
    if in_cpp(x):
        return torch.from_numpy(kernels.tossed(x.numpy(), level * 2.0**-32, words, torch.get_num_threads()))
    h = reference.hash_bits(x.numel(), words, x.device).to(torch.int64) & 0xFFFFFFFF
    return (h.double() * (level * 2.0**-32) < x.abs().double()).nonzero().view(-1).to(torch.int32)


# --- matrices ------------------------------------------------------------------------------------------------------


def matrix_shape(shape: Sequence[int], form: str = "rows") -> tuple[int, int]:
    """The rows and columns of a tensor of this shape, read in its own order; a vector becomes nearly square.

    form: rows: o x (i h w), one row a filter; pairs: (o i / 2) x (2 h w), as the paper's code (o i x h w where o i is
    odd).
    """
    size = math.prod(shape)
    if len(shape) < 2 or not size:
        return _folded(size)
    if form == "rows" or size == shape[0] * shape[1]:
        return shape[0], size // shape[0]
    pairs = shape[0] * shape[1]
    return (pairs // 2, size // pairs * 2) if pairs % 2 == 0 else (pairs, size // pairs)


@cache
def _folded(size: int) -> tuple[int, int]:
    """The sides of a nearly square matrix for ``size`` numbers.

    One is a divisor near sqrt(size), at least 2/3 of it; where there is none, sqrt(size) rows, padded by zeros.
    """
    root = max(math.isqrt(size), 1)
    rows = next((rows for rows in range(root, 2 * root // 3, -1) if size % rows == 0), root)
    return rows, -(-size // rows)


@dataclass(frozen=True)
class Kept:
    """An estimate of a matrix: ``left^T right``, and ``rows`` to be added at ``indices``.

    left: float32[k, m]; right: float32[k, n], sizes and 1 / p_i in it; indices: int64[q], ascending; rows: float32[q,
    n].
    """

    left: Tensor
    right: Tensor
    indices: Tensor
    rows: Tensor

    def check(self, error: type[Exception] = NonFiniteError) -> Kept:
        """Check the estimate: the error where it could be beyond float32."""
        largest = float(self.left.double().abs().amax(1) @ self.right.double().abs().amax(1)) if len(self.left) else 0.0
        largest += float(self.rows.abs().max()) if self.rows.numel() else 0.0
        if not largest < torch.finfo(torch.float32).max:
            raise error(f"atoms that make coordinates up to {largest:.4g}: the estimate overflows float32")
        return self


def estimate(matrix: Float32[Tensor, "m n"], budget: int, how: str, key: Key) -> Kept:
    """The atoms kept of a matrix with m <= n; how: exact, randomized, or auto: exact up to 64 rows; NonFiniteError."""
    m = matrix.shape[0]
    flat = matrix.reshape(-1) if matrix.is_contiguous() else matrix.t().reshape(-1)
    largest = float(operators.bucket_scales(flat, flat.numel(), "linf")[0])
    if not largest:
        empty = matrix[:0]
        return Kept(matrix[:0, :m], empty, torch.empty(0, dtype=torch.int64, device=matrix.device), empty)
    uniform = key.of("atoms").words()[0] * 2.0**-32
    if how == "exact" or (how == "auto" and m <= _EXACT_UP_TO):
        return _exact(matrix, budget, uniform).check()
    return _randomized(matrix, budget, key.of("range").words(), uniform, _unit(largest)).check()


def _exact(matrix: Tensor, budget: int, uniform: float) -> Kept:
    wide = matrix.double()
    values, vectors = torch.linalg.eigh(_gram(wide))
    p = keep_probabilities(_without_noise(values.clamp(min=0.0).sqrt()), budget)
    kept = drawn(p, uniform)
    left = vectors.T[kept]
    empty = torch.empty(0, matrix.shape[1], dtype=torch.float32, device=matrix.device)
    return Kept(left.float(), (left @ wide / p[kept, None]).float(), kept[:0], empty)


def _gram(wide: Tensor) -> Tensor:
    """The lower triangle of ``wide wide^T``, which is all that ``eigh`` reads, and some of the rest."""
    m = len(wide)
    gram = wide.new_zeros(m, m)
    for first in range(0, m, _BLOCK):
        last = min(first + _BLOCK, m)
        torch.mm(wide[first:last], wide[:last].T, out=gram[first:last, :last])
    return gram


def _unit(largest: float) -> float:
    """A power of two that brings the largest coordinate near 1, normal as its product with unit vectors is."""
    return 2.0 ** min(max(-math.frexp(largest)[1], -100), 126)


def _randomized(matrix: Tensor, budget: int, words: Words, uniform: float, unit: float) -> Kept:
    """The randomized estimate; all products are in terms of ``unit * matrix``, so that no square overflows."""
    m, n = matrix.shape
    columns = min(budget + OVERSAMPLED, m)
    signs = operators.leading_bits(n * columns, words, 1, matrix.device).to(torch.float32)
    q = _orthonormal(matrix @ ((2 * signs - 1) * unit).view(n, columns))
    q = _orthonormal(matrix @ (matrix.T @ (q * unit) * unit))
    b = (q * unit).T @ matrix
    less = (q @ b).sub_(matrix, alpha=unit)  # -R
    wide = b.double()
    values, vectors = torch.linalg.eigh(wide @ wide.T)
    sizes = torch.cat([values.clamp(min=0.0).sqrt(), torch.linalg.vector_norm(less, dim=1).double()])
    p = keep_probabilities(_without_noise(sizes), budget)
    kept = drawn(p, uniform)
    of_sketch, indices = kept[kept < columns], kept[kept >= columns] - columns
    weights = 1 / (p * unit)
    inner = vectors.T[of_sketch]
    right = inner @ wide * weights[of_sketch, None]
    rows = less[indices].double() * -weights[indices + columns, None]
    return Kept((inner @ q.double().T).float(), right.float(), indices, rows.float())


def product_sum(left: Float32[Tensor, "k m"], right: Float32[Tensor, "k n"]) -> Float32[Tensor, "m n"]:
    """The product ``left^T right``, added in the order of k, one rounding an operation: the same bits everywhere."""
    if in_cpp(left):
        return torch.from_numpy(
            kernels.product_sum(left.contiguous().numpy(), right.contiguous().numpy(), torch.get_num_threads())
        )
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float32, device=left.device)
    for down, along in zip(left, right, strict=True):
        total += down[:, None] * along
    return total


def restored(kept: Kept, transposed: bool) -> Float32[Tensor, "rows columns"]:
    """The estimate, or its transpose."""
    if transposed:
        matrix = product_sum(kept.right, kept.left)
        matrix[:, kept.indices] += kept.rows.T
    else:
        matrix = product_sum(kept.left, kept.right)
        matrix[kept.indices] += kept.rows
    return matrix


def _without_noise(sizes: Tensor) -> Tensor:
    return torch.where(sizes > RESOLUTION * sizes.max(), sizes, 0.0)


def _orthonormal(y: Tensor) -> Tensor:
    """An orthonormal basis of the columns, float32."""
    return torch.linalg.qr(y.double()).Q.float()
