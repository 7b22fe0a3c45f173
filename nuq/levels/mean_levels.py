r"""Levels for the mean: the error of the mean of M workers that round together, and the levels that minimise it.

A worker with scale s rounds r inside the interval [l, l + w]; with q = (r - l) / w its error is
``e = s w (1{u < q} - q)``.  Under correlated rounding (``nuq.kernels.spec``, step 6) the numbers u of the M workers are
one in each of M equal parts of (0, 1), of a fixed sum, in random places.  For workers whose coordinates are
independent, of one symmetric distribution F, the error of the mean is (docs/mean_levels.md derives it)

.. math:: M \, E[\bar e^2] / E[s^2] = \Psi(l) - \rho \int_0^1 g(t)^2 dt, \qquad
          g = h - \int_0^1 h, \qquad h(t) = \sum_i w_i P(r \text{ in interval } i, q > t)

with Psi the variance of one message (``nuq.levels.objective``) and rho = E[s s'] / E[s^2] for the scales of two workers
in the same bucket: exactly for even M and levels in pairs, and for odd M but for what g differs from a straight line.
So the levels do not depend on M.  The second term grows with wide intervals, with equal ones, and with coordinates amid
them, so that these levels lie between ALQ's and uniform ones.  It is our own derivation: Suresh et
al. (ICML 2022) bound the error on uniform levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import optimize

from nuq.levels import level_sets, solver_exact
from nuq.levels.distribution import Array, Distribution
from nuq.levels.level_sets import Levels
from nuq.levels.objective import Objective
from nuq.levels.update_rules import Fitted

_MAX_STEPS = 200


@dataclass(frozen=True)
class MeanObjective:
    """M times the error of the mean of M workers, for E[s^2] = 1, as a function of all levels float64[L] from -1 to 1.

    agreement: rho, from 0 to 1.  num_nodes: of the integral over t.
    """

    distribution: Distribution
    agreement: float
    num_nodes: int = 128

    @cached_property
    def _table(self) -> tuple[Array, Array, Array]:
        """The knots, the masses below them, and the densities between them, taken as constant."""
        knots = np.unique(np.concatenate([[-1.0], self.distribution.knots(), [1.0]]))
        masses = self.distribution.interval_moments(knots)[0]
        return knots, np.concatenate([[0.0], np.cumsum(masses)]), masses / np.diff(knots)

    def value(self, levels: Array) -> float:
        return self.value_and_gradient(levels)[0]

    def value_and_gradient(self, levels: Array) -> tuple[float, Array]:
        """The value, and its derivative in every level but the ends: float64[L - 2]."""
        knots, below, densities = self._table
        t = (np.arange(self.num_nodes) + 0.5) / self.num_nodes
        widths = np.diff(levels)
        points = levels[:-1, None] + widths[:, None] * t
        above = np.interp(levels[1:], knots, below)[:, None] - np.interp(points, knots, below)
        h = np.einsum("i,it->t", widths, above)  # einsum throughout: BLAS's threads take longer than its work
        g = h - h.mean()
        message = Objective(self.distribution, symmetric=False).derivatives(levels)
        value = float(message.value) - self.agreement * float((g**2).mean())
        pull = g / self.num_nodes  # which takes off what is the same at all t
        moved = widths[:, None] * densities[np.searchsorted(knots, points, side="right").clip(1, len(densities)) - 1]
        of_upper = np.einsum("it,t->i", above, pull) - np.einsum("it,t->i", moved, t * pull)
        of_lower = -of_upper - np.einsum("it,t->i", moved, pull)
        return value, message.gradient - 2 * self.agreement * (of_upper[:-1] + of_lower[1:])


def refit(fitted: Fitted, distribution: Distribution, *, symmetric: bool, workers: int, agreement: float) -> Fitted:
    """The levels for the mean that are found from those for a message: as many, or +-p^j where these are (AMQ).

    L-BFGS on the logarithms of the gaps, from the levels for a message alone: the best of 25 random starts ends at most
    .4 % below (4 to 16 levels, three laws).  p is the best of 64, refined between its neighbours.  symmetric: levels
    come in pairs +-l.  agreement: as in ``MeanObjective``; one worker keeps what it has.
    """
    num_levels = fitted.levels.num_levels
    if workers < 2 or num_levels == 2:
        return fitted
    tabulated = distribution.tabulated()
    nodes = max(16, min(64, 2048 // num_levels))
    objective = MeanObjective(tabulated, agreement, nodes)
    p = fitted.p
    if p is not None:
        p = _multiplier(objective, num_levels.bit_length() - 1)
        levels = level_sets.exponential(num_levels.bit_length() - 1, p)
    else:
        levels = _descended(objective, fitted.levels, symmetric)
    if objective.value(levels.values) >= objective.value(fitted.levels.values):
        return fitted
    psi = float(Objective(distribution, symmetric=False).value(levels.values))
    return replace(fitted, levels=levels, expected_variance=psi, p=p)


def _descended(objective: MeanObjective, start: Levels, symmetric: bool) -> Levels:
    """The levels below ``start``.  Gaps are counted from zero outward, where levels lie close together."""
    values, zero = start.values, np.zeros(int(start.includes_zero))
    sides = [start.positive] if symmetric else [start.positive, -values[values < 0][::-1]]
    ends = np.cumsum([len(side) for side in sides])[:-1]

    def gaps_of(logs: Array) -> list[Array]:
        powers = [np.exp(part - part.max()) for part in np.split(logs, ends)]
        return [part / part.sum() for part in powers]

    def levels_of(gaps: list[Array]) -> Array:
        found = [np.append(np.cumsum(part[:-1]), 1.0) for part in gaps]
        return np.concatenate([-found[-1][::-1], zero, found[0]])

    def cost(logs: Array) -> tuple[float, Array]:
        gaps = gaps_of(logs)
        value, inner = objective.value_and_gradient(levels_of(gaps))
        slopes = np.concatenate([[0.0], inner, [0.0]])
        outward = [slopes[-len(sides[0]) :], -slopes[: len(sides[-1])][::-1]]
        outward = [outward[0] + outward[1]] if symmetric else outward
        of_gaps = [np.cumsum(side[::-1])[::-1] for side in outward]  # a gap moves all levels beyond it
        of_logs = [gap * (slope - gap @ slope) for gap, slope in zip(gaps, of_gaps, strict=True)]
        return value / unit, np.concatenate(of_logs) / unit

    unit = max(objective.value(values), solver_exact.NOTHING)
    first = np.log(np.concatenate([np.diff(side, prepend=0.0) for side in sides]))
    how = {"maxiter": _MAX_STEPS, "ftol": 1e-6, "gtol": 1e-7}
    found = optimize.minimize(cost, first, jac=True, method="L-BFGS-B", options=how)
    return level_sets.spread(levels_of(gaps_of(found.x)))


def _multiplier(objective: MeanObjective, bits: int) -> float:
    def cost(odds: float) -> float:
        return objective.value(level_sets.exponential(bits, 1 / (1 + np.exp(-odds))).values)

    lowest = solver_exact.lowest_multiplier(bits)
    odds = np.linspace(np.log(lowest / (1 - lowest)), 7.0, 64)
    place = int(np.argmin([cost(each) for each in odds]))
    bounds = (odds[max(place - 1, 0)], odds[min(place + 1, 63)])
    found = optimize.minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(1 / (1 + np.exp(-found.x)))
