r"""Psi, the expected variance of stochastic rounding, and its derivatives in the levels.

.. math:: \Psi(l) = \sum_i \int_{l_i}^{l_{i+1}} (r - l_i)(l_{i+1} - r) dF(r)

(Faghri et al., NeurIPS 2020, Section 3; the original's code calls the summand Eq. 6.)  The interval around zero is
included.  For symmetric levels it is [-l_1, l_1], one interval: under G, the distribution of |r|, it adds
``integral over [0, l_1] of (l_1^2 - r^2) dG``.  There is no level at zero; the original optimises as if there were
(variance .2835 instead of .2024 at 3 bits).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nuq.levels.distribution import Array, Distribution
from nuq.levels.level_sets import Levels, spread
from nuq.native import levels as kernels


class Derivatives(NamedTuple):
    """Psi and its derivatives in the inner edges.

    Psi float64[...]; gradient and diagonal of the Hessian float64[..., n - 1] in the inner edges; masses float64[...,
    n] of the intervals: the Hessian's entry for edges i, i + 1 is minus the mass between them, and all others are zero.
    """

    value: Array
    gradient: Array
    diagonal: Array
    masses: Array


@dataclass(frozen=True)
class Objective:
    """Psi as a function of edges: float64[..., n + 1], rising along the last axis, the first and last fixed.

    symmetric: edges are 0 and the positive levels, and ``distribution`` is that of |r|; else they are all levels.  Sets
    of levels are handled together along the leading axes.
    """

    distribution: Distribution
    symmetric: bool

    @classmethod
    def of(cls, distribution: Distribution, symmetric: bool) -> Objective:
        return cls(distribution.folded() if symmetric else distribution, symmetric)

    def edges(self, levels: Levels) -> Array:
        return np.concatenate([[0.0], levels.positive]) if self.symmetric else levels.values.copy()

    def levels(self, edges: Array) -> Levels:
        return spread(edges[1:] if self.symmetric else edges, symmetric=self.symmetric)

    def value(self, edges: Array) -> Array:
        """The value of Psi: float64[...]."""
        psi = kernels.psi(self.distribution.compiled(), edges, symmetric=self.symmetric)
        return psi if psi is not None else self._value(edges, self.distribution.interval_moments(edges))

    def _value(self, edges: Array, moments: Array) -> Array:
        m0, m1, m2 = moments
        parts = np.diff(edges, axis=-1) * m1 - m2
        if self.symmetric:
            parts[..., 0] = edges[..., 1] ** 2 * m0[..., 0] - m2[..., 0]
        # Rounding, or several levels in one bin of a histogram, can take a part below zero.  The sum of all is what the
        # levels minimise: inside a bin the distribution's second moment only shifts it, by as much for every set of
        # levels.
        return parts.sum(axis=-1).clip(0.0)

    def gradient(self, edges: Array) -> Array:
        r"""The derivative of Psi in every level.

        ``g_i = integral over [l_{i-1}, l_i] of (r - l_{i-1}) dF - integral over [l_i, l_{i+1}] of (l_{i+1} - r) dF``;
        the first term of the innermost symmetric level is ``2 l_1 G(l_1)``.
        """
        return self._gradient(edges, self.distribution.interval_moments(edges))

    def _gradient(self, edges: Array, moments: Array) -> Array:
        m0, m1, _ = moments
        below, above = m1[..., :-1], (np.diff(edges, axis=-1) * m0 - m1)[..., 1:]
        if self.symmetric:
            below = below.copy()
            below[..., 0] = 2 * edges[..., 1] * m0[..., 0]
        return below - above

    def derivatives(self, edges: Array) -> Derivatives:
        moments = self.distribution.interval_moments(edges)
        masses, density = moments[0], self.distribution.pdf(edges[..., 1:-1])
        diagonal = (edges[..., 2:] - edges[..., :-2]) * density
        if self.symmetric:
            diagonal[..., 0] += 2 * masses[..., 0] + edges[..., 1] * density[..., 0]
        return Derivatives(self._value(edges, moments), self._gradient(edges, moments), diagonal, masses)
