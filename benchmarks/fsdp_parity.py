"""The parity of losses for ``benchmarks.fsdp``: a small GPT learns from compressed messages as under plain FSDP2.

Two ranks train a GPT of two blocks of width 32 on windows of 128 characters of ``data=text``, 8 a rank, by AdamW, once
with everything in float32 and once in bfloat16 with gradients and differences of weights in 4 bits (the variant whose
speed is measured), from the same weights and on the same minibatches of each seed.  What counts is the loss of held-out
windows after the last step.  There is parity where the mean difference of the pairs is no larger than the half-width of
the 95 % interval of plain FSDP2's mean over the seeds (Student's t).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.groups.aggregate import estimate
from benchmarks.rank_processes import Rank, ask_all
from benchmarks.timing import summary

PLAIN, COMPRESSED = "float32", "4 bits"
SEEDS = (3, 4, 5, 6, 7)  # buckets of 128 were chosen on 0, 1, 2
STEPS, QUICK_STEPS = 300, 3


def measured(ranks: Sequence[Rank], *, quick: bool) -> dict[str, Any]:
    """The losses by seed, and what they come to."""
    steps = QUICK_STEPS if quick else STEPS
    losses: dict[str, list[float]] = {
        variant: [
            ask_all(ranks, {"do": "train", "variant": variant, "seed": seed, "steps": steps})[0]["loss"]
            for seed in SEEDS
        ]
        for variant in (PLAIN, COMPRESSED)
    }
    return {"steps": steps, "seeds": list(SEEDS), "losses": losses, **judged(losses[PLAIN], losses[COMPRESSED])}


def judged(plain: Sequence[float], compressed: Sequence[float]) -> dict[str, Any]:
    """The mean difference of the pairs with the half-width of its interval, that of plain FSDP2's losses, parity."""
    pairs, of_seeds = estimate(np.subtract(compressed, plain)), estimate(np.asarray(plain)).half_width
    return {
        "plain": summary(plain),
        "compressed": summary(compressed),
        "difference": round(pairs.mean, 4),
        "difference_half_width": round(pairs.half_width, 4),
        "seeds_half_width": round(of_seeds, 4),
        "parity": abs(pairs.mean) <= of_seeds,
    }
