r"""The update rules that fit levels to a distribution: ALQ, ALQ-G and AMQ, and the optimum.

Faghri et al., NeurIPS 2020, Section 3.

All minimise Psi (``nuq.levels.objective``), the expected variance of stochastic rounding under the fitted distribution,
the interval around zero included.  ``solver="exact"`` runs to a minimum; ``solver="paper"`` runs the original code's
iterations, which stop before (``nuq.levels.solver_paper`` says what comes of that, and which settings give the
published levels).  Everything is float64 and deterministic: workers with the same statistics find the same levels. The
exact solvers run in C++ where the kernels are built (``nuq.native.levels``) and in NumPy elsewhere, to the same minima
up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nuq.levels import level_sets, solver_exact, solver_optimal, solver_paper
from nuq.levels.distribution import Array, Distribution
from nuq.levels.level_sets import Levels
from nuq.levels.objective import Objective
from nuq.settings import unknown

SOLVERS = ["exact", "paper"]


@dataclass(frozen=True)
class Fitted:
    """The result of an update rule.

    levels; their Psi under the distribution they were fitted to; p, the multiplier of levels +-p^j (AMQ, else None);
    start, the initial levels or multiplier that led to them.
    """

    levels: Levels
    expected_variance: float
    p: float | None
    start: str


def expected_variance(levels: Levels, distribution: Distribution) -> float:
    r"""Psi: the variance that stochastic rounding to ``levels`` adds to one coordinate of the distribution.

    ``sum_i integral over [l_i, l_{i+1}] of (r - l_i)(l_{i+1} - r) dF(r)``; times norm^2 * n it is the variance of a
    bucket.

    >>> from nuq.levels.truncated_normals import TruncNorm
    >>> f"{expected_variance(level_sets.ternary(), TruncNorm(0.0, 1 / 32)):.6f}"  # E|r| - E r^2
    '0.023957'
    """
    return float(Objective(distribution, symmetric=False).value(levels.values))


def alq(distribution: Distribution, bits: int, *, symmetric: bool = True, solver: str = "exact") -> Fitted:
    """The levels of ALQ: 2^bits levels of smallest Psi, from quantile, uniform and exponential starts, the best kept.

    distribution: a distribution on [-1, 1].  bits: 1 to 8.  symmetric: levels come in pairs +-l and are fitted to the
    distribution of |r|; else every level moves by itself.  solver: exact (coordinate descent to convergence, also from
    companded levels and from the dynamic program's: the levels of ``optimal``, and exact as far as that is; from the
    three starts alone it ends in local minima from 5 bits on) or paper (30 sweeps of finite differences; its symmetric
    levels have the original's phantom level at zero).  ValueError for other values.
    """
    check(bits, solver)
    if solver == "paper":
        return _paper(solver_paper.finite_difference_sweeps, distribution, bits, symmetric)
    return _exact(solver_exact.descend, distribution, 2**bits, symmetric)


def alq_gradient(distribution: Distribution, bits: int, *, symmetric: bool = True, solver: str = "exact") -> Fitted:
    """The levels of ALQ-G: as ``alq``, by projected gradient descent, steps at most half the smaller gap.

    The exact solver moves all levels at once and reaches those of ``alq``; the paper solver takes 30 sweeps of one step
    of rate .1 a level.
    """
    check(bits, solver)
    if solver == "paper":
        return _paper(solver_paper.projected_sweeps, distribution, bits, symmetric)
    return _exact(solver_exact.projected_descent, distribution, 2**bits, symmetric)


def amq(
    distribution: Distribution,
    bits: int,
    *,
    solver: str = "exact",
    previous: float | None = None,
    norm_less: bool = False,
) -> Fitted:
    """The levels of AMQ: levels +-p^j, j = 0 .. 2^(bits-1) - 1, of smallest Psi.

    ``Fitted.p`` is the learned p in (0, 1), None at 1 bit.

    distribution: a distribution on [-1, 1] of any mean.  solver: exact (every local minimum refined, the best kept) or
    paper (40 steps of rate .7 from seven or eight starts; chosen by the cost of the positive half without the centre,
    as in the original).  The paper solver's starts follow from previous, the p of the update before (None: this is the
    first), and are AMQ-N's where norm_less says so.
    """
    check(bits, solver)
    if bits == 1:
        return _unmoved(distribution)
    tabulated = distribution.tabulated()
    if solver == "paper":
        starts = solver_paper.multiplier_starts(previous, norm_less=norm_less)
        multipliers, costs = solver_paper.multipliers(tabulated, bits, starts)
        place = int(np.argmin(costs))
        p, start = float(multipliers[place]), float(starts[place])
    else:
        p, start = solver_exact.multiplier(Objective.of(tabulated, True), bits)
    levels = level_sets.exponential(bits, p)
    return Fitted(levels, expected_variance(levels, distribution), p, f"p={start:.4g}")


def optimal(distribution: Distribution, num_levels: int, *, symmetric: bool = True) -> Fitted:
    """The level set of ``num_levels`` with the smallest Psi on a fine grid, by dynamic programming, polished.

    See ``nuq.levels.solver_optimal``.  The optimum of every distribution of the reference to 4e-10; polishing is local,
    so on coarse, random histograms another minimum can lie lower (1.1 % at worst in 7,000 of them, 4e-5 on histograms
    of ``nuq.kernels.statistics``).

    distribution: a distribution on [-1, 1].  num_levels: 2 to 256.  symmetric: the best of the sets +-l, without a zero
    level for an even number and with one for an odd; else the best of all sets.  ValueError for another number.  ALQ's
    starts are descended too, so that for 2^bits levels this is ``alq``.

    >>> from nuq.levels.truncated_normals import TruncNorm
    >>> optimal(TruncNorm(0.0, 1 / 32), 5).levels.values.round(4).tolist()
    [-1.0, -0.0701, 0.0, 0.0701, 1.0]
    """
    found = _exact(solver_exact.descend, distribution, level_sets.check_num_levels(num_levels), symmetric)
    return replace(found, start=solver_optimal.NAME)


def _with_zero(edges: Array) -> Levels:
    """The symmetric set of edges that begin at zero, where a level is."""
    positive = level_sets.spread(edges[1:], symmetric=True).positive
    return Levels(np.concatenate([-positive[::-1], [0.0], positive]))


def gap(fitted: Fitted, distribution: Distribution, *, symmetric: bool = True) -> float:
    """The excess of Psi over the best of as many levels: Psi / Psi_optimal - 1 under ``distribution``, 0 or more.

    symmetric: the best among the sets +-l; else among all.  A distribution that both serve without error counts as 0.
    """
    best = optimal(distribution, fitted.levels.num_levels, symmetric=symmetric).expected_variance
    return max(fitted.expected_variance / best - 1.0, 0.0) if best > solver_exact.NOTHING else 0.0


def check(bits: int, solver: str) -> None:
    """ValueError for bits or a solver that no update rule has."""
    level_sets.check_bits(bits)
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)


def _unmoved(distribution: Distribution) -> Fitted:
    """The levels of one bit, which are -1 and 1, whatever the distribution."""
    levels = level_sets.uniform(1)
    return Fitted(levels, expected_variance(levels, distribution), None, "uniform")


def _starts(distribution: Distribution, bits: int, symmetric: bool) -> dict[str, Levels]:
    """The three starts of the original."""
    return {
        "quantile": level_sets.quantile(bits, distribution, symmetric=symmetric),
        "uniform": level_sets.uniform(bits),
        "exponential": level_sets.exponential(bits),
    }


def exact_starts(distribution: Distribution, bits: int, symmetric: bool) -> dict[str, Levels]:
    """The three starts of the original and one more, which lies nearer the optimum at many bits."""
    return _starts(distribution, bits, symmetric) | {
        "companded": level_sets.companded(bits, distribution, symmetric=symmetric)
    }


def _exact(solve: solver_optimal.Solve, distribution: Distribution, num_levels: int, symmetric: bool) -> Fitted:
    """The best of the results of ``solve`` from the starts (for 2^bits levels) and the dynamic program's answers."""
    if num_levels == 2:
        return _unmoved(distribution)
    tabulated = distribution.tabulated()
    if not symmetric:
        objective, first, intervals = Objective(tabulated, symmetric=False), -1.0, num_levels - 1
    else:
        objective, first, intervals = Objective(tabulated.folded(), symmetric=num_levels % 2 == 0), 0.0, num_levels // 2
    bits = num_levels.bit_length() - 1
    starts = exact_starts(tabulated, bits, symmetric) if num_levels == 2**bits else {}
    rows = np.array([objective.edges(levels) for levels in starts.values()]).reshape(-1, intervals + 1)
    edges = solver_optimal.optima(solve, objective, first, intervals, rows)
    found = [_with_zero(row) if symmetric and num_levels % 2 else objective.levels(row) for row in edges]
    return _best(distribution, tabulated, found, [*starts, solver_optimal.NAME, solver_optimal.NAME])


def _paper(
    solve: Callable[[Distribution, Array], Array], distribution: Distribution, bits: int, symmetric: bool
) -> Fitted:
    """The original's set-up, of the distribution of r: the positive half with a phantom level at 0, or all levels."""
    if bits == 1:
        return _unmoved(distribution)
    tabulated = distribution.tabulated()
    starts, half = _starts(tabulated, bits, symmetric), Objective(tabulated, symmetric)
    edges = solve(tabulated, np.stack([half.edges(levels) for levels in starts.values()]))
    return _best(distribution, tabulated, [half.levels(row) for row in edges], list(starts))


def _best(distribution: Distribution, tabulated: Distribution, candidates: list[Levels], names: list[str]) -> Fitted:
    place = int(np.argmin([expected_variance(levels, tabulated) for levels in candidates]))
    return Fitted(candidates[place], expected_variance(candidates[place], distribution), None, names[place])
