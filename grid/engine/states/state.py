"""The words for a run's state, and the claim of a submission on a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from files.aligned import some

GATED = ("waiting", "blocked")  # for another run, which is yet to be done, or by one that has failed
# preempted: it stopped at a signal; checkpointed: so it did in a job that has ended, and SLURM does not say why
WORDS = (
    *("new", "pending", "running", "done", "failed", "diverged"),
    *("preempted", "checkpointed", "cancelled", "lost", "unknown", *GATED),
)
SUSPENDED = "suspended"  # the beginning of the reason
LIVES_ON = "it lives on"  # the beginning of the reason where a run outlives its script, or its job's life
ENDED = {"done", "failed", "diverged", "preempted"}
# the others may be alive: leave them alone
STARTABLE = {"new", "failed", "diverged", "preempted", "checkpointed", "cancelled", "lost", *GATED}
HELD = 4  # the exit code of run.sh where another process has the folder: no end of the run
UNMET = 5  # the exit code of run.sh where a run that it waits for is not done
# exit codes of run.sh; others than 0 are failures
CODES = {3: "diverged", 75: "preempted", 130: "preempted", UNMET: "blocked"}


@dataclass(frozen=True)
class State:
    """The state of a run: one word, the reason for it in doubtful cases, and the run's own words."""

    word: str  # one of WORDS
    reason: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    attempt: int = 0
    held: bool = False  # its job may start it again by itself
    age_s: float | None = None  # since it last got on (its process may live and be stuck), where it says that it runs
    element: str = ""  # the array element or job that runs it, is to run it, or ran it last
    metrics: Mapping[str, float] = field(default_factory=dict)  # the latest it told
    code: str = ""  # the digest of the code it ran
    data: str = ""  # fingerprint and sizes of what its steps were made on (``data_told``)
    memory_bytes: float = 0.0  # the peak of its processes; 0 where it does not tell
    wait_s: float = 0.0  # the seconds until the meaning of its job's end is certain

    @property
    def may_start(self) -> bool:
        """Whether nothing of this run can be alive or queued."""
        return self.word in STARTABLE and not self.held

    @property
    def stale(self) -> bool:
        """Whether the run is running as far as can be told, yet silent for long."""
        return self.word == "running" and self.age_s is not None and self.age_s > STALE_S and not self.suspended

    @property
    def suspended(self) -> bool:
        """Whether the run's job is stopped where it was, by somebody with ``scontrol suspend`` or by the scheduler."""
        return self.reason.startswith(SUSPENDED)

    @property
    def lives_on(self) -> bool:
        """Whether the run beats, although its script noted its end or its job has begun anew."""
        return self.word == "running" and self.reason.startswith(LIVES_ON)


def gated(state: State, firsts: Sequence[tuple[str, State]]) -> State:
    """The state of a run that waits for others, which are these labels in these states.

    What could start otherwise is ``waiting`` until all of them are done, and ``blocked`` where one has failed.
    """
    unmet = [(label, first.word) for label, first in firsts if first.word != "done"]
    if not unmet:  # its script may have found that one was not done
        return replace(state, word="new", reason="") if state.word == "blocked" else state
    reason = f"waits for {some([f'{label} ({word})' for label, word in unmet])}"
    if state.word == "pending":
        return replace(state, reason=reason)
    is_blocked = any(word in ("failed", "diverged", "blocked") for _, word in unmet)
    return replace(state, word="blocked" if is_blocked else "waiting", reason=reason) if state.may_start else state


@dataclass(frozen=True)
class Damaged:
    """The reason why a status file cannot be read."""

    reason: str


@dataclass(frozen=True)
class Claim:
    """The submission that is to run this run."""

    element: str | None  # the array element "123_4"; None: sbatch was asked and its reply is not known
    submitted_at: float
    first: bool = True  # the first run of its script
    ended_code: int | None = None  # the last exit code that the script noted for it (see read_ledger)
    cluster: str = ""
    recalled: bool = False  # cancelled from here in the life that its job is in
    ended_life: int = 0  # the restart count of the life of its job that noted it
    ended_at: float = 0.0  # when that note was last added to, in the time of the file system


STALE_S = 600.0  # a running experiment refreshes its heartbeat about every 2 s; this leaves room for long passes
