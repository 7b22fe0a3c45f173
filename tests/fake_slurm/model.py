"""The records of the fake: its configuration, a request, a job and its attempts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

ENDED = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
    "REQUEUED",
}
SHORT = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "OUT_OF_MEMORY": "OOM",
    "SUSPENDED": "S",
    "CONFIGURING": "CF",
    "REQUEUED": "RQ",
}


class CommandError(Exception):
    """A command's standard error and exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


@dataclass(frozen=True)
class Partition:
    """``max_time`` in SLURM's notation; no ``nodes``: all of them."""

    name: str
    nodes: tuple[str, ...]
    max_time: str = "UNLIMITED"
    default_time: str | None = None


@dataclass(frozen=True)
class Config:
    """A cluster.  Times here are real seconds; what scripts ask for is multiplied by ``second``."""

    nodes: tuple[str, ...] = ("n1",)
    cpus: int = 4  # of each node, as the following two
    gpus: int = 0
    mem_mb: int = 256_000
    features: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()  # the first is the default one
    accounts: tuple[str, ...] = ()  # empty: any name is good
    qos: tuple[str, ...] = ()
    accounting: bool = True
    max_array_size: int = 1001  # largest index plus one
    max_job_count: int = 10000  # records that the controller keeps, those of ended jobs included; one fewer fit
    max_submit: int = 0  # pending and running jobs, each element counts; 0: any number
    enforce_limits: bool = True  # False (SLURM's default): what a partition cannot give is accepted and never starts
    second: float = 1 / 60  # real seconds that a second of --time, --signal and --begin takes
    min_job_age_s: float = 300.0
    requeue_delay_s: float = 0.0  # a real cluster: about 120
    kill_wait_s: float = 0.5  # from SIGTERM to SIGKILL; a real cluster: 30
    signal_early_s: float = 0.0  # a real cluster sends the --signal warning up to 60 s early
    job_requeue: bool = True  # what a script gets that says neither --requeue nor --no-requeue
    cluster_name: str = "fake"


@dataclass(frozen=True)
class Request:
    """The request that sbatch was given."""

    script: str = ""
    arguments: tuple[str, ...] = ()
    command: str = ""
    name: str = "sbatch"
    partition: str = ""
    account: str = ""
    qos: str = ""
    tasks: tuple[int, ...] | None = None
    throttle: int = 0
    nodes: int = 0  # 0: as few as hold the tasks
    num_tasks: int = 0  # 0: not said, so one per node
    tasks_per_node: int = 0
    cpus_per_task: int = 0  # 0: not said, so one
    gpus_per_node: int = 0
    gpus: int = 0
    mem_mb: int = 0
    mem_per_cpu_mb: int = 0
    exclusive: bool = False
    constraint: str = ""
    only_nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limit_s: float | None = None
    begin: float = 0.0
    dependency: str = ""
    kill_on_invalid_dep: bool = False
    hold: bool = False
    requeue: bool = True
    append: bool = False
    output: str = ""
    error: str = ""
    input: str = "/dev/null"
    signal: int = 0
    signal_lead_s: float = 60.0
    signal_batch: bool = False
    comment: str = ""
    workdir: str = "/"
    submit_dir: str = "/"
    environ: dict[str, str] = field(default_factory=dict)
    test_only: bool = False
    parsable: bool = False
    quiet: bool = False


@dataclass
class Ending:
    """Processes were told to leave; what becomes of the job when they are gone."""

    state: str
    kill_at: float
    requeue: bool = False
    hold: bool = False
    uid: int | None = None
    killed: bool = False


@dataclass
class Attempt:
    """An earlier start of a requeued job, which only ``sacct -D`` shows."""

    state: str
    start: float
    end: float
    nodes: tuple[str, ...]
    exit_code: str = "0:0"


@dataclass
class Array:
    """The record that the elements of an array share."""

    id: int
    tasks: tuple[int, ...]
    throttle: int


@dataclass
class Job:
    """A job, an element of an array, or all elements of an array that have not started (``waiting``)."""

    id: int
    request: Request
    submit: float
    limit_s: float | None
    eligible: float
    array: Array | None = None
    task: int | None = None
    waiting: list[int] = field(default_factory=list)
    state: str = "PENDING"
    reason: str = "None"
    held: bool = False
    nodes: tuple[str, ...] = ()
    gpus: dict[str, list[int]] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)
    mem_mb: dict[str, int] = field(default_factory=dict)
    start: float | None = None
    end: float | None = None
    deadline: float | None = None
    warned: bool = False
    restarts: int = 0
    exit_code: str = "0:0"
    comment: str = ""
    cancelled_by: int | None = None
    ending: Ending | None = None
    grace_until: float | None = None
    process: subprocess.Popen[bytes] | None = None
    output: str = ""
    history: list[Attempt] = field(default_factory=list)

    @property
    def shown_state(self) -> str:
        """COMPLETING while processes are being ended, whatever comes after."""
        return "COMPLETING" if self.ending else self.state

    @property
    def array_id(self) -> int:
        return self.array.id if self.array else self.id

    @property
    def throttle(self) -> int:
        return self.array.throttle if self.array else 0
