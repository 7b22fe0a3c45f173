"""The record of each submission to SLURM, so that nothing is submitted twice and nothing is forgotten.

``jobs/sweeps/<folder>/<id>/submission.json`` names every array (*chunk*) with the runs of each of its elements, and how
far handing it over came: ``written`` (not yet handed over), ``asked`` (sbatch was called and its answer is not known),
``submitted`` (with the job's id) or ``refused`` (with SLURM's words).  The record is on disk before sbatch is called
and again after it; what became of a call without an answer is found out by the job's name, which no other job has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from files import plain
from files.atomic import write_text
from grid.engine.slurm.scheduler_cache import Job, array_id
from grid.engine.states.run_files import read_ledger
from grid.engine.states.state import Claim
from nuq.settings import check, named, setting
from nuq.settings import read as record
from settings.resources import Resources

RECORD = "submission.json"
CANCELLED = "cancelled"
CLOCKS_S = 60.0  # by which those of two login nodes may differ; no cluster gives an id again as soon
# what sbatch says where it cannot have handed over anything
NEVER_REACHED = re.compile("unable to contact|connection refused|connect failure|temporarily un", re.IGNORECASE)
NO_JOBS: Mapping[str, Job] = MappingProxyType({})
T = TypeVar("T")
_MOMENT = re.compile(r"[0-9]{1,12}\.[0-9]{3}")
STATES = WRITTEN, ASKED, SUBMITTED, REFUSED = ("written", "asked", "submitted", "refused")
CONDITIONS = ("afterok", "afterany")  # another chunk has to succeed, or to end


# --- what a record holds ------------------------------------------------------------------------------------------


def below(folder: str) -> tuple[str, str]:
    """The ``pattern`` of a path below a folder of the checkout, which it does not leave."""
    return rf"(?s){folder}/(?!(.*/)?\.\.(/|\Z))(?!(\.?/)*\.?\Z)[^\0]+", f"a path below {folder}/"


ANY_TEXT = (r"(?s).*", "text")
NAME = (r"\w[\w.-]*", "letters, digits, '_', '-' and '.'")  # of a submission, array or folder: a part of file names
RUN_PATH = below("runs")


def asked(values: Any) -> Any:
    """The resources of an experiment, or some of them; ValueError where ``Resources`` does not take them."""
    Resources().merged(named(values))
    return values


@dataclass(frozen=True)
class Chunk:
    """One array job: element i runs the runs of ``elements[i]``."""

    name: str = setting(MISSING, "its name in the submission", pattern=NAME)
    resources: Mapping[str, Any] = setting(MISSING, "one experiment's, as Resources takes them", parse=asked)
    elements: Sequence[Sequence[str]] = setting(MISSING, "run folders, as seen from the checkout", pattern=RUN_PATH)
    cap: int | None = setting(None, "at most this many elements run at once", low=1)
    after: Sequence[tuple[str, str]] = setting((), "one of CONDITIONS, and the name of another chunk", pattern=ANY_TEXT)
    state: str = setting(WRITTEN, "how far handing it over came", choices=STATES)
    job_id: str = setting("", "SLURM's", pattern=("[0-9]{0,18}", "the number of a job"))
    at: float = setting(0.0, "when it was handed over, in seconds since 1970", low=0, high=1e12)
    cluster: str = setting("", "the cluster to which it was handed over", pattern=ANY_TEXT)
    error: str = setting("", "what was said against it", pattern=ANY_TEXT)
    first: int = setting(0, "index of the first element", low=0)
    scripts: str = setting(
        "",
        "element i runs <scripts>_<i>.sh, as seen from the checkout; empty: <name>_<i>.sh beside the record",
        pattern=below("jobs"),
    )

    @property
    def indices(self) -> range:
        return range(self.first, self.first + len(self.elements))

    def indexed(self) -> Iterator[tuple[int, Sequence[str]]]:
        """The array index and the runs of every element."""
        return zip(self.indices, self.elements, strict=True)

    @property
    def runs(self) -> list[str]:
        return [run for runs in self.elements for run in runs]

    @property
    def is_settled(self) -> bool:
        return self.state == SUBMITTED


@dataclass(frozen=True)
class _Code:
    """What is read of the code of a submission."""

    digest: str = setting(MISSING, "the snapshot's", pattern=ANY_TEXT)
    path: str = setting("", "of the snapshot that the jobs run; empty: the checkout itself", pattern=below("jobs"))


def _code(values: Any) -> Any:
    check(_Code, named(values))
    return values


@dataclass(frozen=True)
class Submission:
    """All that one ``submit`` or ``retry`` hands over."""

    folder: str = setting(MISSING, "the folder of the runs, below runs/", pattern=NAME)
    id: str = setting(MISSING, "see new_id", pattern=NAME)
    title: str = setting(MISSING, "the sweep's", pattern=ANY_TEXT)
    code: Mapping[str, Any] = setting(MISSING, "commit and dirty beside what _Code has", parse=_code)
    parallel: int = setting(MISSING, "runs of a script at a time", low=1)
    chunks: Sequence[Chunk] = setting(MISSING, "its arrays")
    is_part: bool = setting(
        False, "of a sweep with other seeds or settings than its own: the whole sweep says nothing of its runs"
    )
    owner: str = setting("", "the sweep, as .sweeps names it; older records do not tell", pattern=ANY_TEXT)
    version: int = setting(1, "of this form of the record")

    def place(self, root: Path) -> Path:
        return folder_of(root, self.folder) / self.id

    def job_name(self, chunk: Chunk) -> str:
        """The name by which SLURM knows the array: no other job has it."""
        return f"{self.folder}-{self.id}-{chunk.name}"

    def base(self, root: Path, chunk: Chunk) -> Path:
        """The beginning of the names of the elements' scripts and ledgers."""
        return root / chunk.scripts if chunk.scripts else self.place(root) / chunk.name

    def script(self, root: Path, chunk: Chunk, index: int) -> Path:
        base = self.base(root, chunk)
        return base.with_name(f"{base.name}_{index}.sh")

    def sbatch(self, root: Path, chunk: Chunk) -> Path:
        base = self.base(root, chunk)
        return base.with_name(f"{base.name}{'_slurm' if chunk.scripts else ''}.sbatch")

    def with_chunk(self, chunk: Chunk) -> Submission:
        """The submission with this chunk in the place of the one of its name."""
        return dataclasses.replace(self, chunks=[chunk if chunk.name == old.name else old for old in self.chunks])

    def chunk(self, name: str) -> Chunk:
        return next(chunk for chunk in self.chunks if chunk.name == name)

    def split(self, name: str, count: int) -> Submission:
        """The submission with the first ``count`` elements of a chunk as an array of their own before it.

        Neither of the two is handed over.

        Where a cap holds, the rest waits for the end of the first: together they run no more than it says.
        """
        whole = dataclasses.replace(self.chunk(name), state=WRITTEN, at=0.0, error="")
        number = sum(1 for chunk in self.chunks if re.fullmatch(rf"{re.escape(name)}w\d+", chunk.name))
        first = dataclasses.replace(whole, name=f"{name}w{number}", elements=whole.elements[:count])
        after = (
            whole.after
            if whole.cap is None
            else [*(pair for pair in whole.after if pair[0] == "afterok"), ("afterany", first.name)]
        )
        rest = dataclasses.replace(whole, elements=whole.elements[count:], after=after)
        chunks = [
            part
            for chunk in self.chunks
            for part in ([first, rest] if chunk.name == name else [_waits_for_both(chunk, whole, first)])
        ]
        return dataclasses.replace(self, chunks=chunks)

    @property
    def left(self) -> Sequence[Chunk]:
        """The chunks that are still to be handed over."""
        return [chunk for chunk in self.chunks if not chunk.is_settled]

    @property
    def is_complete(self) -> bool:
        return not self.left

    def save(self, root: Path) -> None:
        """Write the record, and have it on the disk when this returns."""
        self.place(root).mkdir(parents=True, exist_ok=True)
        # asdict copies every run's name, at every step
        values = {**vars(self), "chunks": [vars(chunk) for chunk in self.chunks]}
        text = json.dumps({"version": self.version, **values})
        write_text(self.place(root) / RECORD, text)
        with (self.place(root) / RECORD).open() as file:
            os.fsync(file.fileno())


def _waits_for_both(chunk: Chunk, whole: Chunk, first: Chunk) -> Chunk:
    """The chunk, which waits for the first part of ``whole`` too where it waits for the rest.

    Under a cap the rest waits for the first part itself.
    """
    also = [(how, first.name) for how, name in chunk.after if name == whole.name and whole.cap is None]
    return dataclasses.replace(chunk, after=[*chunk.after, *also]) if also else chunk


def new_id(now: float) -> str:
    """A new name that no other submission has; names sort in the order of time.

    Jobs are found by it beside those of other checkouts.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{int(now % 1 * 1000):03}{secrets.token_hex(3)}"


def folder_of(root: Path, folder: str) -> Path:
    """The folder in which the submissions of ``runs/<folder>`` are kept."""
    return root / "jobs" / "sweeps" / folder


def read(path: Path) -> Submission:
    """The record in a file; ValueError where it is damaged."""
    try:
        item = record(Submission, json.loads(plain.read_bytes(path, None)))
        names = {chunk.name for chunk in item.chunks}
        if len(names) < len(item.chunks) or any(name not in names for chunk in item.chunks for _, name in chunk.after):
            raise ValueError("chunks: two of one name, or one that waits for none of them")
        if unknown := [how for chunk in item.chunks for how, _ in chunk.after if how not in CONDITIONS]:
            raise ValueError(f"after={unknown[0]!r}: must be one of {', '.join(CONDITIONS)}")
        if not all(chunk.job_id for chunk in item.chunks if chunk.is_settled):
            raise ValueError("chunks: one is submitted and has no job")
        return item
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}); it says which runs are in the queue: put it back, "
            "or move it away if none of them is"
        ) from error


def read_all(root: Path, folder: str) -> list[Submission]:
    """The submissions of a folder of runs, oldest first."""
    return [read(path) for path in sorted(folder_of(root, folder).glob(f"*/{RECORD}"))]


# --- who is to run what -------------------------------------------------------------------------------------------


def claims(submissions: Sequence[Submission], root: Path) -> dict[str, Claim]:
    """The latest array element that is to run each run, by run folder; a chunk not handed over makes no claim."""
    found: dict[str, Claim] = {}
    for submission in submissions:
        for chunk in submission.chunks:
            if chunk.state not in (ASKED, SUBMITTED):
                continue
            base = submission.base(root, chunk)
            for index, runs in chunk.indexed():
                element = f"{chunk.job_id}_{index}" if chunk.state == SUBMITTED else None
                ended = read_ledger(base.with_name(f"{base.name}_{index}.ended"))
                for turn, run in enumerate(runs):
                    if run not in found or found[run].submitted_at <= chunk.at:
                        code, life, written = ended.get(run, (None, 0, 0.0))
                        found[run] = Claim(
                            element, chunk.at, turn == 0, code, chunk.cluster, ended_life=life, ended_at=written
                        )
    return found


def marks(submissions: Sequence[Submission]) -> dict[str, set[str]]:
    """The marks by which the job of each array id is known: its name, and the end of the path of its sbatch file.

    Somebody may rename a job.
    """
    found: dict[str, set[str]] = {}
    for item in submissions:
        for chunk in item.chunks:
            if chunk.is_settled:
                file = item.sbatch(Path(), chunk)
                end = file.name if chunk.scripts else f"{item.id}/{file.name}"
                found.setdefault(chunk.job_id, set()).update((item.job_name(chunk), end))
    return found


def passed_on(submissions: Sequence[Submission], found: Mapping[str, Claim]) -> set[str]:
    """The runs whose array id the cluster has given to a later array of ours, because it began its ids anew.

    What the queue says of that id is not said of their elements.
    """
    latest: dict[tuple[str, str], float] = {}
    for item in submissions:
        for chunk in item.chunks:
            if chunk.is_settled:
                key = chunk.cluster, chunk.job_id
                latest[key] = max(chunk.at, latest.get(key, 0.0))
    return {
        run
        for run, claim in found.items()
        if claim.element and claim.submitted_at < latest.get((claim.cluster, array_id(claim.element)), 0.0)
    }


class Recall(NamedTuple):
    """An element that was cancelled from here."""

    at: float  # when, in the time of this machine; inf where nobody noted it
    queued: float | None = None  # when its job had last been queued, in SLURM's time: a later life is not meant


Cancelled = Mapping[str, Mapping[str, Recall]]  # element -> cluster -> the last time


def note_cancelled(
    root: Path, folder: str, elements: Sequence[str], now: float, cluster: str, jobs: Mapping[str, Job] = NO_JOBS
) -> None:
    """Remember which elements of a cluster were cancelled from here, when, and in which life of their ``jobs``.

    SLURM, accounting included, forgets at once the elements that had not begun.
    """
    queued = {element: job.queued for element, job in jobs.items() if job.queued is not None}
    with (folder_of(root, folder) / CANCELLED).open("a") as file:
        for element in elements:
            life = f"@{queued[element]:.3f}" if element in queued else ""
            file.write(f"{element}@{now:.3f}@{cluster}{life}\n")


def cancelled(root: Path, folders: Iterable[str]) -> Cancelled:
    """The elements that ``note_cancelled`` remembered, with the last time of each by cluster.

    The cluster is empty where nobody knew it.
    """
    found: dict[str, dict[str, Recall]] = {}
    for path in (folder_of(root, folder) / CANCELLED for folder in folders):
        with contextlib.suppress(FileNotFoundError):
            for line in plain.read_bytes(path, None).decode(errors="replace").splitlines():
                element, _, noted = line.partition("@")
                moment, cluster, queued = [*noted.split("@", 2), "", ""][:3]
                recall = Recall(_moment(moment, math.inf), _moment(queued, None))
                times = found.setdefault(element, {})
                times[cluster] = max(recall, times.get(cluster, recall), key=lambda item: item.at)
    return found


def is_cancelled(noted: Cancelled, element: str, claim: Claim | None, job: Job | None = None) -> bool:
    """Whether a run's element was cancelled from here, in the life that its ``job`` is in.

    It was not where another cluster's was, or an earlier one whose id the cluster has given again.
    """
    since, cluster = (claim.submitted_at, claim.cluster) if claim and claim.element == element else (0.0, "")
    recalls = (item for name, item in noted.get(element, {}).items() if name == cluster or not name or not cluster)
    return any(since <= item.at + CLOCKS_S and not _came_back(item, job) for item in recalls)


def _came_back(recall: Recall, job: Job | None) -> bool:
    """Whether the job was queued again after it had been cancelled, as anybody may ask of SLURM."""
    if job is None or job.queued is None:
        return False
    return job.queued > (recall.at + CLOCKS_S if recall.queued is None else recall.queued)


def _moment(text: str, otherwise: T) -> float | T:
    return float(text) if _MOMENT.fullmatch(text) else otherwise
