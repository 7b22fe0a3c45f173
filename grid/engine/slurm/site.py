"""A cluster's profile, from one small YAML: account, partitions and their limits, defaults of resources.

Nothing of the profile is in code.

``grid/sites/`` holds a commented example of each kind; ``site_yaml.py`` reads them, ``preamble.py`` turns a part into
bash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grid.engine.scripts import preamble
from grid.engine.scripts.preamble import Stage
from grid.engine.sweeps.resources import Resources, megabytes, seconds, time_text
from nuq.settings import unknown


@dataclass(frozen=True)
class Partition:
    """The limits of one partition; None: not known, so not checked."""

    max_time: str | None = None
    gpus: int | None = None  # of one node
    cpus: int | None = None  # of one node
    mem: str | None = None  # of one node
    nodes: int | None = None  # most of one job
    constraint: str | None = None  # asked for on this partition, unless the experiment asks for another


@dataclass(frozen=True)
class Mail:
    """The address that is written to, and the events on which mail is sent."""

    user: str = ""
    on: tuple[str, ...] = ("FAIL",)


@dataclass(frozen=True)
class Site:
    """All settings that differ between clusters; the empty site asks for nothing and checks nothing."""

    name: str = ""
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    activate: tuple[str, ...] = ()  # lines of bash
    environment: Mapping[str, str] = field(default_factory=dict)  # values in which $NAME is expanded inside the job
    scratch: str | None = None  # a folder of the node, exported as NUQ_SCRATCH
    stage: tuple[Stage, ...] = ()
    mail: Mail | None = None
    signal_s: int = 120  # warning before the time limit
    max_requeues: int = 100
    max_array_size: int | None = None  # None: the cluster's own word
    max_submit: int | None = None
    sbatch: tuple[str, ...] = ()  # further options

    def resources(self, partition: str | None = None) -> Mapping[str, Any]:
        """The resources of an experiment that says nothing itself, on ``partition`` (None: the profile's own)."""
        chosen = partition or self.partition
        limits = self.partitions.get(chosen or "", Partition())
        asked = {
            "partition": chosen,
            "account": self.account,
            "qos": self.qos,
            "constraint": limits.constraint or self.constraint,
            "exclude": self.exclude,
        }
        return {**self.defaults, **{name: value for name, value in asked.items() if value is not None}}

    def check(self, resources: Resources, scripts_parallel: int = 1) -> None:
        """Raise ValueError where the partition cannot give what scripts of ``scripts_parallel`` runs at a time need."""
        asked = resources.partition or self.partition
        if not self.partitions or asked is None:
            return
        names = [name for name in asked.split(",") if name]
        for name in names:
            if name not in self.partitions:
                raise unknown(f"partition of site {self.name}", name, dict(self.partitions))
        problems = [_shortage(self.partitions[name], resources, scripts_parallel) for name in names]
        if not all(problems):  # SLURM starts a job in any partition of a list that can run it
            return
        able = [name for name, limits in self.partitions.items() if not _shortage(limits, resources, scripts_parallel)]
        others = f"partitions that can: {', '.join(able)}" if able else f"no partition of site {self.name} can"
        raise ValueError(f"partition {names[0]!r} of site {self.name} cannot give {problems[0]} ({others})")

    def preamble(self) -> list[str]:
        """Lines of bash for the start of a job script; the empty site has none.

        They are scratch, modules, environment, activation and staging.
        """
        return preamble.lines(
            self.name,
            modules=self.modules,
            activate=self.activate,
            environment=self.environment,
            scratch=self.scratch,
            stage=self.stage,
        )


def _shortage(limits: Partition, resources: Resources, parallel: int) -> str:
    """A sentence on what ``limits`` cannot give, with the limit; empty where nothing is known to be too much."""
    many = f" for {parallel} runs at a time" if parallel > 1 else ""
    asked_gpus, asked_cpus, asked_mem = (
        resources.gpus_for(parallel),
        resources.cpus_for(parallel),
        resources.mem_for(parallel),
    )
    if limits.nodes is not None and resources.nodes > limits.nodes:
        return f"nodes={resources.nodes}: at most {limits.nodes} per job"
    if limits.gpus is not None and asked_gpus > limits.gpus:
        return f"gpus={asked_gpus} per node{many}: its nodes have {limits.gpus or 'none'}"
    if limits.cpus is not None and asked_cpus > limits.cpus:
        return f"{asked_cpus} cores per node{many} (cpus={resources.cpus} a rank): its nodes have {limits.cpus}"
    if limits.mem is not None and megabytes(asked_mem) > megabytes(limits.mem):
        return f"mem={asked_mem} per node{many}: its nodes have {limits.mem}"
    if (
        limits.max_time is not None
        and resources.time is not None
        and seconds(resources.time) > seconds(limits.max_time)
    ):
        return f"time={time_text(seconds(resources.time))}: at most {time_text(seconds(limits.max_time))}"
    return ""
