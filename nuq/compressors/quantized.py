"""The QSGD .. ALQ family as data: a level set, a norm, and (for some methods) a rule that updates the levels.

``nuq.compressors.quantizer`` rounds to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from nuq.compressors.body import CONTEXT_BITS
from nuq.compressors.message import Message
from nuq.compressors.quantizer import Quantizer
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, mean_levels, update_rules
from nuq.levels.lattice import step_of_rate
from nuq.levels.level_sets import Levels
from nuq.levels.truncated_normals import Distribution, TruncNorm
from nuq.settings.quantizers import AMQ, ECDQ, NUQSGD, QSGD, TRN, Adaptive, Optimal

_NORMAL_QUANTILE_REACH = 0.03  # largest coordinate / (64 q) of some thousand normal ones
Update = Callable[[Distribution, float | None], update_rules.Fitted]  # the float: the multiplier of the update before


@functools.lru_cache(maxsize=1024)
def _start(solve: Update, norm: str, size: int) -> tuple[Levels, float | None]:
    """Levels, and their multiplier, for normal coordinates in buckets of this size."""
    spread = size**-0.5 if norm == "l2" else (2 * np.log(max(size, 2))) ** -0.5
    fitted = solve(TruncNorm(0.0, min(spread, 0.5)), None)
    return level_sets.stretched(fitted.levels, _NORMAL_QUANTILE_REACH if norm == "quantile" else 1.0), fitted.p


@dataclass(eq=False)
class _Update:
    """An update of the levels, solved when its result is first read.

    previous: the multiplier of the update before.  reach: of the statistics, ``workers`` of which were merged.
    """

    solve: Update
    settings: Adaptive
    distribution: Distribution
    previous: float | None
    reach: float
    workers: int
    agreement: float

    @functools.cached_property
    def fitted(self) -> update_rules.Fitted:
        fitted = self.solve(self.distribution, self.previous)
        if self.settings.objective == "mean":
            how: dict[str, Any] = {"workers": self.workers, "agreement": self.agreement}
            fitted = mean_levels.refit(fitted, self.distribution, symmetric=self.settings.symmetric, **how)
        return fitted

    @functools.cached_property
    def gap(self) -> float:
        return update_rules.gap(self.fitted, self.distribution, symmetric=self.settings.symmetric)

    def levels(self) -> tuple[Levels, float | None]:
        return level_sets.stretched(self.fitted.levels, self.reach), self.fitted.p


class AdaptiveQuantizer(Quantizer):
    """A quantizer whose levels follow the gradients: ``update(statistics)`` fits a distribution and solves for levels.

    Before the first update the levels are those of a normal distribution with the spread that any bucket of this size
    has: sigma = 1/sqrt(bucket size) after division by the L2 norm, 1/sqrt(2 ln(bucket size)) after Linf and quantile; a
    vector shorter than a bucket gets those of its own length.  Real gradients are no normal distribution, so that the
    first update had better be at once (``update_at`` with 0).  (The original starts from uniform or exponential levels,
    whose variance is tens to hundreds of times larger until step 100.)

    Levels are solved for when they are first read.
    """

    def __init__(self, settings: Adaptive, solve: Update, *, chained: bool = False) -> None:
        """solve: quantizers that are given the same one share start levels.  chained: it starts from the last p."""
        self.settings = settings
        self._solve, self._chained = solve, chained
        self._short: dict[int, Quantizer] = {}  # what shorter vectors start with, by their length
        super().__init__(self._start_of(settings.bucket_size), settings, settings.norm)
        self._last: _Update | float | None = None  # the last update, or its gap where a state was loaded

    def _start_of(self, size: int) -> functools.partial[tuple[Levels, float | None]]:
        return functools.partial(_start, self._solve, self.settings.norm, size)

    def forget(self) -> None:
        """Forget all updates: the levels are those of the start again."""
        self._last = None
        self._solve_later(self._start_of(self.bucket_size))

    @property
    def fitted(self) -> bool:
        """Whether the levels have been updated."""
        return self._last is not None

    @property
    def gap(self) -> float | None:
        """Psi / Psi of the optimum - 1 under the distribution of the last update; solved for when it is first read."""
        return self._last.gap if isinstance(self._last, _Update) else self._last

    def encode(self, vector: Tensor, key: Key) -> Message:
        size = vector.numel()
        if self.fitted or not 0 < size < self.bucket_size:
            return super().encode(vector, key)
        if size not in self._short:
            self._short[size] = Quantizer(self._start_of(size), self.settings, self.norm)
        return self._short[size].encode(vector, key)

    def _together(self, *tensors: Tensor) -> bool:
        return self.fitted and super()._together(*tensors)  # until then shorter vectors have levels of their own

    def observe(self, vector: Tensor, key: Key, statistics: Statistics) -> None:
        """Add one vector, as it is cut into buckets, to the statistics behind the next update."""
        how: dict[str, Any] = {"moments": self.settings.fit != "histogram", "signs": replace(key, worker=0).words()}
        statistics.add([self.rotated(vector, key)], self.bucket_size, self.norm, **how)

    def observed(self, pieces: Iterable[tuple[Tensor, Key]]) -> Statistics:
        """The statistics of vectors, each with the key of its samples."""
        statistics = Statistics.empty(self.settings.num_components)
        for piece, key in pieces:
            self.observe(piece, key, statistics)
        return statistics

    def update(self, statistics: Statistics) -> None:
        """Update the levels; they stay where every sampled gradient was zero."""
        if statistics.empty_of(self.settings.fit):
            return
        reach = statistics.reach
        distribution = statistics.fit(self.settings.fit, getattr(self.settings, "weights", "norm2"), reach=reach)
        previous = self.multiplier if self._chained and self.fitted else None
        how = (previous, reach, statistics.workers, statistics.agreement)
        self._last = _Update(self._solve, self.settings, distribution, *how)
        self._solve_later(self._last.levels)

    def solve(self) -> None:
        """Solve for the levels now, so that the time counts here and not where they are first read."""
        self._in_use  # noqa: B018

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gap": self.gap}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._last = state["gap"]


def _uniform(settings: QSGD, norm: str) -> Quantizer:
    levels_of = level_sets.uniform if settings.form == "signed" else level_sets.uniform_magnitude
    return Quantizer(levels_of(settings.bits), settings, norm, uniform=True)


def qsgd(settings: QSGD) -> Quantizer:
    """QSGD: uniform levels, L2 norm; ``form=magnitude`` is its own set with a zero, ``signed`` that of ALQ's code.

    Alistarh et al., NeurIPS 2017, arXiv 1610.02132.
    """
    return _uniform(settings, "l2")


def qsgdinf(settings: QSGD) -> Quantizer:
    """QSGD-inf: uniform levels, Linf norm (the variant that QSGD's authors run).

    Alistarh et al., NeurIPS 2017, arXiv 1610.02132.
    """
    return _uniform(settings, "linf")


def ecdq(settings: ECDQ) -> Quantizer:
    """Entropy-coded dithered quantization: a lattice whose step is a multiple of the bucket's rms.

    The lattice is as wide as it has to be.  511 points around zero; the step follows from the rate
    (``nuq.levels.lattice``) and grows where a bucket's largest coordinate lies beyond them.  With subtractive dither
    the error is uniform, of variance step^2 / 12, whatever the gradient (Ziv, IEEE Trans. IT 1985;
    Zamir and Feder, 1992).
    """
    lattice = level_sets.equally_spaced(511)
    known_bits = CONTEXT_BITS if settings.dither == "subtractive" and settings.coding == "rans" else 0
    rate = None if settings.coding == "packed" else settings.bits
    multiple = 255 * step_of_rate(settings.bits, known_bits)
    return Quantizer(lattice, settings, "rms", uniform=True, multiple=multiple, rate=rate)


def nuqsgd(settings: NUQSGD) -> Quantizer:
    """NUQSGD: levels +-p^j, L2 norm. As in ALQ's code there is no zero level; NUQSGD's paper has one.

    Ramezani-Kebrya et al., 2019, arXiv 1908.06077.
    """
    return Quantizer(level_sets.exponential(settings.bits, settings.p), settings, "l2", multiplier=settings.p)


def trn(settings: TRN) -> Quantizer:
    """TernGrad: levels -1, 0, 1, Linf norm per bucket (the paper: per layer). Clipping is off unless asked for.

    Wen et al., NeurIPS 2017, arXiv 1705.07878.
    """
    return Quantizer(level_sets.ternary(), settings, "linf", uniform=True, clip_sigma=settings.clip_sigma)


@functools.cache
def _descent(rule: Callable[..., update_rules.Fitted], bits: int, symmetric: bool, solver: str) -> Update:
    return lambda distribution, _: rule(distribution, bits, symmetric=symmetric, solver=solver)


def _descending(settings: Adaptive, rule: Callable[..., update_rules.Fitted]) -> AdaptiveQuantizer:
    update_rules.check(settings.bits, settings.solver)
    return AdaptiveQuantizer(settings, _descent(rule, settings.bits, settings.symmetric, settings.solver))


def alq(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ and ALQ-N: coordinate descent on the levels.

    ``solver=exact`` descends to convergence, the dynamic program among its starts; ``paper`` takes 30 sweeps, as
    published.  Faghri et al., NeurIPS 2020, arXiv 2010.12460.
    """
    return _descending(settings, update_rules.alq)


def alq_g(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ-G and ALQ-GN: projected gradient descent on the levels.

    Faghri et al., NeurIPS 2020, arXiv 2010.12460.
    """
    return _descending(settings, update_rules.alq_gradient)


@functools.cache
def _optimum(num_levels: int, symmetric: bool) -> Update:
    return lambda distribution, _: update_rules.optimal(distribution, num_levels, symmetric=symmetric)


def optimal(settings: Optimal) -> AdaptiveQuantizer:
    """The globally optimal levels, of any number (QUIVER, NeurIPS 2024), to which other methods' ``gap`` refers."""
    num_levels = settings.num_levels or 2 ** level_sets.check_bits(settings.bits)
    return AdaptiveQuantizer(settings, _optimum(level_sets.check_num_levels(num_levels), settings.symmetric))


@functools.cache
def _powers(bits: int, solver: str, norm_less: bool) -> Update:
    how: dict[str, Any] = {"solver": solver, "norm_less": norm_less}
    return lambda distribution, previous: update_rules.amq(distribution, bits, previous=previous, **how)


def amq(settings: AMQ) -> AdaptiveQuantizer:
    """AMQ and AMQ-N: levels +-p^j, with p learned by gradient descent.

    Faghri et al., NeurIPS 2020, arXiv 2010.12460, Section 3.2.
    """
    update_rules.check(settings.bits, settings.solver)
    solve = _powers(settings.bits, settings.solver, settings.fit == "normal")
    return AdaptiveQuantizer(settings, solve, chained=settings.solver == "paper")
