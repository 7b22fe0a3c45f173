"""Which samples a worker sees at which step: a function of the seed, without state.

Every epoch is one permutation of the training set; step by step its next ``workers * batch_size`` samples are dealt to
the workers in blocks, so that no two workers see the same sample in an epoch.  What is left of a permutation when it no
longer fills a step is dropped.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from nuq.ops import Key


def generator(seed: int, step: int, worker: int, purpose: str) -> torch.Generator:
    """A generator of its own for one purpose of one worker at one step."""
    high, low = Key(seed, step, worker, purpose).words()
    return torch.Generator().manual_seed((high << 31) ^ low)


class Order:
    """``purpose`` separates training from the extra minibatches of a measurement."""

    def __init__(self, num_train: int, batch_size: int, workers: int, seed: int, purpose: str = "train") -> None:
        self.steps_per_epoch = num_train // (batch_size * workers)
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"workers={workers} with batch_size={batch_size} take {workers * batch_size} samples a step, "
                f"the training set has {num_train}: lower one of them"
            )
        self.batch_size, self.workers = batch_size, workers
        self._permutation = functools.lru_cache(maxsize=2)(
            lambda epoch: torch.randperm(num_train, generator=generator(seed, epoch, 0, f"order/{purpose}"))
        )

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def indices(self, step: int, worker: int) -> Tensor:
        """int64[batch_size]"""
        start = (step % self.steps_per_epoch * self.workers + worker) * self.batch_size
        return self._permutation(self.epoch(step))[start : start + self.batch_size]
