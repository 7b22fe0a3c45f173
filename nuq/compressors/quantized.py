"""The QSGD .. ALQ family as data: a level set, a norm, and (for some) a rule that updates the levels.

Body of a message: bucket size uint32, number of levels uint32, levels float32[L], bucket norms float32[B], packed
codes.  For n coordinates, b bits and buckets of d that makes ``28 + 8 + 4*2^b + 4*ceil(n/d) + ceil(n*b/8)`` bytes.
The levels travel with every message, so a receiver needs nothing else to decode it.

Sources: QSGD (Alistarh et al., NeurIPS 2017), TernGrad (Wen et al., NeurIPS 2017), NUQSGD (Ramezani-Kebrya et al., 2019),
ALQ and AMQ (Faghri et al., NeurIPS 2020).  Differences from the papers are told at each function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq import adapt, coding, ops
from nuq import levels as level_sets
from nuq.distributions import Distribution, TruncNorm
from nuq.levels import Levels
from nuq.message import HEADER_BYTES, Message, MessageError, as_bytes, from_bytes
from nuq.ops import Key
from nuq.registry import AMQ, NUQSGD, QSGD, TRN, Adaptive
from nuq.statistics import Statistics

TAG = b"LVLS"
Update = Callable[[Distribution], adapt.Fitted]


class Quantizer:
    """Stochastic rounding of bucket-normalised coordinates to fixed levels.  Unbiased unless it clips."""

    def __init__(self, levels: Levels, bucket_size: int, norm: str, *, clip_sigma: float = 0.0, multiplier: float | None = None) -> None:
        self.bucket_size = bucket_size
        self.norm = norm
        self.clip_sigma = clip_sigma
        self.set_levels(levels, multiplier)

    def set_levels(self, levels: Levels, multiplier: float | None = None) -> None:
        """multiplier: the p of exponential levels, where the levels have one."""
        self.levels = levels
        self.multiplier = multiplier
        self._table = torch.tensor(levels.values, dtype=torch.float32)

    def encode(self, vector: Tensor, key: Key) -> Message:
        if self.clip_sigma:
            vector = clip(vector, self.bucket_size, self.clip_sigma)
        table = self._table.to(vector.device)
        codes, norms = ops.quantize(vector, table, self.bucket_size, self.norm, key)
        sizes = torch.tensor([self.bucket_size, len(table)], dtype=torch.int32, device=vector.device)
        return Message(TAG, vector.numel(), as_bytes(sizes, table, norms, coding.pack(codes, len(table))))

    def decode(self, message: Message) -> Tensor:
        n, body = message.num_coordinates, message.body
        if message.tag != TAG or body.numel() < 8:
            raise MessageError(f"a message tagged {message.tag!r} with {body.numel()} bytes is not of this family ({TAG!r})")
        bucket_size, num_levels = from_bytes(body[:8], torch.int32).tolist()
        if bucket_size < 1 or not 2 <= num_levels <= 256:
            raise MessageError(f"bucket size {bucket_size} and {num_levels} levels: damaged")
        ends = np.cumsum([8, 4 * num_levels, 4 * ops.num_buckets(n, bucket_size), coding.packed_size(n, num_levels)]).tolist()
        if body.numel() != ends[-1]:
            raise MessageError(
                f"{body.numel()} bytes where {n} coordinates in buckets of {bucket_size} with {num_levels} levels take {ends[-1]}"
            )
        table = from_bytes(body[8 : ends[1]], torch.float32)
        norms = from_bytes(body[ends[1] : ends[2]], torch.float32)
        codes = coding.unpack(body[ends[2] :], n, num_levels)
        return ops.dequantize(codes, norms, table, bucket_size)

    def message_bytes(self, num_coordinates: int) -> int:
        num_levels = self.levels.num_levels
        norms = ops.num_buckets(num_coordinates, self.bucket_size)
        return HEADER_BYTES + 8 + 4 * num_levels + 4 * norms + coding.packed_size(num_coordinates, num_levels)

    def state_dict(self) -> dict[str, Any]:
        return {"levels": torch.tensor(self.levels.values, dtype=torch.float64), "multiplier": self.multiplier}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_levels(Levels(state["levels"].numpy()), state["multiplier"])


class AdaptiveQuantizer(Quantizer):
    """Levels that follow the gradients: ``update(statistics)`` fits a law to them and solves for better levels.

    Before the first update the levels are those of a normal law with the spread that any bucket of this size has:
    sigma = 1/sqrt(bucket size) after division by the L2 norm, 1/sqrt(2 ln(bucket size)) after Linf.  (The original
    starts from uniform or exponential levels, whose variance is tens to hundreds of times larger until step 100.)
    """

    def __init__(self, settings: Adaptive, solve: Update) -> None:
        self.settings = settings
        self._solve = solve
        spread = settings.bucket_size**-0.5 if settings.norm == "l2" else (2 * np.log(max(settings.bucket_size, 2))) ** -0.5
        fitted = solve(TruncNorm(0.0, min(spread, 0.5)))
        super().__init__(fitted.levels, settings.bucket_size, settings.norm, multiplier=fitted.p)

    def update(self, statistics: Statistics) -> None:
        """Better levels; where every sampled gradient was zero the levels stay."""
        if statistics.totals[2] == 0:
            return
        fitted = self._solve(statistics.fit(self.settings.fit, getattr(self.settings, "weights", "norm2")))
        self.set_levels(fitted.levels, fitted.p)


def clip(vector: Tensor, bucket_size: int, num_sigmas: float) -> Tensor:
    """Every coordinate clamped to num_sigmas standard deviations of its bucket (TernGrad, Section 3.2): biased."""
    buckets = ops.bucketed(vector, bucket_size)
    lengths = torch.full((len(buckets), 1), buckets.shape[1], dtype=torch.float64, device=vector.device)
    lengths[-1] = vector.numel() - (len(buckets) - 1) * buckets.shape[1]
    wide = buckets.to(torch.float64)
    mean = ops.tree_sum(wide)[:, None] / lengths
    sigma = (ops.tree_sum(wide.square())[:, None] / lengths - mean.square()).clamp_min(0.0).sqrt()
    limit = (num_sigmas * sigma).to(torch.float32)
    return torch.clamp(buckets, -limit, limit).reshape(-1)[: vector.numel()]


def _uniform(settings: QSGD) -> Levels:
    return level_sets.uniform(settings.bits) if settings.form == "signed" else level_sets.uniform_magnitude(settings.bits)


def qsgd(settings: QSGD) -> Quantizer:
    """Uniform levels, L2 norm.  ``form=magnitude`` is QSGD's own level set with a zero, ``signed`` the one of ALQ's code."""
    return Quantizer(_uniform(settings), settings.bucket_size, "l2")


def qsgdinf(settings: QSGD) -> Quantizer:
    """Uniform levels, Linf norm (the variant that QSGD's authors run)."""
    return Quantizer(_uniform(settings), settings.bucket_size, "linf")


def nuqsgd(settings: NUQSGD) -> Quantizer:
    """Levels +-p^j, L2 norm.  As in ALQ's code there is no zero level; NUQSGD's paper has one."""
    return Quantizer(level_sets.exponential(settings.bits, settings.p), settings.bucket_size, "l2", multiplier=settings.p)


def trn(settings: TRN) -> Quantizer:
    """TernGrad: levels -1, 0, 1, Linf norm per bucket (the paper: per layer); clipping is off unless asked for."""
    return Quantizer(level_sets.ternary(), settings.bucket_size, "linf", clip_sigma=settings.clip_sigma)


def alq(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ and ALQ-N: coordinate descent on the levels."""
    return AdaptiveQuantizer(settings, lambda law: adapt.alq(law, settings.bits, symmetric=settings.symmetric, solver=settings.solver))


def alq_g(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ-G and ALQ-GN: projected gradient descent on the levels."""
    return AdaptiveQuantizer(
        settings, lambda law: adapt.alq_gradient(law, settings.bits, symmetric=settings.symmetric, solver=settings.solver)
    )


def amq(settings: AMQ) -> AdaptiveQuantizer:
    """AMQ and AMQ-N: levels +-p^j with p learned."""
    return AdaptiveQuantizer(settings, lambda law: adapt.amq(law, settings.bits, solver=settings.solver))
