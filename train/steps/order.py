"""The samples that a worker sees at a step: a function of the seed, without state.

Every epoch is one permutation of the training set; step by step its next ``workers * batch_size`` samples (times
``compute.accumulate``) are dealt to the workers in blocks, so that no two workers see the same sample in an epoch.
The rest of a permutation that no longer fills a step is dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from nuq.kernels.spec import Key


def seed_of(seed: int, step: int, worker: int, purpose: str) -> int:
    """The seed for one purpose of one worker at one step."""
    high, low = Key(seed, step, worker, purpose).words()
    return (high << 31) ^ low


def generator(seed: int, step: int, worker: int, purpose: str) -> torch.Generator:
    """A generator of random numbers for one purpose of one worker at one step."""
    return torch.Generator().manual_seed(seed_of(seed, step, worker, purpose))


class Order:
    """The order of samples. ``purpose`` separates training from the extra minibatches of a measurement.

    accumulate: minibatches per worker and step.
    """

    def __init__(
        self, num_train: int, batch_size: int, workers: int, seed: int, purpose: str = "train", accumulate: int = 1
    ) -> None:
        of_worker = batch_size * accumulate
        self.steps_per_epoch = num_train // (of_worker * workers)
        if self.steps_per_epoch == 0:
            times = f" and compute.accumulate={accumulate}" if accumulate > 1 else ""
            take = f"workers={workers} with batch_size={batch_size}{times} take {workers * of_worker} samples a step"
            raise ValueError(f"{take}, the training set has {num_train}: lower one of them")
        self.batch_size, self.workers, self._of_worker = batch_size, workers, of_worker

        @functools.lru_cache(maxsize=2)
        def permutation(epoch: int) -> Tensor:
            drawn = generator(seed, epoch, 0, f"order/{purpose}")
            return torch.randperm(num_train, generator=drawn, dtype=torch.int64, device="cpu")

        self._permutation = permutation

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def indices(self, step: int, worker: int) -> Tensor:
        """The indices of a worker's samples at a step, int64[batch_size * accumulate]."""
        start = (step % self.steps_per_epoch * self.workers + worker) * self._of_worker
        return self._permutation(self.epoch(step))[start : start + self._of_worker]

    def minibatches(self, step: int, worker: int) -> Sequence[Tensor]:
        """The indices of each minibatch in turn, int64[batch_size] each."""
        return self.indices(step, worker).split(self.batch_size)
