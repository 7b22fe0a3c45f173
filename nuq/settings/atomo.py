"""Settings of ATOMO: which atoms a gradient is made of, and how many of them travel."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting

_SVD, _ENTRIES = ("atoms", "svd"), ("atoms", "entries")


@dataclass
class ATOMO:
    """Atoms sent at random, the likelier the larger, so that the error is the least that a budget of atoms allows."""

    scope: str = setting(
        "tensor",
        "tensor: each parameter by itself, as a matrix of its own shape; model: the gradient is one flat vector, "
        "folded into a square",
        choices=("model", "tensor"),
    )
    atoms: str = setting(
        "svd",
        "svd: what a singular value and its two vectors make, of each parameter as a matrix; entries: the coordinates",
        choices=("svd", "entries"),
    )
    svd_rank: int = setting(
        3, "budget: so many of a matrix's atoms travel; the paper's tasks use 1 to 4", low=1, high=2**16, read_if=_SVD
    )
    svd: str = setting(
        "auto",
        "exact: all singular values; randomized: those of a sketch of a few more than the budget, what it leaves "
        "being sent by rows, also unbiased; auto: exact up to 64 rows or columns",
        choices=("auto", "exact", "randomized"),
        read_if=_SVD,
    )
    matrix: str = setting(
        "rows",
        "how a kernel (o, i, h, w) becomes a matrix; rows: o x ihw, the smaller atoms; pairs: oi/2 x 2hw, as in the "
        "paper's code",
        choices=("rows", "pairs"),
        read_if=_SVD,
    )
    bits: int = setting(
        0,
        "of a code of the singular vectors, rounded at random: 1 to 8 (0: they travel as float32)",
        low=0,
        high=8,
        read_if=_SVD,
    )
    ratio: float = setting(
        0.01,
        "budget: so large a share of the coordinates travels: max(1, ceil(ratio * coordinates)) on average, or less",
        low=1e-9,
        high=1.0,
        read_if=_ENTRIES,
    )
