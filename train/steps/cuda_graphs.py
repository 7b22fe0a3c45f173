"""A pass over a minibatch as one recorded CUDA graph: its kernels are launched together, not one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3  # passes on a stream of their own, as torch asks for: libraries choose their kernels in them

Pass = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Recorded:
    """A recorded call of ``function``, for arguments with the shapes and memory order of the first ones."""

    def __init__(self, function: Pass, inputs: Tensor, labels: Tensor, factor: Tensor) -> None:
        self._given = tuple(given.clone() for given in (inputs, labels, factor))
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                function(*self._given)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._found = function(*self._given)

    def __call__(self, inputs: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The result of the function, as copies, since the next pass writes into the same memory."""
        for place, given in zip(self._given, (inputs, labels, factor), strict=True):
            place.copy_(given)
        self._graph.replay()
        gradient, loss = self._found
        return gradient.clone(), loss.clone()
