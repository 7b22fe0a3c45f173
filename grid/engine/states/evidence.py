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
from grid.engine.slurm.scheduler_cache import Answer, Facts, Job, array_id
from grid.engine.states import chunk_submission, job_logs, ledger
from grid.engine.states.judge import Record, judge
from grid.engine.states.ledger import Submission
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder, ids_to_ask
from grid.engine.states.runs import Run
from grid.engine.states.state import Claim, State, gated

CACHE = Path("jobs") / "scheduler.json"
EXPLAINED = {"done", "failed", "diverged"}  # the run's own word explains these states


@dataclass(frozen=True)
class View:
    """The states of some runs at one moment, and the evidence for them."""

    states: Mapping[str, State]  # run folder, as seen from the checkout -> state
    claims: Mapping[str, Claim] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)  # run folder -> the scheduler's word on its array element
    answer: Answer | None = None  # None: there was nothing to ask
    submissions: Sequence[Submission] = ()
    # states of runs that were submitted in these folders and not asked for
    others: Mapping[str, State] = field(default_factory=dict)


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

    The scheduler is asked once, where something hangs on it; accounting is asked once more, where a job has left the
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
    if ids := ids_to_ask((record, claims.get(run)) for run, record in records.items()):
        answer = scheduler.ask(ids, cache=root / CACHE, max_age_s=max_age_s, marks=marks)
        if any(
            claim.element and answer.covers(claim.element) and not answer.job(claim.element)
            for claim in claims.values()
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
    view = View(states, claims, jobs, answer, submissions)
    view = _explained(view, records, noted, passed_on, marks, root, now)
    wanted = {run: view.states[run] for run in run_dirs}
    return replace(view, states=wanted, others={run: state for run, state in view.states.items() if run not in wanted})


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


def recall(elements: Sequence[str], folder: str, root: Path, answer: Answer | None) -> None:
    """Cancel these elements, which ``answer`` told of, and remember it."""
    scheduler.cancel(elements)
    jobs = answer.jobs if answer is not None else {}
    ledger.note_cancelled(root, folder, elements, time.time(), scheduler.cluster_name(), jobs)


def settle(submissions: Iterable[Submission], root: Path) -> list[Submission]:
    """The submissions with every sbatch call accounted for (see ``chunk_submission.settle``)."""
    return [item if item.is_complete else chunk_submission.settle(item, root, scheduler.find) for item in submissions]
