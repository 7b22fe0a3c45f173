"""The counts of quantized training: bytes before and after by kind of tensor, and their coordinates' histograms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TAGS = {  # the scalars' names are SmaQ's
    "weights": "optimizer_weight",
    "gradients": "optimizer_grad",
    "moments": "optimizer_momentum",
    "activations": "forward_autograd",
    "activation_gradients": "backward_autograd",
}
# histograms span so many standard deviations to either side; 40 bins to each, finer than any format's steps near zero
REACH, BINS = (6.0, 240)
EDGES: NDArray[np.float64] = np.linspace(-REACH, REACH, BINS + 1)

Bytes = tuple[int, int]  # before, after


class Counts:
    """The bytes of the step under way, and of the last whole one."""

    def __init__(self) -> None:
        self._now: dict[str, Bytes] = {}
        self.last: dict[str, Bytes] = {}

    @property
    def latest(self) -> dict[str, Bytes]:
        """The counts of the last whole step; where none has ended, as without an optimizer, of all passes so far."""
        return self.last or self._now

    def add(self, kind: str, before: int, after: int) -> None:
        """Count one tensor that went through its format."""
        sums = self._now.get(kind, (0, 0))
        self._now[kind] = (sums[0] + before, sums[1] + after)

    def start(self) -> None:
        """Begin to count anew; what was counted since the last whole step is of a measurement's passes."""
        self._now = {}

    def finish(self) -> None:
        """Finish the step, which is whole."""
        self.last, self._now = self._now, {}


def ratios(counts: Mapping[str, Bytes]) -> dict[str, float]:
    """Bytes before over bytes after: ``compression_ratio`` of all kinds, ``compression_ratio_<tag>`` of each."""
    there = {kind: sums for kind, sums in counts.items() if sums[1]}
    if not there:
        return {}
    before, after = (sum(sums[which] for sums in there.values()) for which in (0, 1))
    return {"compression_ratio": before / after} | {
        f"compression_ratio_{TAGS[kind]}": sums[0] / sums[1] for kind, sums in there.items()
    }


class TensorHistograms:
    """Histograms of z = (x - mean) / std by kind, over all tensors that are added, each with its own mean and std.

    masses: coordinates between ``EDGES``, those beyond in the outermost; moments: (weight, mean, std) of every tensor
    in turn, the weight being its number of coordinates.  Tensors whose coordinates are all alike are left out.
    """

    def __init__(self) -> None:
        self.masses: dict[str, NDArray[np.float64]] = {}
        self.moments: dict[str, list[tuple[int, float, float]]] = {}

    def add(self, kind: str, tensor: Tensor) -> None:
        """Add a tensor of any shape and floating type."""
        x = tensor.detach().to(torch.float32)
        std, mean = (float(value) for value in torch.std_mean(x, correction=0))
        if not 0 < std < float("inf"):
            return
        z = x.sub(mean).div_(std).clamp_(-REACH, REACH)
        found = torch.histc(z, BINS, -REACH, REACH).cpu().numpy().astype(np.float64)
        self.masses[kind] = self.masses.get(kind, 0.0) + found
        self.moments.setdefault(kind, []).append((tensor.numel(), mean, std))

    def fits(self, kind: str) -> tuple[float, float]:
        """The mean and std of a kind's tensors, averaged over its coordinates."""
        weights, means, stds = zip(*self.moments[kind], strict=True)
        return float(np.average(means, weights=weights)), float(np.average(stds, weights=weights))
