"""The cache of the scheduler's answers between commands: jobs/scheduler.json, one section per cluster.

The file only saves questions, so nothing depends on it: a file that is damaged, foreign or cannot be written counts as
missing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from files import plain
from files.atomic import write_text

FORMAT = 1
KEEP_S = 60 * 86400.0  # ids that nobody asked for in so long are dropped

WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
LIVE = {
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "RESIZING",
    "STAGE_OUT",
    "POWER_UP_NODE",
    "UPDATE_DB",
}
STOPPED = {"SUSPENDED", "STOPPED"}  # alive, and its processes do nothing
FAILURES = {
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
}
NODE_FAILURES = {"NODE_FAIL", "BOOT_FAIL"}  # the node did not answer: its processes may live on, out of SLURM's reach
ENDS = FAILURES | {"COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED"}


class Unreachable(ConnectionError):
    """The error that the scheduler gave no answer: what was asked of it may or may not have happened."""


class Full(Unreachable):
    """The error that the controller has no room for another job now (MaxJobCount).

    It lets sbatch wait then; sbatch is ended before it asks again.
    """


def array_id(element: str) -> str:
    """The array id in the name of an element: ``123`` for ``123_4``."""
    return element.partition("_")[0]


@dataclass(frozen=True)
class Job:
    """One array element (or job) as SLURM reports it. Times are seconds since 1970."""

    word: str  # PENDING RUNNING COMPLETING COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED ...
    reason: str = ""  # why it waits, or how it failed, in SLURM's words
    node: str = ""
    exit_code: int | None = None  # the exit code of its script; only accounting tells it
    start: float | None = None
    end: float | None = None  # only ended jobs have one
    queued: float | None = None  # for other jobs: when it was submitted, or queued again

    @property
    def is_over(self) -> bool:
        return self.word in ENDS


@dataclass(frozen=True)
class Answer:
    """An answer of the scheduler. An element whose id was asked for and that is not in ``jobs`` is not in the queue."""

    asked: float  # when, in seconds since 1970; of several ids the earliest
    jobs: Mapping[str, Job]  # "123_4" (or "123") -> Job; ranges are expanded
    reachable: bool = True
    error: str = ""
    ids: frozenset[str] = frozenset()  # asked for
    cluster: str = ""
    # element or id -> when it was first looked for in vain; see ``gone``
    missed: Mapping[str, float] = field(default_factory=dict)
    keeps_s: float = 0.0  # an ended job stays in the queue's list at least so long

    def gone(self, element: str) -> float:
        """A moment by which an element that is not in the queue had ended."""
        return self.missed.get(element, self.missed.get(array_id(element), self.asked)) - self.keeps_s

    def covers(self, element: str) -> bool:
        """Whether the absence of this element means something."""
        return self.reachable and array_id(element) in self.ids

    def job(self, element: str) -> Job | None:
        """The element's entry; SLURM names an array that was cancelled as a whole by its bare id."""
        return self.jobs.get(element) or self.jobs.get(array_id(element))


@dataclass(frozen=True)
class Facts:
    """The limits in the output of ``scontrol show config``."""

    max_array_size: int = 1001  # the largest index is one less
    accounting: bool = False  # whether sacct knows anything
    min_job_age_s: int = 300  # an ended job stays in the queue's list so long
    max_job_count: int = 10000
    max_submit: int | None = None  # jobs that one user may have submitted at once, where accounting sets a limit


@dataclass
class Known:
    """One cluster's section of the file, in the form it is written."""

    ids: dict[str, tuple[float, dict[str, Job]]] = field(default_factory=dict)  # array id -> when asked, its jobs
    # array id -> when it, and when an element, was first not there
    missed: dict[str, dict[str, float]] = field(default_factory=dict)
    history: dict[str, float] = field(default_factory=dict)  # array id -> when accounting was asked
    failures: tuple[int, float, str] = (0, 0.0, "")  # the number in a row, when the last one was, its words
    facts: tuple[float, Facts] | None = None

    def put(self, now: float, ids: Iterable[str], jobs: Mapping[str, Job]) -> None:
        """Store a new answer for these ids. Ends that were known stay, because the queue forgets them."""
        found: dict[str, dict[str, Job]] = {name: {} for name in ids}
        for element, job in jobs.items():
            if array_id(element) in found:
                found[array_id(element)][element] = job
        for name, new in found.items():
            before = self.ids.get(name, (0.0, {}))[1]
            ended = {element: job for element, job in before.items() if job.is_over}
            self.ids[name] = (now, {**ended, **new})
            missed = self.missed.setdefault(name, {name: now})  # whatever was never seen had ended by the first look
            for element in before.keys() - new.keys() - ended.keys():
                missed.setdefault(element, now)

    def answer(self, ids: Collection[str], cluster: str) -> Answer:
        """An answer with all that is known of these ids, which must have been asked for."""
        jobs = {element: job for name in ids for element, job in self.ids[name][1].items()}
        missed = {element: at for name in ids for element, at in self.missed.get(name, {}).items()}
        return Answer(
            min((self.ids[name][0] for name in ids), default=0.0),
            jobs,
            ids=frozenset(ids),
            cluster=cluster,
            missed=missed,
        )


# --- the file -----------------------------------------------------------------------------------------------------


def read(path: Path | None, cluster: str) -> Known:
    """The section of a cluster in the file; an empty one where the file is missing, damaged or unreadable."""
    return _known(_sections(path).get(cluster))


def write(path: Path | None, cluster: str, known: Known, now: float) -> None:
    """Store the section for the next command. A file that cannot be written only costs that command a question."""
    if path is None:
        return
    kept = {name: entry for name, entry in known.ids.items() if now - entry[0] < KEEP_S}
    entries = {
        name: {"asked": asked, "jobs": {el: _brief(job) for el, job in jobs.items()}}
        for name, (asked, jobs) in kept.items()
    }
    section = {
        "ids": {name: {**entry, "missed": known.missed.get(name, {})} for name, entry in entries.items()},
        "history": {name: asked for name, asked in known.history.items() if name in kept},
        "failures": list(known.failures),
        "facts": {"asked": known.facts[0], **asdict(known.facts[1])} if known.facts else None,
    }
    text = json.dumps({"format": FORMAT, "clusters": {**_sections(path), cluster: section}}, separators=(",", ":"))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


def _sections(path: Path | None) -> dict[str, Any]:
    try:
        values = json.loads(plain.read_bytes(path, None)) if path else None
    except (OSError, ValueError, RecursionError):
        return {}
    values = _table(values)
    return _table(values.get("clusters")) if values.get("format") == FORMAT else {}


def _brief(job: Job) -> dict[str, Any]:
    """The values that differ from the defaults: thus an array of a thousand elements takes 80 kB."""
    return {part.name: value for part in fields(job) if (value := getattr(job, part.name)) != part.default}


def _known(section: Any) -> Known:
    """The section, with every value of a wrong kind left out."""
    values, known = _table(section), Known()
    for name, entry in _table(values.get("ids")).items():
        entry = _table(entry)
        jobs = {element: job for element, value in _table(entry.get("jobs")).items() if (job := _checked(Job, value))}
        if isinstance(asked := entry.get("asked"), float) and len(jobs) == len(_table(entry.get("jobs"))):
            known.ids[name] = (asked, jobs)
            known.missed[name] = {
                element: at for element, at in _table(entry.get("missed")).items() if isinstance(at, float)
            }
    known.history = {name: asked for name, asked in _table(values.get("history")).items() if isinstance(asked, float)}
    match values.get("failures"):
        case [int() as count, float() as at, str() as words]:
            known.failures = (max(0, count), at, words)
    facts = dict(_table(values.get("facts")))
    asked = facts.pop("asked", None)
    if isinstance(asked, float) and (checked := _checked(Facts, facts)):
        known.facts = (asked, checked)
    return known


def _checked(kind: Any, values: Any) -> Any:
    """A frozen record of these values; None where a name or a value's type is not its own."""
    if not isinstance(values, dict):
        return None
    types = {part.name: part.type for part in fields(kind)}
    required = {part.name for part in fields(kind) if part.default is MISSING}
    if not values.keys() <= types.keys() or not required <= values.keys():
        return None
    return (
        kind(**values)
        if all(type(value).__name__.removesuffix("Type") in str(types[name]) for name, value in values.items())
        else None
    )


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
