"""The state of a run, judged from all that it, its job script and the scheduler leave behind: a pure function.

A state never claims more than the evidence: a state that cannot be told is ``unknown``, with the reason; a run that
may be alive is not to be started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from grid.engine.slurm.scheduler_cache import FAILURES, LIVE, NODE_FAILURES, STOPPED, WAITING, Answer, Job
from grid.engine.states.record_values import data_told, number, number_text, own_element, process_alive, text
from grid.engine.states.state import CODES, ENDED, HELD, LIVES_ON, STALE_S, SUSPENDED, Claim, Damaged, State
from settings import run

# How old what we see may be: files of other nodes appear up to a minute late, and clocks differ by as much.
LAG_S = run.lag_s(os.environ.get("NUQ_LAG_S"))
MARGIN_S = 5.0  # a heartbeat this much later than a look was written after it, as far as clocks agree


_MEANS_WORK = {"TIMEOUT", "OUT_OF_MEMORY"}  # of the job's first run, though it has said nothing yet
_HELD = re.compile(r"held|_HOLD\b|SPECIAL_EXIT", re.IGNORECASE)  # SLURM waits for a word of somebody's
_HELD_BY_ADMIN = {"JobHeldAdmin", "JobHoldMaxRequeue"}  # which SLURM lets no user release

Record = Mapping[str, Any] | Damaged | None
# (host, pid): whether the process exists; None where that cannot be told from here
Alive = Callable[[str, int], bool | None]


def judge(
    record: Record,
    claim: Claim | None,
    job: Job | None,
    answer: Answer | None,
    now: float,
    alive: Alive | None = None,
    *,
    moves: bool = False,
) -> State:
    """The state of a run from all evidence: pure, for any values in the record.

    record: what the run says of itself.  claim: the latest submission that is to run it.  job: that element's entry in
    ``answer`` (or what accounting says of its end).  answer: None where nobody was asked.  now: in the time of this
    machine.  moves: whether the record's heartbeat was seen to move, which says more than any clock.
    """
    if isinstance(record, Damaged):
        return State("unknown", record.reason, held=True, element=claim.element or "" if claim else "")
    seen = _Seen.of(record, now, alive or process_alive, moves=moves) if record is not None else None
    if claim is None and seen is not None and seen.element and (answer or job):  # submitted by hand
        claim = Claim(seen.element, seen.start, first=False, cluster=seen.cluster)
    verdict = _verdict(seen, claim, job, answer, now)
    element = (claim.element or "") if claim else (seen.element if seen else "")
    if seen is None:
        return replace(verdict, element=element)
    return replace(
        verdict,
        step=int(seen.step),
        steps=int(seen.steps),
        seconds=seen.seconds,
        attempt=int(seen.attempt),
        age_s=seen.idle_s if seen.word == "running" and seen.heartbeat > 0 else None,
        element=element,
        metrics=seen.metrics,
        code=seen.code,
        data=seen.data,
        memory_bytes=seen.memory_bytes,
    )


_NUMBERS = ("start", "heartbeat", "step", "steps", "seconds", "attempt", "memory_bytes")


@dataclass(frozen=True)
class _Seen:
    """A record with every value checked for its kind."""

    word: str
    message: str
    start: float
    heartbeat: float
    age_s: float
    idle_s: float  # since it last got on
    moves: bool  # its heartbeat did, a moment ago
    process: bool | None  # alive, gone, or not to be told
    element: str
    life: int  # restart count of its job
    cluster: str
    step: float
    steps: float
    seconds: float
    attempt: float
    memory_bytes: float
    metrics: dict[str, float]
    code: str
    data: str

    @classmethod
    def of(cls, record: Mapping[str, Any], now: float, alive: Alive, *, moves: bool) -> _Seen:
        numbers = {key: number(record.get(key)) for key in _NUMBERS}
        word, host, failure, slurm = (record.get(key) for key in ("state", "host", "failure", "slurm"))
        metrics = record.get("metrics")
        is_running = word == "running" and isinstance(host, str)
        progress = number(record.get("progress")) or numbers["heartbeat"]  # records of older code tell none
        return cls(
            word=word if isinstance(word, str) and word in ENDED | {"running"} else "",
            message=str(failure.get("message", "")) if isinstance(failure, Mapping) else "",
            age_s=0.0 if moves else now - numbers["heartbeat"],
            idle_s=(numbers["heartbeat"] if moves else now) - min(progress, numbers["heartbeat"]),
            moves=moves and is_running,
            process=alive(str(host), int(number(record.get("pid")))) if is_running else None,
            element=own_element(record) or "",
            life=int(number_text(slurm.get("SLURM_RESTART_COUNT")) or 0) if isinstance(slurm, Mapping) else 0,
            cluster=text(slurm.get("SLURM_CLUSTER_NAME")) if isinstance(slurm, Mapping) else "",
            metrics={str(key): number(value) for key, value in metrics.items()} if isinstance(metrics, Mapping) else {},
            code=text(record.get("code")),
            data=data_told(record.get("data")),
            **numbers,
        )

    @property
    def beats(self) -> bool:
        """Whether the run says that it runs, and did so a short while ago.

        A process of this machine that is gone does not beat.
        """
        return self.word == "running" and self.age_s <= STALE_S and self.process is not False

    @property
    def silence(self) -> str:
        return f"no heartbeat for {self.age_s:.0f} s"

    @property
    def heard(self) -> str:
        return f"its last heartbeat is {max(self.age_s, 0.0):.0f} s old"

    @property
    def in_array(self) -> bool:
        """Whether the run is an element of an array, as every job of ours is: it may be queued again.

        A plain job may be somebody's open shell.
        """
        return "_" in self.element


def _verdict(seen: _Seen | None, claim: Claim | None, job: Job | None, answer: Answer | None, now: float) -> State:
    if seen is not None:
        if seen.word == "done":
            return State("done")
        if not seen.word:
            return State(
                "unknown", "status.json says no state that means anything here; delete it to start the run again"
            )
        if seen.word == "running" and seen.heartbeat <= 0:
            return State("unknown", "it says running, without a heartbeat")
        if seen.word == "running" and seen.age_s < -STALE_S:
            words = f"its last heartbeat lies {-seen.age_s:.0f} s in the future: clocks differ"
            return State("unknown", f"{words}; delete its status.json once it runs no longer")
    if claim is None:
        return State("new") if seen is None else _by_files(seen)
    if claim.element is None:
        if seen is not None and seen.beats:
            return State("running")
        return State("unknown", "sbatch was asked to run it, and its answer got lost")
    mine = seen is not None and seen.element == claim.element
    # the run was started by other means, after it was submitted
    later = seen is not None and not mine and seen.start > claim.submitted_at + LAG_S
    if seen is not None and seen.beats and not mine:
        return State("running", "" if later else f"started before job {claim.element} was submitted for it")
    standing, why = _standing(claim, job, answer)
    if claim.ended_code not in (None, 75, HELD) and not later:
        return _by_ledger(seen if mine else None, claim, standing, now)
    if claim.recalled and standing in ("waiting", "live") and not (seen and mine and _has_failed(seen, job)):
        return State("cancelled", "being cancelled", held=True)
    if standing == "waiting":
        has_begun = (
            seen is not None and mine and seen.beats and answer is not None and seen.heartbeat > answer.asked + MARGIN_S
        )
        if seen is not None and mine and not has_begun and _outlived(seen, job):
            return _of_earlier_life(seen)
        return State("running") if has_begun else State("pending", why)
    if standing == "live":
        return _while_live(seen if mine else None, claim, job)
    if standing == "silent":
        return _without_answer(seen if mine or later else None, why)
    gone = answer.gone(claim.element) if answer is not None and answer.covers(claim.element) else None
    ended = job if standing == "over" else None
    verdict = _when_over(seen, mine, later, claim, ended, gone, now)
    since = ended.end if ended is not None and ended.end is not None else gone
    left_s = since + _settling_s(ended) - now if since is not None else 0.0
    return (
        replace(verdict, wait_s=left_s) if left_s > 0 and not verdict.may_start and verdict.word != "done" else verdict
    )


def _standing(claim: Claim, job: Job | None, answer: Answer | None) -> tuple[str, str]:
    """The standing of the claim's element (waiting, live, over, absent or silent), and the reason for it."""
    element = claim.element or ""
    if answer is not None and claim.cluster and answer.cluster and claim.cluster != answer.cluster:
        return "silent", f"job {element} was submitted on the cluster {claim.cluster}, and this is {answer.cluster}"
    if job is not None and job.is_over:
        return "over", job.word
    if answer is None:
        return "silent", f"the scheduler was not asked for job {element}"
    if not answer.reachable:
        return "silent", f"the scheduler does not answer: {answer.error}"
    if job is not None and job.word in WAITING:
        why = job.reason or ("" if job.word == "PENDING" else job.word)
        if job.reason in _HELD_BY_ADMIN:
            why += ": held until an administrator releases it"
        elif _HELD.search(f"{job.reason} {job.word}"):
            why += f": waits for scontrol release {element}"
        return "waiting", why
    if job is not None and job.word in LIVE:
        return "live", job.word
    if job is not None:
        return "silent", f"the scheduler calls job {element} {job.word!r}, which means nothing here"
    if not answer.covers(element) or answer.asked < claim.submitted_at - LAG_S:
        return "silent", f"the scheduler was not asked for job {element}"
    return "absent", ""


def _by_files(seen: _Seen) -> State:
    """The state from the run's files alone, where nobody else was asked."""
    if seen.word != "running":
        return State(seen.word, seen.message, held=seen.word == "preempted" and seen.in_array)
    if seen.process is False and not seen.in_array:
        return State("lost", "its process on this machine is gone")
    if seen.beats:
        return State("running")
    if seen.process:
        return State("unknown", f"{seen.silence}, yet its process exists on this machine")
    if seen.element:
        return State("unknown", f"{seen.silence} from job {seen.element}; the scheduler was not asked for it")
    return State("lost", f"{seen.silence} from its machine")


def _by_ledger(seen: _Seen | None, claim: Claim, standing: str, now: float) -> State:
    """The state of a run whose script noted an end after which it will not start the run again.

    Where it was the end of run.sh alone, the run beats on.

    seen: the record, where the claim's element wrote it.
    """
    over, code = standing in ("over", "absent"), claim.ended_code or 0
    if code == 0:
        if over and now - claim.ended_at > LAG_S and not (seen and seen.beats):
            return State("lost", "its script noted exit code 0, yet it does not say that it is done")
        return State("unknown", "its script noted exit code 0; the run's own word is not here yet")
    is_same_life = seen is not None and seen.life == claim.ended_life
    if seen and seen.beats and (seen.process or not is_same_life or seen.heartbeat > claim.ended_at + MARGIN_S):
        noted = f"its script noted exit code {code}{'' if is_same_life else f' in another life of job {claim.element}'}"
        return State("running", f"{LIVES_ON}: {noted}; {seen.heard}")
    if seen and seen.process:
        told = f"its script noted exit code {code}; {seen.silence}"
        return State("unknown", f"{told}, yet its process exists on this machine")
    word, reason = CODES.get(code, "failed"), f"exit code {code}"
    if seen and seen.word in ("failed", "diverged"):
        word, reason = seen.word, seen.message or reason
    elif seen and seen.word == "preempted" and is_same_life:
        word = "preempted"
    is_told = is_same_life and seen is not None and (seen.word != "running" or seen.process is False)
    # where run.sh alone was killed, what the run wrote in this life may not be here yet
    late_s = claim.ended_at + LAG_S - now if code > 128 and not is_told else 0.0
    wait_s = max(late_s, STALE_S - seen.age_s if seen and seen.beats else 0.0, 0.0)
    return State(word, reason, held=wait_s > 0, wait_s=wait_s)


def _while_live(seen: _Seen | None, claim: Claim, job: Job | None) -> State:
    """The state of a run whose job runs.

    seen: the record, where that job wrote it; it may be of the job's life before a requeue.
    """
    node = f" on {job.node}" if job and job.node else ""
    if job and job.word in STOPPED and (seen is None or seen.word == "running"):
        return State("pending" if seen is None or _is_before(seen, job) else "running", f"{SUSPENDED}{node}")
    if seen is not None and _is_before(seen, job) and _outlived(seen, job):
        return _of_earlier_life(seen)
    if seen is None or _is_before(seen, job):
        return State(
            "pending", f"its job begins{node}" if claim.first else f"its turn comes in the job that runs{node}"
        )
    if seen.word == "running":
        if seen.process is False:
            return State("unknown", f"its process is gone, and its job still runs{node}")
        return State("running", "" if seen.beats else f"{seen.silence}, while its job runs{node}")
    if seen.word == "preempted" and seen.in_array:
        return State("pending", "checkpointed; its job is queued again or was cancelled")
    return State(seen.word, seen.message, held=seen.in_array)


def _has_failed(seen: _Seen, job: Job | None) -> bool:
    """Whether the run failed by its own word, in the life that its job is in."""
    return seen.word in ("failed", "diverged") and not _is_before(seen, job)


def _is_before(seen: _Seen, job: Job | None) -> bool:
    """Whether the record is of a life of its job before the last requeue."""
    return job is not None and job.start is not None and seen.start < job.start - LAG_S / 2 and not seen.moves


def _outlived(seen: _Seen, job: Job | None) -> bool:
    """Whether the run beats, and did so long after its job was queued again: SLURM did not reach its processes."""
    if job is None or job.word == "COMPLETING":  # they are being ended now
        return False
    since = job.queued if job.queued is not None or job.word in WAITING else job.start
    return seen.beats and since is not None and seen.heartbeat > since + LAG_S / 2


def _of_earlier_life(seen: _Seen) -> State:
    return State("running", f"{LIVES_ON}: it began in an earlier life of its job; {seen.heard}")


def _may_outlive(seen: _Seen, job: Job | None) -> bool:
    """Whether a run that beats may live on after its job's end (None: it is no longer in the queue).

    SLURM ends the processes of a job's last life, where it reaches them; those of a life before may run on.
    """
    if job is None or job.end is None or job.start is None or job.word in NODE_FAILURES:
        return seen.beats
    return seen.beats and (_is_before(seen, job) or seen.heartbeat > job.end + LAG_S / 2)


def _without_answer(seen: _Seen | None, why: str) -> State:
    """The state while the scheduler is silent; ``seen`` is the record, where it is no older than the claim."""
    if seen is None:
        return State("unknown", why)
    if seen.word == "running":
        return State("running") if seen.beats else State("unknown", f"{seen.silence}; {why}")
    return State(seen.word, seen.message or why, held=seen.in_array or seen.word == "preempted")


def _when_over(
    seen: _Seen | None, mine: bool, later: bool, claim: Claim, job: Job | None, gone: float | None, now: float
) -> State:
    """The state of a run whose job has ended (job), or is no longer in the queue (None).

    gone: the latest time at which the job can have ended, where nobody says when it did.
    """
    word = job.word if job else ""
    told = (
        f"job {claim.element} ended: {' '.join(part for part in (word, job.reason) if part)}"
        if job
        else f"job {claim.element} is no longer in the queue"
    )
    ended = job.end if job and job.end is not None else gone
    spoke = seen if mine or later else None
    # the run is of this machine, whose files we see at once
    is_ours = job is None and spoke is not None and spoke.process is False
    is_settled = ended is None or now - ended > _settling_s(job) or is_ours
    if spoke is not None and spoke.word != "running":
        if mine and word == "CANCELLED" and spoke.word == "preempted":
            return State("cancelled", told, held=not is_settled)
        if mine and word != "PREEMPTED" and spoke.word == "preempted" and spoke.in_array:
            return State("checkpointed", f"not requeued: {told}", held=job is not None and not is_settled)
        return State(spoke.word, spoke.message, held=job is not None and not is_settled)
    if not is_settled and word == "CANCELLED" and not later:
        return State("cancelled", told, held=True)
    if not is_settled:
        return State(
            "unknown", f"{told}{' moments ago' if job else ' since moments'}; the run's own word may still come"
        )
    if spoke is not None and (spoke.process or _may_outlive(spoke, job)):
        return State("unknown", f"{told}, yet {spoke.heard}")
    # a job that was requeued at once may fail before the run's turn comes again: a record from about its start tells
    # nothing of that
    at_its_start = (
        seen is not None and job is not None and job.start is not None and seen.heartbeat <= job.start + LAG_S / 2
    )
    had_begun = mine and seen is not None and not _is_before(seen, job) and not at_its_start
    if claim.ended_code == 75 and spoke is None and word not in ("CANCELLED", "PREEMPTED"):
        return State("checkpointed", f"not requeued, stopped before it got under way: {told}")
    its_turn = claim.first and (mine or (word in _MEANS_WORK and not later))
    if word in FAILURES and (had_begun or its_turn):
        return State("failed", told)
    if word in FAILURES and claim.first and not later:
        return State("lost", f"it never began: {told}")
    if word in ("CANCELLED", "PREEMPTED") and not later:
        return State(word.lower(), told)
    if seen is not None and seen.word != "running":  # the record is of an earlier submission: this one never came to it
        return State(seen.word, seen.message)
    return State("lost", told)


def _settling_s(job: Job | None) -> float:
    """The seconds after a job's end in which its runs may still be heard of."""
    return STALE_S if job is not None and job.word in NODE_FAILURES else LAG_S
