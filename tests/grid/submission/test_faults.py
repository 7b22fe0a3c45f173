"""Faults while runs are handed to SLURM: nothing is lost and nothing is run twice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grid.engine.slurm import sbatch_command
from grid.engine.states import chunk_submission, ledger
from tests.grid import bench, fake
from tests.grid.bench import Bench, Said
from tests.tiers import few

ONCE = {1: 1, 2: 1, 3: 1}
REFUSAL = "Batch job submission failed: Invalid account or account/partition combination specified"


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys) as made:
        yield made


@pytest.fixture
def chunked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    """Three runs in arrays of one element: three calls of sbatch."""
    with bench.bench(tmp_path, capsys, max_array_size=2) as made:
        yield made


# --- submitting ---------------------------------------------------------------------------------------------------


def test_submitted_twice(here: Bench) -> None:
    here.good("plan")
    here.good("submit")
    assert "submitted already, as 1" in here.good("submit")
    assert "new" not in here.good("plan"), "what is queued is not planned again"
    assert "nothing to submit" in here.good("submit")
    here.each_once(3, 1)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_two_terminals_at_once(chunked: Bench, number: int) -> None:
    """Another submits after so many commands of the first."""
    chunked.good("plan")
    said: list[Said] = []

    def meanwhile(moment: str, command: str) -> None:
        chunked.slurm.hook = lambda moment, command: None
        said.append(chunked("submit"))

    chunked.slurm.at_command(number, meanwhile)
    said.append(chunked("submit"))
    assert 0 in {each.code for each in said}, said
    for each in said:
        assert (each.code, each.err) == (0, "") or (each.code == 2 and "right now: wait for it" in each.err), each
    with chunk_submission.only_one(chunked.root, "tiny"):
        for command in ("submit", "retry --yes", "cancel --yes"):
            chunked.refused(command, "is submitting, retrying, cancelling or pruning runs of tiny right now")
    chunked.each_once(3, 3)


def test_sbatch_refuses_the_third_array(chunked: Bench) -> None:
    chunked.good("plan")
    chunked.slurm.refuse_sbatch(after=2, message=REFUSAL)
    chunked.refused("submit", "sbatch refused", "Invalid account")
    (record,) = chunked.records()
    assert [chunk.state for chunk in record.chunks] == ["submitted", "submitted", "refused"]
    assert "1 of 3 arrays left" in chunked.good("submit")
    chunked.each_once(3, 4)


def test_after_a_refusal_another_plan_takes_the_rest(chunked: Bench) -> None:
    chunked.good("plan")
    chunked.slurm.refuse_sbatch(after=1, message=REFUSAL)
    chunked.refused("submit", "Invalid account")
    chunked.slurm.hold_all()
    chunked.good("plan")
    chunked.good("submit")
    chunked.slurm.release_all()
    chunked.wait()
    assert chunked.starts() == ONCE


@few(1, "heard", [True, False])
def test_the_same_submit_goes_on_after_a_lost_reply(
    chunked: Bench, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunked.good("plan")
    if heard:
        chunked.slurm.swallow_reply(after=1)
    else:
        chunked.slurm.refuse_sbatch(after=1, message="Socket timed out on send/recv operation")
    chunked.refused("submit", "imed out")
    (record,) = chunked.records()
    assert [chunk.state for chunk in record.chunks] == ["submitted", "asked", "written"]
    assert "its answer got lost" in chunked.good("status")
    if not heard:
        chunked.refused("submit", "SLURM may still take s0c1")
        monkeypatch.setattr(chunk_submission, "SETTLE_S", 0.0)
    assert f"{1 if heard else 2} of 3 arrays left" in chunked.good("submit")
    chunked.each_once(3, 3 if heard else 4)


def test_ctrl_c_between_two_arrays(chunked: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    chunked.good("plan")
    submit, calls = sbatch_command.submit, []

    def interrupted(path: Path) -> str:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return submit(path)

    with monkeypatch.context() as patch:
        patch.setattr(sbatch_command, "submit", interrupted)
        said = chunked("submit")
    assert (said.code, said.err) == (130, "")
    assert "2 of 3 arrays left" in chunked.good("submit")
    chunked.each_once(3, 3)


class Killed(BaseException):
    """A kill as by SIGKILL: nothing that catches Exception sees it."""


@pytest.mark.parametrize(
    ("moment", "left", "sbatches"), [("before sbatch", 2, 3), ("after sbatch", 1, 3), ("after the record", 1, 3)]
)
def test_the_submitting_process_is_killed(
    chunked: Bench, moment: str, left: int, sbatches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunked.good("plan")
    calls: list[str] = []
    save = ledger.Submission.save

    def at(when: str, command: str) -> None:
        calls.append(when) if command == "sbatch" and when == "before" else None
        if len(calls) == 2 and f"{when} {command}" == moment:
            raise Killed

    def saved(item: ledger.Submission, root: Path) -> None:
        save(item, root)
        if moment == "after the record" and item.chunks[1].state == "submitted":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(chunked.slurm, "hook", at)
        patch.setattr(ledger.Submission, "save", saved)
        with pytest.raises(Killed):
            chunked("submit")
    assert f"{left} of 3 arrays left" in chunked.good("submit")
    chunked.each_once(3, sbatches)


@pytest.mark.slow
def test_sbatch_outlives_the_process_that_called_it(tmp_path: Path) -> None:
    """It holds the lock of its submission, so that nobody submits again before it has come through."""
    slow = tmp_path / "bin" / "sbatch"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\n: >{tmp_path}/called; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo 7\n")
    slow.chmod(0o755)
    program = f"""from pathlib import Path
from grid.engine.slurm import sbatch_command
from grid.engine.states import chunk_submission, ledger
with chunk_submission.only_one(Path({str(tmp_path)!r}), "tiny"):
    sbatch_command.submit(Path("none"))"""
    variables = {**os.environ, "PATH": f"{slow.parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=bench.REPO, env=variables, start_new_session=True)
    try:
        fake.until((tmp_path / "called").exists, "sbatch was not called", 30)
        process.kill()
        process.wait()
        with pytest.raises(chunk_submission.Busy, match="right now"), chunk_submission.only_one(tmp_path, "tiny"):
            pass
    finally:
        (tmp_path / "go").touch()

    def is_free() -> bool:
        try:
            with chunk_submission.only_one(tmp_path, "tiny"):
                return True
        except chunk_submission.Busy:
            return False

    fake.until(is_free, "the lock stayed", 30)


# --- the controller and accounting --------------------------------------------------------------------------------


def test_the_controller_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, opinion=True) as here:
        _controller_down(here)


def _controller_down(here: Bench) -> None:
    here.behave({1: "wait"})
    here.good("plan")
    here.slurm.controller_down()
    words = here.refused("submit", "nothing was submitted", "a script of s0c0: ", "Unable to contact slurm controller")
    assert tempfile.gettempdir() not in words and ".sbatch" not in words, "nobody can look at that file"
    said = here("plan")
    assert (said.code, said.err) == (1, ""), said
    assert ".sbatch" not in said.out
    assert "problem: " in said.out
    assert "Unable to contact slurm controller" in said.out
    assert here.records() == []
    here.slurm.controller_up()
    here.good("plan")
    here.good("submit")
    here.wait("1_1")
    here.wait("1_2")
    here.until_started(ONCE)
    (here.root / "jobs" / "scheduler.json").unlink(missing_ok=True)
    here.slurm.controller_down()
    shown = here.good("status")
    assert "the scheduler cannot be asked: " in shown
    assert "2 done" in shown
    assert "1 running" in shown, "its own heartbeat tells"
    for command in ("retry --yes", "cancel --yes"):
        said = here(command)
        assert said.err.count("\n") <= 1, said
        assert said.code == 2 or "nothing to " in said.out, said
    here.slurm.controller_up()
    here.good("cancel --yes")
    here.wait()
    assert here.starts() == ONCE


def test_no_cancelling_where_slurm_does_not_answer(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller goes away between the look at the queue and scancel."""
    from grid.engine.states import evidence

    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    look = evidence.look

    def then_down(*words: object, **more: object) -> evidence.View:
        view = look(*words, **more)  # type: ignore[arg-type]
        here.slurm.controller_down()
        return view

    with monkeypatch.context() as patch:
        patch.setattr(evidence, "look", then_down)
        here.refused("cancel --yes", "contact slurm controller")
    here.slurm.controller_up()
    assert "cancelled 3 scripts" in here.good("cancel --yes")
    here.wait()
    here.age()
    assert here.starts() == {}
    assert set(here.states().values()) == {"cancelled"}


def test_accounting_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, accounting=False, min_job_age_s=0.0) as here:
        here.behave({1: "wait", 2: 1})
        here.good("plan")
        here.slurm.swallow_reply()
        here.refused("submit", "timed out")
        here.until_started(ONCE)
        here.slurm.wait("1_2")
        here.good("submit")  # SLURM has forgotten two of its elements by now
        assert here.sbatches() == 1
        here.slurm.run("scancel", "1")
        here.slurm.wait()
        here.age()
        assert here.states() == {1: "checkpointed", 2: "failed", 3: "done"}
        here.behave({})
        here.good("plan")
        here.good("submit")
        assert "1 lost" in here.good("retry --yes --code")
        here.slurm.wait()
        assert here.starts() == {1: 2, 2: 2, 3: 1}
        assert set(here.states().values()) == {"done"}
