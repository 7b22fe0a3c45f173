"""States with a job script and a scheduler: every branch against evidence by hand, and never more than it says."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm.scheduler_cache import ENDS, Answer, Job
from grid.engine.states import state as states
from grid.engine.states.judge import judge
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder, ids_to_ask, read_ledger
from grid.engine.states.state import Claim, Damaged
from settings.run import lag_s
from tests.grid.any_record import JSON, KEYS, NOW, WORDS

BEGUN = NOW - 5000.0
CLAIM = Claim("123_4", BEGUN, first=False, cluster="here")
FIRST = replace(CLAIM, first=True)
MINE = {"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "4", "SLURM_JOB_ID": "130"}
OTHER = {**MINE, "SLURM_ARRAY_JOB_ID": "99"}
ASKED = Answer(NOW - 10, {}, ids=frozenset({"123", "99", "130"}), cluster="here", keeps_s=300.0)
FORGETFUL = replace(ASKED, keeps_s=2.0, missed={"123": NOW - 3000, "123_4": NOW - 100})
UNSEEN = replace(ASKED, keeps_s=0.0)
DOWN = replace(ASKED, reachable=False, error="connect failure")


def _record(state: str, age_s: float = 5.0, slurm: dict[str, str] | None = MINE, **more: Any) -> dict[str, Any]:
    return {
        "state": state,
        "host": "n1",
        "pid": 7,
        "start": BEGUN + 1000,
        "heartbeat": NOW - age_s,
        "slurm": slurm,
        **more,
    }


def _ended(code: int, **more: Any) -> Claim:
    return replace(CLAIM, ended_code=code, **more)


def _job(word: str, ago_s: float = 1000.0, **more: Any) -> Job:
    """Started 900 s after it was submitted; ended so long ago."""
    return Job(word, node="n1", start=BEGUN + 900, end=NOW - ago_s if word in ENDS else None, **more)


RUNNING, FRESH, SILENT = _job("RUNNING"), _record("running"), _record("running", 2000.0)
FAILED, DIVERGED, PREEMPTED = _record("failed", failure={"message": "why"}), _record("diverged"), _record("preempted")
ELSEWHERE = _record("running", slurm=None)
OLDER = {"start": BEGUN - 500}
EARLIER = _record("failed", slurm=OTHER) | OLDER
RECALLED = replace(CLAIM, recalled=True)
NOTED = replace(CLAIM, ended_code=137, ended_at=NOW - 4)  # about when FRESH beat last
OUTLIVED, LONG_NOTED = replace(NOTED, ended_at=NOW - 60), replace(NOTED, ended_at=NOW - 130)
QUEUED = _job("PENDING", queued=NOW - 100)
BEFORE = {"start": BEGUN}  # of the job's life before it was queued again
PENDING = _job("PENDING")
HELD_BACK = _job("REQUEUE_HOLD", reason="job requeued in held state")
SHELL = {"SLURM_JOB_ID": "130"}
EARLIER_RUNS = _record("running", slurm=OTHER) | OLDER
NO_SCRIPT = _job("FAILED", reason="NonZeroExitCode")
AFTER, QUIET = _record("running", 90.0), _record("running", 130.0)
Evidence = tuple[Any, Any, Any, Any, str, bool, str]

TABLE: dict[str, Evidence] = {
    # evidence: (record, claim, job, answer) -> (word, whether it may start, a part of the reason)
    "nothing": (None, None, None, None, "new", True, ""),
    "done": (_record("done"), CLAIM, RUNNING, ASKED, "done", False, ""),
    "done, whoever asks": (_record("done", slurm=OTHER), CLAIM, PENDING, DOWN, "done", False, ""),
    "done, though its job failed": (_record("done"), CLAIM, _job("FAILED"), ASKED, "done", False, ""),
    "damaged": (Damaged("cut"), CLAIM, None, ASKED, "unknown", False, "cut"),
    "a word of nobody's": ({"state": "paused"}, CLAIM, RUNNING, ASKED, "unknown", False, "no state"),
    "no heartbeat": ({"state": "running"}, CLAIM, RUNNING, ASKED, "unknown", False, "without a heartbeat"),
    "from the future": (_record("running", -4000.0), CLAIM, RUNNING, ASKED, "unknown", False, "in the future: clocks "
    "differ; delete"),
    # submitted
    "reply lost": (None, replace(CLAIM, element=None), None, ASKED, "unknown", False, "answer got lost"),
    "reply lost, but it runs": (FRESH, replace(CLAIM, element=None), None, ASKED, "running", False, ""),
    "waits": (None, CLAIM, _job("PENDING", reason="Priority"), ASKED, "pending", False, "Priority"),
    "held": (None, CLAIM, _job("RESV_DEL_HOLD"), ASKED, "pending", False, "RESV_DEL_HOLD"),
    "held after a requeue": (None, CLAIM, HELD_BACK, ASKED, "pending", False, f"scontrol release {CLAIM.element}"),
    "held by its user": (None, CLAIM, _job("PENDING", reason="JobHeldUser"), ASKED, "pending", False, "release"),
    "waits again": (PREEMPTED, CLAIM, _job("PENDING", reason="BeginTime"), ASKED, "pending", False, "BeginTime"),
    "waits again, killed a moment ago": (FRESH, CLAIM, PENDING, ASKED, "pending", False, ""),
    "waits, as an older look has it": (FRESH, CLAIM, PENDING, replace(ASKED, asked=NOW - 32), "running", False, ""),
    "waits again, killed before the look": (_record("running", 32.0), CLAIM, PENDING, ASKED, "pending", False, ""),
    "waits again, and it steps on": (
        FRESH | BEFORE, CLAIM, QUEUED, replace(ASKED, asked=NOW),
        "running", False, "earlier life",
    ),
    "waits again, and it beat a while longer": (
        _record("running", 50.0) | BEFORE, CLAIM, QUEUED, ASKED,
        "pending", False, "",
    ),
    "failed, and is retried": (EARLIER, CLAIM, PENDING, ASKED, "pending", False, ""),
    "runs elsewhere meanwhile": (ELSEWHERE, CLAIM, PENDING, ASKED, "running", False, ""),
    "an earlier job's run lives": (EARLIER_RUNS, CLAIM, PENDING, ASKED, "running", False, "before"),
    # its job runs
    "runs": (FRESH, CLAIM, RUNNING, ASKED, "running", False, ""),
    "is silent": (SILENT, CLAIM, RUNNING, ASKED, "running", False, "no heartbeat for 2000 s"),
    "completing": (SILENT, CLAIM, _job("COMPLETING"), ASKED, "running", False, "no heartbeat"),
    "begins": (None, FIRST, RUNNING, ASKED, "pending", False, "its job begins on n1"),
    "its turn comes": (None, CLAIM, RUNNING, ASKED, "pending", False, "its turn comes"),
    "steps on beside its job's next life": (FRESH | BEFORE, FIRST, RUNNING, ASKED, "running", False, "earlier life"),
    "its job's next life began just now": (
        FRESH | BEFORE, FIRST, replace(RUNNING, start=NOW - 30), ASKED,
        "pending", False, "begins",
    ),
    "it beat when that began": (
        AFTER | BEFORE, FIRST, replace(RUNNING, start=NOW - 100), ASKED,
        "pending", False, "begins",
    ),
    "its turn comes again": (SILENT | BEFORE, CLAIM, RUNNING, ASKED, "pending", False, "its turn comes"),
    "failed, its job goes on": (FAILED, CLAIM, RUNNING, ASKED, "failed", False, "why"),
    "failed for good": (FAILED, _ended(1), RUNNING, ASKED, "failed", True, "why"),
    "failed in an earlier life": (FAILED | BEFORE, CLAIM, RUNNING, ASKED, "pending", False, ""),
    "diverged": (DIVERGED, CLAIM, RUNNING, ASKED, "diverged", False, ""),
    "checkpointed": (PREEMPTED, CLAIM, RUNNING, ASKED, "pending", False, "checkpointed"),
    # cancelled from here, and not yet gone
    "recalled": (FRESH, RECALLED, RUNNING, ASKED, "cancelled", False, "being cancelled"),
    "recalled, checkpointed": (PREEMPTED, RECALLED, _job("COMPLETING"), ASKED, "cancelled", False, "being cancelled"),
    "recalled, waits in an older look": (None, RECALLED, PENDING, ASKED, "cancelled", False, "being cancelled"),
    "recalled, had failed": (FAILED, RECALLED, RUNNING, ASKED, "failed", False, "why"),
    "recalled, over": (PREEMPTED, RECALLED, _job("CANCELLED"), ASKED, "cancelled", True, "CANCELLED"),
    # the script's ledger
    "what it waits for was not done": (None, _ended(5), RUNNING, ASKED, "blocked", True, "exit code 5"),
    "it was not, and its job is over": (None, _ended(5), _job("FAILED"), ASKED, "blocked", True, "exit code 5"),
    "killed without a word": (SILENT, _ended(137), RUNNING, ASKED, "failed", True, "exit code 137"),
    "killed a moment ago": (FRESH, NOTED, RUNNING, ASKED, "failed", False, "exit code 137"),
    "run.sh was killed, and it beats": (FRESH, OUTLIVED, RUNNING, ASKED, "running", False, "137; its last heartbeat "
    "is 5 s"),
    "so do its ranks": (FRESH, replace(OUTLIVED, ended_code=1), RUNNING, ASKED, "running", False, "noted exit code 1;"),
    "it beats, and its job is over": (FRESH, OUTLIVED, _job("FAILED"), ASKED, "running", False, "it lives on"),
    "it beats, and its job is gone": (FRESH, OUTLIVED, None, ASKED, "running", False, "it lives on"),
    "it beats, and SLURM is down": (FRESH, OUTLIVED, None, DOWN, "running", False, "it lives on"),
    "killed, its job ended a moment ago": (FRESH, NOTED, _job("FAILED", 3), ASKED, "failed", False, "exit code 137"),
    "killed, its job ended two minutes ago": (QUIET, LONG_NOTED, _job("FAILED", 130), ASKED, "failed", False, "137"),
    "killed, its job ended long ago": (SILENT, LONG_NOTED, _job("FAILED"), ASKED, "failed", True, "137"),
    "killed, its node failed": (QUIET, LONG_NOTED, _job("NODE_FAIL", 700), ASKED, "failed", False, "137"),
    "killed, and its word is not here yet": (None, NOTED, _job("FAILED", 3), ASKED, "failed", False, "exit code 137"),
    "killed, and an older word is here": (SILENT, NOTED, RUNNING, ASKED, "failed", False, "exit code 137"),
    "run.sh was killed, and it ended well": (_record("done"), OUTLIVED, _job("FAILED"), ASKED, "done", False, ""),
    "run.sh was killed, and it failed": (FAILED, OUTLIVED, _job("FAILED"), ASKED, "failed", True, "why"),
    "run.sh was killed, and it was checkpointed": (
        PREEMPTED, OUTLIVED, _job("TIMEOUT"), ASKED,
        "preempted", True, "137",
    ),
    "checkpointed in an earlier life, and killed": (
        PREEMPTED, replace(LONG_NOTED, ended_life=1), None, ASKED,
        "failed", True, "137",
    ),
    "its end is of another life": (FRESH, _ended(2, ended_life=1), RUNNING, ASKED, "running", False, "5 s old"),
    "it is, and its job is over": (FRESH, _ended(137, ended_life=1), _job("FAILED"), ASKED, "running", False, "137"),
    "it is, and it fell silent": (SILENT, _ended(2, ended_life=1), None, ASKED, "failed", True, "exit code 2"),
    "it lives on beside its job's next life": (
        AFTER | BEFORE, FIRST, _job("FAILED", 130), ASKED,
        "unknown", False, "90 s old",
    ),
    "a life before, and it fell silent": (SILENT | BEFORE, FIRST, _job("FAILED"), ASKED, "failed", True, "FAILED"),
    "in other hands": (FRESH, _ended(4), RUNNING, ASKED, "running", False, ""),
    "in other hands, over": (FRESH | BEFORE, _ended(4), _job("COMPLETED"), ASKED, "unknown", False, "5 s old"),
    "never got under way": (None, _ended(2), RUNNING, DOWN, "failed", True, "exit code 2"),
    "diverged by its code": (SILENT, _ended(3), None, DOWN, "diverged", True, "exit code 3"),
    "interrupted": (PREEMPTED, _ended(130), None, ASKED, "preempted", True, "exit code 130"),
    "checkpointed by its code": (PREEMPTED, _ended(75), PENDING, ASKED, "pending", False, ""),
    "0, its word is not here yet": (FRESH, _ended(0), RUNNING, ASKED, "unknown", False, "not here yet"),
    "0, and no word ever": (None, _ended(0), None, ASKED, "lost", True, "exit code 0"),
    "0, a moment ago": (None, _ended(0, ended_at=NOW - 100), None, ASKED, "unknown", False, "not here yet"),
    "0, its file of the future": (None, _ended(0, ended_at=NOW + 30), _job("COMPLETED"), ASKED, "unknown", False, ""),
    "0, and it had failed before": (EARLIER, _ended(0, ended_at=NOW - 100), None, ASKED, "unknown", False, ""),
    "0, but it beats": (FRESH, _ended(0), None, ASKED, "unknown", False, "not here yet"),
    # nobody answers
    "down": (None, CLAIM, None, DOWN, "unknown", False, "connect failure"),
    "down, but it beats": (FRESH, CLAIM, None, DOWN, "running", False, ""),
    "down, and it is silent": (SILENT, CLAIM, None, DOWN, "unknown", False, "no heartbeat for 2000 s"),
    "down, it had failed": (FAILED, CLAIM, None, DOWN, "failed", False, "why"),
    "down, it was checkpointed": (PREEMPTED, CLAIM, None, DOWN, "preempted", False, ""),
    "down, it failed before": (EARLIER, CLAIM, None, DOWN, "unknown", False, "connect failure"),
    "down, an old answer says that it runs": (None, CLAIM, RUNNING, DOWN, "unknown", False, "connect failure"),
    "not asked": (None, CLAIM, None, None, "unknown", False, "was not asked"),
    "asked for others": (None, CLAIM, None, replace(ASKED, ids=frozenset({"9"})), "unknown", False, "was not asked"),
    "asked before": (None, replace(CLAIM, submitted_at=NOW + 500), None, ASKED, "unknown", False, "was not asked"),
    "another cluster": (None, replace(CLAIM, cluster="there"), None, ASKED, "unknown", False, "cluster there"),
    "a word that is new to us": (None, CLAIM, _job("TELEPORTING"), ASKED, "unknown", False, "TELEPORTING"),
    # no longer in the queue
    "gone": (None, CLAIM, None, ASKED, "lost", True, "no longer in the queue"),
    "gone since a moment": (None, CLAIM, None, FORGETFUL, "unknown", False, "since moments"),
    "gone since two minutes": (None, replace(CLAIM, element="123_5"), None, FORGETFUL, "lost", True, ""),
    "gone, and nobody looked before": (None, CLAIM, None, UNSEEN, "unknown", False, "since moments"),
    "cancelled from here, gone since a moment": (None, CLAIM, Job("CANCELLED"), FORGETFUL, "cancelled", False, ""),
    "gone, silent": (SILENT, CLAIM, None, ASKED, "lost", True, "no longer in the queue"),
    "gone, but it beats": (FRESH, CLAIM, None, ASKED, "unknown", False, "5 s old"),
    "gone, failed": (FAILED, CLAIM, None, ASKED, "failed", True, "why"),
    "gone, checkpointed": (PREEMPTED, CLAIM, None, ASKED, "checkpointed", True, "not requeued: job 123_4 is no longer"),
    "ended, checkpointed": (PREEMPTED, CLAIM, _job("FAILED"), ASKED, "checkpointed", True, "not requeued: job 123_4"),
    "ended a moment ago, checkpointed": (PREEMPTED, CLAIM, _job("FAILED", 60), ASKED, "checkpointed", False, "FAILED"),
    "preempted for good, checkpointed": (PREEMPTED, CLAIM, _job("PREEMPTED"), ASKED, "preempted", True, ""),
    "stopped before it began": (None, replace(FIRST, ended_code=75), _job("FAILED"), ASKED, "checkpointed", True, "not "
    "requeued"),
    "gone, failed before": (EARLIER, CLAIM, None, ASKED, "failed", True, ""),
    "gone, an earlier job's run": (_record("running", 2000.0, OTHER) | OLDER, CLAIM, None, ASKED, "lost", True, ""),
    "gone, ran elsewhere since": (_record("failed", slurm=None), CLAIM, None, ASKED, "failed", True, ""),
    "gone, lost elsewhere since": (_record("running", 2000.0, None), CLAIM, None, ASKED, "lost", True, ""),
    # it ended, and SLURM knows how
    "time limit": (SILENT, CLAIM, _job("TIMEOUT"), ASKED, "failed", True, "ended: TIMEOUT"),
    "time limit, a moment ago": (FRESH, CLAIM, _job("TIMEOUT", 60), ASKED, "unknown", False, "moments ago"),
    "time limit, before its turn": (None, CLAIM, _job("TIMEOUT"), ASKED, "lost", True, "TIMEOUT"),
    "time limit, before its turn came again": (SILENT | BEFORE, CLAIM, _job("TIMEOUT"), ASKED, "lost", True, "TIMEOUT"),
    "time limit, it had failed": (FAILED, CLAIM, _job("TIMEOUT"), ASKED, "failed", True, "why"),
    "failed, with a record from about its start: of the life before": (
        _record("running", 4050.0) | {"start": BEGUN + 880}, CLAIM, _job("FAILED"), ASKED,
        "lost", True, "FAILED",
    ),
    "could not begin": (None, FIRST, NO_SCRIPT, ASKED, "lost", True, "never began: job 123_4 ended: FAILED NonZeroEx"),
    "out of memory at once": (None, FIRST, _job("OUT_OF_MEMORY"), ASKED, "failed", True, "OUT_OF_MEMORY"),
    "out of memory": (SILENT, CLAIM, _job("OUT_OF_MEMORY"), ASKED, "failed", True, "OUT_OF_MEMORY"),
    "node failed": (SILENT, CLAIM, _job("NODE_FAIL"), ASKED, "failed", True, "NODE_FAIL"),
    "node failed, may live on": (
        _record("running", 500.0), CLAIM, _job("NODE_FAIL", 510), ASKED,
        "unknown", False, "NODE_FAIL",
    ),
    "node failed, its last word may come late": (
        _record("running", 700.0), CLAIM, _job("NODE_FAIL", 510), ASKED,
        "unknown", False, "moments ago",
    ),
    "node failed, lives on": (FRESH, CLAIM, _job("NODE_FAIL"), ASKED, "unknown", False, "5 s old"),
    "outlived its job, and is silent": (
        _record("running", 700.0), CLAIM, _job("TIMEOUT"), ASKED,
        "failed", True, "TIMEOUT",
    ),
    "outlives its job": (FRESH, CLAIM, _job("TIMEOUT"), ASKED, "unknown", False, "5 s old"),
    "cancelled": (SILENT, CLAIM, _job("CANCELLED"), ASKED, "cancelled", True, ""),
    "cancelled while it waited": (None, CLAIM, _job("CANCELLED"), ASKED, "cancelled", True, ""),
    "cancelled, checkpointed": (PREEMPTED, CLAIM, _job("CANCELLED"), ASKED, "cancelled", True, ""),
    "cancelled, a moment ago": (PREEMPTED, CLAIM, _job("CANCELLED", 60), ASKED, "cancelled", False, ""),
    "cancelled, running a moment ago": (FRESH, CLAIM, _job("CANCELLED", 60), ASKED, "cancelled", False, ""),
    "preempted for good": (SILENT, CLAIM, _job("PREEMPTED"), ASKED, "preempted", True, ""),
    "completed without a word": (SILENT, CLAIM, _job("COMPLETED"), ASKED, "lost", True, "COMPLETED"),
    "accounting knows, though the controller is down": (
        SILENT, CLAIM, _job("TIMEOUT"), DOWN,
        "failed", True, "TIMEOUT",
    ),
    # submitted by hand: the record makes the claim
    "by hand, runs": (SILENT, None, RUNNING, ASKED, "running", False, "no heartbeat"),
    "by hand, waits again": (PREEMPTED, None, PENDING, ASKED, "pending", False, ""),
    "by hand, gone": (SILENT, None, None, ASKED, "lost", True, ""),
    "by hand, down": (SILENT, None, None, DOWN, "unknown", False, "connect failure"),
    "by hand, nobody asked": (SILENT, None, None, None, "unknown", False, "was not asked"),
    "by hand, checkpointed, nobody asked": (PREEMPTED, None, None, None, "preempted", False, ""),
    "by hand, failed, nobody asked": (FAILED, None, None, None, "failed", True, "why"),
    "in an open shell, failed": (_record("failed", slurm=SHELL), None, RUNNING, ASKED, "failed", True, ""),
    "in an open shell, stopped": (_record("preempted", slurm=SHELL), None, RUNNING, ASKED, "preempted", True, ""),
}  # fmt: skip


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", "99999"])
def test_a_lag_that_is_none_is_named(text: str) -> None:
    assert (lag_s(None), lag_s(""), lag_s("5")) == (120.0, 120.0, 5.0)
    with pytest.raises(ValueError, match=r"NUQ_LAG_S=.*must be"):
        lag_s(text)


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    record, claim, job, answer, word, may_start, reason = TABLE[name]
    found = judge(record, claim, job, answer, NOW, alive=lambda host, pid: None)
    assert (found.word, found.may_start) == (word, may_start), found
    assert reason in found.reason
    assert word in states.WORDS


def test_a_process_of_this_machine_that_is_gone_is_believed_where_nothing_may_start_it_again() -> None:
    def gone(host: str, pid: int) -> bool:
        assert (host, pid) == ("n1", 7)
        return False

    assert judge(ELSEWHERE, None, None, None, NOW, gone).word == "lost"
    assert judge(FRESH, None, None, None, NOW, gone).word == "unknown", "its array element may be queued again"
    assert judge(FRESH, CLAIM, RUNNING, ASKED, NOW, gone).word == "unknown"
    assert judge(FRESH, CLAIM, None, ASKED, NOW, gone).word == "lost"
    assert judge(FRESH, CLAIM, None, FORGETFUL, NOW, gone).word == "lost", "this machine sees its own files at once"
    assert judge(SILENT, CLAIM, None, ASKED, NOW, lambda host, pid: True).word == "unknown"


def test_a_state_carries_what_status_shows() -> None:
    record = _record(
        "running", 700.0, step=3, steps=9, seconds=12.5, attempt=2, metrics={"loss": 0.5, "Vacc": 0}, code="0123"
    )
    found = judge(record, CLAIM, RUNNING, ASKED, NOW)
    assert (found.step, found.steps, found.seconds, found.attempt, found.element) == (3, 9, 12.5, 2, "123_4")
    assert (found.age_s, found.stale, found.metrics, found.code) == (700.0, True, {"loss": 0.5, "Vacc": 0.0}, "0123")
    waits = judge(None, CLAIM, _job("PENDING"), ASKED, NOW)
    assert (waits.element, waits.reason) == ("123_4", ""), "that it is pending is no reason"
    assert judge(record, None, None, None, NOW).element == "123_4"


def test_what_to_ask_for() -> None:
    done, own = _record("done"), _record("running", slurm=OTHER)
    claims = [replace(CLAIM, element="7_1"), replace(CLAIM, element=None)]
    cases = [(None, None), (done, CLAIM), (done, None), (own, None), *((None, claim) for claim in claims)]
    assert ids_to_ask([*cases, (Damaged("cut"), None)]) == {"99", "7"}


@pytest.mark.parametrize(
    ("slurm", "element"),
    [
        (MINE, "123_4"),
        ({**MINE, "SLURM_ARRAY_TASK_ID": "04"}, "123_4"),
        ({"SLURM_JOB_ID": "130"}, "130"),
        ({"SLURM_JOB_ID": 130}, None),
        ({"SLURM_JOB_ID": "../x"}, None),
        ([], None),
    ],
)
def test_own_element(slurm: object, element: str | None) -> None:
    assert own_element({"slurm": slurm}) == element


def test_the_last_line_of_a_ledger_counts(tmp_path: Path) -> None:
    path = tmp_path / "c_0.ended"
    assert read_ledger(path) == {}
    path.write_bytes(b"75 runs/a b/x\n1 runs/y\n0 runs/a b/x\nnonsense\n\xff\n137 runs/z\n3")
    path.write_bytes(path.read_bytes() + b"\n9@2 runs/q\n9@ runs/q\n@1 runs/q")
    os.utime(path, (5.0, 7.5))
    noted = {"runs/a b/x": (0, 0), "runs/y": (1, 0), "runs/z": (137, 0), "runs/q": (9, 2)}
    assert read_ledger(path) == {run: (code, life, 7.5) for run, (code, life) in noted.items()}
    assert read_ledger(tmp_path) == {}, "a folder in its place"


def test_what_another_user_keeps_to_himself_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("builtins.open", no)  # a test may run as root, who may read everything
    found = RunFolder(tmp_path).state()
    assert (found.word, found.may_start, found.reason) == (
        "unknown",
        False,
        "status.json cannot be read: Permission denied",
    )


def test_one_open_is_all_that_a_run_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "status.json").write_text(json.dumps(FRESH))
    calls: list[str] = []
    with monkeypatch.context() as patch:
        for name, module in {"open": "builtins", "stat": "os", "lstat": "os", "listdir": "os", "scandir": "os"}.items():
            real = getattr(sys.modules[module], name)
            patch.setattr(
                f"{module}.{name}",
                lambda *args, name=name, real=real, **more: (calls.append(name), real(*args, **more))[1],
            )
        found = judge(RunFolder(tmp_path).record(), CLAIM, RUNNING, ASKED, NOW, lambda host, pid: None)
    assert (found.word, calls) == ("running", ["open"])


@given(
    st.dictionaries(KEYS | st.sampled_from(["slurm", "start", "metrics", "code"]), JSON | WORDS | st.just(MINE)),
    st.sampled_from([None, CLAIM, FIRST, replace(CLAIM, element=None), replace(CLAIM, ended_code=137)]),
    st.sampled_from(
        [None, RUNNING, _job("PENDING"), _job("FAILED"), _job("CANCELLED", 1.0), Job(""), Job("NODE_FAIL")]
    ),
    st.sampled_from([None, ASKED, DOWN]),
)
def test_judge_never_raises(
    values: dict[str, Any], claim: Claim | None, job: Job | None, answer: Answer | None
) -> None:
    found = judge(values, claim, job, answer, NOW)
    assert found.word in states.WORDS
    assert (found.word == "done") == (values.get("state") == "done")
