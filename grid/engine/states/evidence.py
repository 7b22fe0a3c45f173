"""Everything that is known of the runs of a sweep.

It comes from their own files, from the records of what was submitted, and from one query of the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grid.engine.slurm import scheduler
from grid.engine.slurm.scheduler_cache import LIVE, STOPPED, WAITING, Answer, Facts, Job, array_id
from grid.engine.states import chunk_submission, job_logs, ledger
from grid.engine.states.judge import Record, judge
from grid.engine.states.ledger import Submission
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder, ids_to_ask
from grid.engine.states.runs import Run
from grid.engine.states.state import Claim, State, gated

CACHE = Path("jobs") / "scheduler.json"
BEAT_S = 5.0  # a heartbeat moves about every 2 s
EXPLAINED = {"done", "failed", "diverged"}  # the run's own word explains these states


@dataclass(frozen=True)
class Task:
    """An array task on record that is in the queue, whatever became of its runs."""

    element: str
    job: Job
    runs: Sequence[str]  # run folders
    submission: Submission
    recalled: bool  # cancelled from here in the life that its job is in

    @property
    def has_begun(self) -> bool:
        """Whether SLURM has started it."""
        return self.job.word not in WAITING


@dataclass(frozen=True)
class View:
    """The states of some runs at one moment, and the evidence for them."""

    states: Mapping[str, State]  # run folder, as seen from the checkout -> state
    claims: Mapping[str, Claim] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)  # run folder -> the scheduler's word on its array element
    answer: Answer | None = None  # None: there was nothing to ask
    submissions: Sequence[Submission] = ()
    queue: Sequence[Task] = ()
    # states of runs that were submitted in these folders and not asked for
    others: Mapping[str, State] = field(default_factory=dict)

    @property
    def strays(self) -> list[Task]:
        """The tasks in the queue that no run is told to wait for: an earlier submission's, or those of runs that ended.

        A script that has begun is no stray while its own runs are told of it: it is about to end.
        """
        every = {**self.states, **self.others}
        told = {state.element for state in every.values() if state.word in ("pending", "running", "unknown")}
        told |= {
            self.claims[run].element for task in self.queue if task.has_begun for run in task.runs if run in self.claims
        }
        return [task for task in self.queue if not task.recalled and task.element not in told]


def of(runs: Sequence[Run], root: Path, *, max_age_s: float = scheduler.MAX_AGE_S) -> View:
    """What is known of these runs of one folder, of which there is at least one (see ``look``).

    What a run waits for has a say in its state.
    """
    wanted = [run.run_dir for run in runs]
    firsts = dict.fromkeys(first for run in runs for first in run.after)
    view = look([*wanted, *firsts], [runs[0].experiment.folder], root, max_age_s=max_age_s)
    if not firsts:
        return view
    states = dict(view.states)
    for run in runs:  # what is waited for stands before
        if run.after:
            states[run.run_dir] = gated(states[run.run_dir], [(label, states[at]) for at, label in run.after.items()])
    others = {run: states[run] for run in firsts if run in view.claims and run not in wanted}
    return replace(view, states={run: states[run] for run in wanted}, others={**view.others, **others})


def look(
    run_dirs: Collection[str], folders: Collection[str], root: Path, *, max_age_s: float = scheduler.MAX_AGE_S
) -> View:
    """The states of these runs of ``runs/<folders>``, and of all other runs that were submitted there.

    The scheduler is asked once, where anything was submitted; accounting is asked once more, where a job has left the
    queue and neither the run nor an earlier look tells how.  ``max_age_s`` is the oldest answer that will do.
    """
    submissions = [item for folder in folders for item in ledger.read_all(root, folder)]
    noted = ledger.cancelled(root, folders)
    claims = ledger.claims(submissions, root)
    records = {run: RunFolder(root / run).record() for run in dict.fromkeys([*run_dirs, *claims])}
    marks = {
        **_by_hand(record for record in records.values() if isinstance(record, Mapping)),
        **ledger.marks(submissions),
    }
    answer = None
    ids = ids_to_ask((record, claims.get(run)) for run, record in records.items())
    if ids := ids | _on_record(submissions):
        answer = scheduler.ask(ids, cache=root / CACHE, max_age_s=max_age_s, marks=marks)
        if any(
            claim.element and answer.covers(claim.element) and not answer.job(claim.element)
            for run, claim in claims.items()
            if not _says(records[run], "done")
        ):
            answer = replace(answer, keeps_s=_facts(root).min_job_age_s)
    now = time.time()
    jobs_known = answer.jobs if answer is not None else {}
    claims = {
        run: replace(claim, recalled=True)
        if claim.element and ledger.is_cancelled(noted, claim.element, claim, jobs_known.get(claim.element))
        else claim
        for run, claim in claims.items()
    }
    states, jobs = {}, {}
    passed_on = ledger.passed_on(submissions, claims)
    for run, record in records.items():
        states[run] = judge(record, claims.get(run), None, answer, now)
        element = states[run].element if run not in passed_on else ""
        if answer is not None and element and (job := answer.job(element)) is not None:
            jobs[run] = job
            states[run] = judge(record, claims.get(run), job, answer, now)
    for run in _moving({run for run in jobs if _is_doubtful(records[run], states[run], jobs[run])}, records, root):
        states[run] = judge(records[run], claims.get(run), jobs[run], answer, now, moves=True)
    view = View(states, claims, jobs, answer, submissions, _queue(submissions, answer, noted))
    view = _explained(view, records, noted, passed_on, marks, root, now)
    wanted = {run: view.states[run] for run in run_dirs}
    return replace(view, states=wanted, others={run: state for run, state in view.states.items() if run not in wanted})


def _on_record(submissions: Iterable[Submission]) -> set[str]:
    """The ids of all arrays that were submitted to this cluster."""
    cluster = scheduler.cluster_name()
    return {
        chunk.job_id
        for item in submissions
        for chunk in item.chunks
        if chunk.is_settled and (not cluster or chunk.cluster in ("", cluster))
    }


def _queue(submissions: Iterable[Submission], answer: Answer | None, noted: ledger.Cancelled) -> list[Task]:
    """The array tasks on record that are in the queue; an id that was given twice is the later array's."""
    found: dict[str, Task] = {}
    if answer is None or not answer.reachable:
        return []
    for item in submissions:
        for chunk in item.chunks:
            if not chunk.is_settled or (chunk.cluster and answer.cluster not in ("", chunk.cluster)):
                continue
            for index, runs in chunk.indexed():
                element = f"{chunk.job_id}_{index}"
                if (job := answer.jobs.get(element)) is not None and not job.is_over:
                    claim = Claim(element, chunk.at, cluster=chunk.cluster)
                    found[element] = Task(element, job, runs, item, ledger.is_cancelled(noted, element, claim, job))
    return list(found.values())


def _says(record: Record, word: str) -> bool:
    return isinstance(record, Mapping) and record.get("state") == word


def _is_doubtful(record: Record, state: State, job: Job) -> bool:
    """Whether a run says that it runs, its job does, and the clocks say otherwise."""
    is_at_work = job.word in LIVE - STOPPED and job.word != "COMPLETING"
    return is_at_work and _says(record, "running") and state.word in ("pending", "unknown")


def _moving(doubtful: Collection[str], records: Mapping[str, Record], root: Path) -> set[str]:
    """Those of these runs whose heartbeat moves while we look."""
    moving: set[str] = set()
    end = time.monotonic() + BEAT_S
    while (left := set(doubtful) - moving) and time.monotonic() < end:
        time.sleep(0.1)
        for run in left:
            before, record = records[run], RunFolder(root / run).record()
            if isinstance(before, Mapping) and isinstance(record, Mapping) and _says(record, "running"):
                moving |= {run} if record.get("heartbeat") != before.get("heartbeat") else set()
    return moving


def _by_hand(records: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The names of jobs that nobody wrote down, by array id, as their runs tell them."""
    found: dict[str, set[str]] = {}
    for record in records:
        ids = record.get("slurm")
        name = ids.get("SLURM_JOB_NAME") if isinstance(ids, Mapping) else None
        if isinstance(name, str) and (element := own_element(record)):
            found.setdefault(array_id(element), set()).add(name)
    return found


def _explained(
    view: View,
    records: Mapping[str, Record],
    noted: ledger.Cancelled,
    passed_on: Collection[str],
    marks: scheduler.Marks,
    root: Path,
    now: float,
) -> View:
    """The view, with explanations of jobs that left the queue where their runs gave none.

    They come from our own record (``noted``: cancelled elements) and from accounting.
    """
    answer = view.answer
    if answer is None or not answer.reachable:
        return view
    gone = [
        run
        for run, state in view.states.items()
        if state.element and state.word not in EXPLAINED and (run in passed_on or answer.job(state.element) is None)
    ]
    # SLURM forgets at once, accounting included, what is cancelled while it waits beside others of its array
    told = {
        run: Job("CANCELLED")
        for run in gone
        if ledger.is_cancelled(noted, view.states[run].element, view.claims.get(run))
    }
    if asking := [run for run in gone if run not in told and run not in passed_on]:
        since = min((view.claims[run].submitted_at for run in asking if run in view.claims), default=now)
        ends = _accounts([view.states[run].element for run in asking], since, marks, root)
        told |= {run: end for run in asking if (end := ends.get(view.states[run].element)) is not None}
    unbegun = job_logs.without_log(view.submissions, {run for run in gone if run not in told or run in passed_on}, root)
    never = {run for run in unbegun if _never_spoke(run, records, view)}
    left = Job("CANCELLED", "it left the queue before it began")
    states, jobs = dict(view.states), dict(view.jobs)
    for run in gone:
        job = left if run in never else None if run in passed_on else told.get(run)
        if job is not None:
            jobs[run] = job
            states[run] = judge(records[run], view.claims.get(run), job, answer, now)
    return replace(view, states=states, jobs=jobs)


def _facts(root: Path) -> Facts:
    """The cluster's limits; where nobody tells, it has no accounting and lists no ended job."""
    try:
        return scheduler.facts(root / CACHE)
    except scheduler.Unreachable:
        return Facts(min_job_age_s=0)


def _never_spoke(run: str, records: Mapping[str, Record], view: View) -> bool:
    """Whether neither the run nor its script wrote anything about this job."""
    claim, record = view.claims.get(run), records[run]
    mine = isinstance(record, Mapping) and own_element(record) == view.states[run].element
    return claim is not None and claim.ended_code is None and not mine


def _accounts(elements: Sequence[str], since: float, marks: scheduler.Marks, root: Path) -> dict[str, Job]:
    """The ends of these elements according to accounting; nothing where there is no accounting."""
    if not _facts(root).accounting:
        return {}
    told = scheduler.history(elements, since, cache=root / CACHE, marks=marks)
    return {element: job for element in elements if (job := told.job(element)) is not None}


def recall(
    elements: Sequence[str], folder: str, root: Path, answer: Answer | None, *, only_waiting: bool = False
) -> list[str]:
    """Cancel these elements, which ``answer`` told of, and remember it.

    Returns those that were; with ``only_waiting`` those that SLURM has started meanwhile are left alone.
    """
    jobs = answer.jobs if answer is not None else {}
    scheduler.cancel(elements, only_waiting=only_waiting)
    if only_waiting:
        now = scheduler.ask({array_id(element) for element in elements}, max_age_s=0)
        if not now.reachable:
            raise ValueError(f"it is not known which scripts were cancelled: {now.error}; look again with status")
        elements = [element for element in elements if (job := now.jobs.get(element)) is None or job.is_over]
    ledger.note_cancelled(root, folder, elements, time.time(), scheduler.cluster_name(), jobs)
    return list(elements)


def settle(submissions: Iterable[Submission], root: Path) -> list[Submission]:
    """The submissions with every sbatch call accounted for (see ``chunk_submission.settle``)."""
    return [item if item.is_complete else chunk_submission.settle(item, root, scheduler.find) for item in submissions]
