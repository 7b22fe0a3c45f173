"""The resources that one experiment asks a machine for: nodes, processes, GPUs, cores, memory, time and place.

The resources are a frozen record that checks itself.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import check, declared, setting, unknown

TIME_FORMS = "minutes (90), MM:SS, HH:MM:SS (12:00:00), D-HH, D-HH:MM or D-HH:MM:SS"
MEM_FORMS = "a whole number with its unit: 18GB, 18G, 500M, 1T; without one it counts megabytes; 0 is all of the node"
FEW_MB = 256  # no run goes on so little: a bare number up to this was meant in GB
MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
# One word each, for they become options of sbatch; brackets and signs belong to lists of nodes and features, but name
# nothing by themselves.
WORD = (
    r"(?=.*\w)[\w.,:@&|()*/+\[\]][\w.,:@&|()*/+\[\]=-]*",
    "one word, with a letter or digit and without blanks or quotes, as sbatch takes it",
)


def typed_gpus(value: Any) -> tuple[str | None, Any]:
    """The type of GPU in ``a100:2``, and the number; None, and the value as it is, where it names no type."""
    found = (
        re.fullmatch(r"([A-Za-z][\w.-]*):([0-9]+(?:\.[0-9]+)?)", value, re.ASCII) if isinstance(value, str) else None
    )
    if not found:
        return None, value
    return found[1], int(found[2]) if found[2].isdecimal() else float(found[2])


GPU_TYPE = (r"[A-Za-z][\w.-]*", "a type of GPU as SLURM names it: a100")


def whole(default: Any, reason: str, low: int = 1) -> Any:
    """A setting that is a whole number of at least ``low``."""
    return setting(default, reason, low=low, must=f"be a whole number of at least {low}")


def seconds(time: str) -> int:
    """The seconds of a time limit as SLURM takes it; a bare number counts minutes. ValueError for anything else."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time, re.ASCII) if isinstance(time, str) else None
    if found:
        days, parts = int(found[1] or 0), [int(part) for part in found.groups()[1:] if part is not None]
        units = (3600, 60, 1) if found[1] else {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(parts)]
        total = days * 86400 + sum(part * unit for part, unit in zip(parts, units, strict=False))
        if total > 0 and all(part < 60 for part in parts[1:]) and (not found[1] or parts[0] < 24):
            return total
    raise ValueError(f"time={time!r}: must be a time above 0 in text, as SLURM takes it: {TIME_FORMS}")


def time_text(seconds: int) -> str:
    """A time limit as ``HH:MM:SS``, with ``D-`` before it from one day on: SLURM takes it and people read it."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


def megabytes(mem: str) -> int:
    """An amount of memory in megabytes (1 GB is 1024 MB, as in SLURM), rounded up; 0 means all of the node.

    ValueError for what is no amount of memory.
    """
    found = re.fullmatch(r"(\d+)(?:([KMGT])B?)?", mem.upper(), re.ASCII) if isinstance(mem, str) else None
    if not found:
        raise ValueError(f"mem={mem!r}: must be text, {MEM_FORMS}")
    return math.ceil(int(found[1]) * MEGABYTES[found[2] or "M"])


@dataclass(frozen=True)
class Resources:
    """The resources of ONE experiment; a script that runs K at a time asks for K times the GPUs, cores and memory.

    Raises ValueError for a value that makes no sense.
    """

    nodes: int = whole(1, "nodes of one experiment")
    ranks: int = whole(1, "torch.distributed processes of one experiment, over all nodes; a multiple of nodes")
    gpus: int | float | None = setting(
        None,
        "GPUs per node (default: one per rank; 0: none; 0.5: two runs of a script share one; a100:2: two of a type)",
        low=0,
        must="be a number of GPUs per node: 0, 1, 2, ..., or a fraction such as 0.5 to share one; a100:2 for a type",
    )
    cpus: int = whole(3, "cores per rank")
    mem: str = setting("18GB", "memory per node")
    time: str | None = setting(None, "time limit, such as 12:00:00 (default: the partition's)")
    partition: str | None = setting(None, "partition (default: the site's, else the cluster's)", pattern=WORD)
    account: str | None = setting(None, "account", pattern=WORD)
    qos: str | None = setting(None, "quality of service", pattern=WORD)
    constraint: str | None = setting(None, "node features", pattern=WORD)
    exclude: str | None = setting(None, "nodes to avoid", pattern=WORD)
    gpu_type: str | None = setting(None, "type of the GPUs (gpus=a100:2 names it, too)", pattern=GPU_TYPE)

    def __post_init__(self) -> None:
        gpu_type, number = typed_gpus(self.gpus)
        if gpu_type is not None:
            object.__setattr__(self, "gpu_type", gpu_type)
        if isinstance(number, float) and number.is_integer():  # as a command line and old records have it
            number = int(number)
        object.__setattr__(self, "gpus", number)
        megabytes(self.mem)
        if self.time is not None:
            seconds(self.time)
        check(Resources, vars(self), "")
        if self.ranks % self.nodes:
            raise ValueError(f"ranks={self.ranks}: must be a multiple of nodes={self.nodes}; every node runs as many")
        gpus = self.gpus or 0
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(
                f"gpus={gpus!r}: must be whole above 1; a fraction below 1 lets several runs of one script share a GPU"
            )
        if 0 < gpus < 1 and self.ranks > 1:
            raise ValueError(
                f"gpus={gpus!r}: a share of a GPU is for experiments of one rank, and this one has ranks={self.ranks}"
            )

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def runs_per_gpu(self) -> int:
        """The number of experiments that share one GPU: 1 unless ``gpus`` is a fraction."""
        return math.floor(1 / self.gpus + 1e-9) if self.gpus is not None and 0 < self.gpus < 1 else 1

    def gpus_for(self, parallel: int) -> int:
        """GPUs per node of a script with ``parallel`` experiments at a time."""
        if self.gpus is None:
            return self.ranks_per_node * parallel
        return math.ceil(parallel / self.runs_per_gpu) if 0 < self.gpus < 1 else int(self.gpus) * parallel

    def cpus_for(self, parallel: int) -> int:
        """Cores per node of a script with ``parallel`` experiments at a time."""
        return self.cpus * self.ranks_per_node * parallel

    def mem_for(self, parallel: int) -> str:
        """Memory per node of a script with ``parallel`` experiments at a time, as sbatch takes it."""
        return self.mem if parallel == 1 or not megabytes(self.mem) else f"{megabytes(self.mem) * parallel}M"

    def merged(self, changes: Mapping[str, Any]) -> Resources:
        """A checked copy with the values of ``changes``; ValueError, with the legal ones, for what is no resource."""
        for name in changes:
            if name not in declared(Resources):
                raise unknown("resource", name, declared(Resources))
        if re.fullmatch(r"0*[1-9]\d*", mem := str(changes.get("mem")), re.ASCII) and int(mem) <= FEW_MB:
            raise ValueError(f"mem={mem}: is {mem} MB for SLURM; are GB meant? Write {mem}G, else {mem}M")
        return dataclasses.replace(self, **changes) if changes else self
