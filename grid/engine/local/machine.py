"""The cores and GPUs of this machine, and the runs that hold them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grid.engine.states.runs import Run
from settings.resources import typed_gpus


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs of this machine, without importing torch: those of CUDA_VISIBLE_DEVICES, else those of the driver."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name and name != "-1"]
    with contextlib.suppress(OSError):
        return [str(index) for index, _ in enumerate(sorted(os.listdir("/proc/driver/nvidia/gpus")))]
    return []


def check_slots(slots: int | None) -> None:
    """Raise ValueError for a number of slots in which nothing could ever run; None leaves the number to the machine."""
    if slots is not None and slots < 1:
        raise ValueError(f"--slots {slots}: must be at least 1")


@dataclass(frozen=True)
class Share:
    """The cores and GPUs that one run holds while it runs."""

    slot: int
    cores: int
    gpus: tuple[str, ...]


class Machine:
    """The cores and GPUs of this machine, with the run that holds each.

    A run takes a core for each thread of each of its ranks, and the GPUs that its sweep asks for (one per rank where it
    says nothing), but never more than there are: what is too large for the machine has it to itself.  With ``slots``
    given, so many runs share the machine whatever they ask for; ValueError for fewer than one.
    """

    def __init__(self, slots: int | None = None, cores: int | None = None, gpus: Sequence[str] | None = None) -> None:
        check_slots(slots)
        self.gpus = tuple(visible_gpus() if gpus is None else gpus)
        self.cores = len(os.sched_getaffinity(0)) if cores is None else cores
        self._slots = slots
        self._held: dict[int, Share] = {}

    def take(self, run: Run) -> Share | None:
        """A share of the machine for this run; None while there is no room for it."""
        slot = next(number for number in range(len(self._held) + 1) if number not in self._held)
        if self._slots is not None:
            if slot >= self._slots:
                return None
            gpus = (self.gpus[slot % len(self.gpus)],) if self.gpus else ()
            share = Share(slot, 0, gpus)
        else:
            cores, num_gpus = self._needs(run)
            used = {gpu for held in self._held.values() for gpu in held.gpus}
            free = [gpu for gpu in self.gpus if gpu not in used]
            cores_left = self.cores - sum(held.cores for held in self._held.values())
            if num_gpus > len(free) or (cores > cores_left and self._held):
                return None
            share = Share(slot, cores, tuple(free[:num_gpus]))
        self._held[slot] = share
        return share

    def give_back(self, share: Share) -> None:
        del self._held[share.slot]

    def _needs(self, run: Run) -> tuple[int, int]:
        asked = run.experiment.resources
        _, gpus = typed_gpus(asked.get("gpus"))
        num_gpus = math.ceil(ranks_of(run) if gpus is None else gpus)
        # a run on a GPU leaves the cores to the others: what limits it is the GPU
        cores = 0 if self.gpus and num_gpus else ranks_of(run) * run.experiment.config["threads"]
        return min(cores, self.cores), min(num_gpus, len(self.gpus))


def ranks_of(run: Run) -> int:
    """The number of torch.distributed processes of a run, all on one machine, whatever number of nodes it asks for."""
    return run.experiment.resources.get("ranks", 1)
