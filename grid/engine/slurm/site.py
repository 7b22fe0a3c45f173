"""A cluster's profile, from one small YAML: account, partitions and their limits, defaults of resources.

Nothing of the profile is in code.

``grid/sites/`` holds a commented example of each kind; ``site_yaml.py`` reads them, ``preamble.py`` turns a part into
bash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grid.engine.scripts import preamble
from nuq.settings import TEXT, named, setting, unknown
from settings.resources import WORD, Resources, megabytes, seconds, time_text, typed_gpus, whole

MAIL_EVENTS: str = "BEGIN END FAIL REQUEUE TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50 ARRAY_TASKS ALL"


def _amount(parse: Callable[[str], int]) -> Callable[[Any], str]:
    """A reader of times or amounts of memory, of which a bare number is SLURM's minutes or megabytes."""

    def read(value: Any) -> str:
        text = str(value) if type(value) is int else value
        parse(text)
        Resources().merged({"mem": text} if parse is megabytes else {})
        return text

    return read


def _defaults(values: Any) -> dict[str, Any]:
    """The resources of an experiment that says nothing itself."""
    given = {
        key: value for key, value in named(values, legal=["cpus", "gpus", "mem", "time"]).items() if value is not None
    }
    given |= {key: str(given[key]) for key in ("mem", "time") if type(given.get(key)) is int}
    Resources().merged(given)
    return given


def _gpus_of_a_node(value: Any) -> Any:
    _, number = typed_gpus(value)
    if type(number) is not int or number < 0:
        raise ValueError(f"{value!r} must be a whole number of at least 0, or with a type: a100:4")
    return value


@dataclass(frozen=True)
class Partition:
    """The limits of one partition; None: not known, so not checked."""

    max_time: str | None = setting(None, "most of one job", parse=_amount(seconds))
    gpus: int | str | None = setting(None, "of one node: 4, or a100:4", parse=_gpus_of_a_node)
    cpus: int | None = whole(None, "of one node")
    mem: str | None = setting(None, "of one node", parse=_amount(megabytes))
    nodes: int | None = whole(None, "most of one job")
    constraint: str | None = setting(
        None, "asked for on this partition, unless the experiment asks for another", pattern=WORD
    )


@dataclass(frozen=True)
class Mail:
    """The address that is written to, and the events on which mail is sent."""

    user: str = setting("", "the address", pattern=WORD)
    on: tuple[str, ...] = setting(("FAIL",), f"the events: {MAIL_EVENTS}", pattern=TEXT)

    def __post_init__(self) -> None:
        if not self.user:
            raise ValueError(f"mail.user={self.user!r}: must be text, and not empty: the address to write to")
        for event in self.on:
            if event not in MAIL_EVENTS.split():
                raise ValueError(f"mail.on: {unknown('event', event, MAIL_EVENTS.split())}")


_RENAMED = {"NPROC", "PYTHON"}


@dataclass(frozen=True)
class Site:
    """All settings that differ between clusters; the empty site asks for nothing and checks nothing."""

    name: str = setting("", "what errors call it; empty: as its file", pattern=TEXT)
    account: str | None = setting(None, "sbatch --account", pattern=WORD)
    qos: str | None = setting(None, "sbatch --qos", pattern=WORD)
    partition: str | None = setting(None, "where an experiment names none", pattern=WORD)
    constraint: str | None = setting(None, "features of nodes", pattern=WORD)
    exclude: str | None = setting(None, "nodes to avoid", pattern=WORD)
    defaults: Mapping[str, Any] = setting({}, "resources where a sweep says nothing", parse=_defaults)
    partitions: Mapping[str, Partition] = setting({}, "what partitions can give; none: not checked", pattern=WORD)
    modules: tuple[str, ...] = setting((), "loaded in the job", pattern=TEXT)
    activate: tuple[str, ...] = setting(
        (), "lines of bash", pattern=TEXT, parse=lambda value: [value] if isinstance(value, str) else value
    )
    environment: Mapping[str, str] = setting(
        {}, "values in which $NAME is expanded inside the job", must="be text or a number; quote it"
    )
    scratch: str | None = setting(None, "a folder of the node, exported as NUQ_SCRATCH", pattern=TEXT)
    stage: tuple[Mapping[str, str], ...] = setting(
        (), "copied to the node's disk", pattern=TEXT, must="be a list of {from: FOLDER, to: FOLDER}"
    )
    mail: Mail | None = setting(None, "None: no mail")
    signal_s: int = whole(120, "warning before the time limit")
    max_requeues: int = whole(100, "a job that was requeued more often is going nowhere", low=0)
    max_array_size: int | None = whole(None, "None: the cluster's own word")
    max_submit: int | None = whole(None, "None: the cluster's own word")
    sbatch: tuple[str, ...] = setting((), "further options", pattern=TEXT)

    def __post_init__(self) -> None:
        for name in _RENAMED.intersection(self.environment):
            raise ValueError(f"environment.{name}: the scripts read NUQ_{name}, for {name} may be anybody's: rename it")

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
            "gpu_type": typed_gpus(limits.gpus)[0],
        }
        if asked["gpu_type"] and "gpus" in self.defaults:  # a partition's type comes before that of the defaults
            asked["gpus"] = typed_gpus(self.defaults["gpus"])[1]
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
    kind, most_gpus = typed_gpus(limits.gpus)
    if most_gpus is not None and asked_gpus > most_gpus:
        return f"gpus={asked_gpus} per node{many}: its nodes have {limits.gpus or 'none'}"
    if asked_gpus and kind and resources.gpu_type not in (None, kind):
        return f"gpus={resources.gpu_type}:{asked_gpus} per node{many}: its nodes have {limits.gpus}"
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
