"""Faults of jobs, and a world that moves between plan and submit: nothing is lost and nothing is run twice."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grid.engine.states.runs import named, prepare, runs_of
from tests.grid import bench, fake
from tests.grid.bench import Bench

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


# --- what becomes of jobs -----------------------------------------------------------------------------------------


def test_preempted_and_queued_again(here: Bench) -> None:
    here.behave({1: ["wait", 0], 2: ["deaf", 0]})
    here.good("plan")
    here.good("submit")
    here.until_started(ONCE)
    for seed in (1, 2):
        here.slurm.preempt(here.element(seed))
    assert "nothing to submit" in here.good("plan") + here.good("submit")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 1}
    assert set(here.states().values()) == {"done"}
    assert here.sbatches() == 1


def test_the_progress_of_an_earlier_life_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, requeue_delay_s=5) as here:
        here.behave({1: ["wait", 0]})
        here.good("plan")
        here.good("submit")
        here.until_started(ONCE)
        assert re.search(r" 1 +running +3/7 ", here.good("status --now"))
        here.slurm.preempt(here.element(1))
        fake.until(lambda: here.states()[1] == "pending", "it is not queued again")
        assert re.search(r" 1 +pending +was 3/7 ", here.good("status --now"))
        here.wait()


def test_a_node_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, nodes=2, cpus=2) as here:
        here.behave({1: ["wait", 0], 2: ["wait", 0], 3: ["wait", 0]})
        here.good("plan")
        here.good("submit")
        here.until_started(ONCE)
        (node,) = here.slurm.records(here.element(1))[0]["nodes"]
        lost = {job["task"] + 1 for job in here.slurm.records() if node in job["nodes"]}
        here.slurm.fail_node(node)
        for seed in set(ONCE) - lost:
            here.slurm.time_limit(here.element(seed))  # a warning: it checkpoints, and its job asks to be requeued
        here.wait(restarts=1)
        assert here.starts() == {1: 2, 2: 2, 3: 2}
        assert set(here.states().values()) == {"done"}


def _go(here: Bench, *seeds: int) -> None:
    """Let these runs, which wait for it, end well."""
    for seed in seeds:
        (path,) = (here.root / "runs" / "tiny").glob(f"*-s{seed}-*")
        (path / "go").touch()


def test_runs_that_step_on_beside_the_next_life_of_their_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bench.bench(tmp_path, capsys, nodes=2, cpus=3) as here:
        here.behave({1: "go", 2: "go", 3: "go"})
        here.good("plan --per_script 2")
        here.good("submit")
        here.until_started({1: 1, 2: 1})
        (node,) = here.slurm.records(here.element(1))[0]["nodes"]
        here.slurm.advance(300)  # of silence
        here.slurm.lose_node(node)
        here.until_started(ONCE)  # the second life of its job passes the first run over
        _go(here, 3)
        here.slurm.until(lambda: here.slurm.records(here.element(1))[0]["restarts"] == 2, "it did not look again")
        here.slurm.advance(90)  # what beats long after the job was queued again is of an earlier life
        assert {1: "running", 2: "running"}.items() <= here.states().items()
        assert "nothing to retry" in here.good("retry --yes --code")
        assert "nothing to submit" in here.good("plan")
        _go(here, 1, 2)
        here.wait()
        assert here.starts() == ONCE
        assert set(here.states().values()) == {"done"}


def test_a_run_whose_word_comes_late_is_not_lost(here: Bench) -> None:
    """The script's ledger and the queue are seen before the status of its run, or instead of an older one."""
    here.behave({3: "silent"})
    here.good("plan")
    here.good("submit")
    here.wait()
    (word,) = (here.root / "runs" / "tiny").glob("*-s1-*/status.json")
    late = word.rename(word.with_name("late"))
    assert here.states() == {1: "unknown", 2: "done", 3: "unknown"}
    assert "nothing to submit" in here.good("plan")
    late.rename(word)
    assert here.states() == {1: "done", 2: "done", 3: "unknown"}
    here.age(15)
    assert here.states() == {1: "done", 2: "done", 3: "lost"}


def test_cancelled_by_hand(here: Bench) -> None:
    here.behave({1: ["wait", 0], 2: ["wait", 0]})
    here.good("plan")
    here.good("submit")
    here.until_started(ONCE)
    here.slurm.run("scancel", here.element(1), here.element(2))
    here.wait()
    here.age()
    assert here.states() == {1: "cancelled", 2: "cancelled", 3: "done"}
    assert "nothing to retry" in here.good("retry --yes")
    assert "cancelled  2     2" in here.good("plan")
    here.good("submit")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 1}
    assert set(here.states().values()) == {"done"}


def test_what_cannot_start_says_why_and_may_be_cancelled(here: Bench) -> None:
    here.slurm.hold_all("QOSMaxGRESPerUser")
    here.good("plan")
    here.good("submit")
    assert "why pending: 3 QOSMaxGRESPerUser" in here.good("status")
    assert "cancelled 1 script" in here.good("cancel 2 --yes")
    assert "2 pending, 1 cancelled" in here.good("status"), "a look of before the cancelling is of no use"
    here.slurm.release_all()
    here.wait()
    here.age()
    assert here.starts() == {1: 1, 3: 1}
    assert here.states() == {1: "done", 2: "cancelled", 3: "done"}


def test_a_job_that_slurm_cannot_begin(here: Bench) -> None:
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    (record,) = here.records()
    (record.place(here.root) / "logs").rmdir()  # somebody cleans up
    here.slurm.release_all()
    here.wait()
    here.age()
    assert set(here.states().values()) == {"lost"}, "a run that never began has not failed"
    assert here.starts() == {}
    assert "3 " in here.good("retry --yes")
    here.wait()
    assert here.starts() == ONCE


def test_a_failing_run_does_not_stop_the_next(here: Bench) -> None:
    here.behave({1: 1})
    here.good("plan --per_script 3")
    here.good("submit")
    here.wait()
    assert here.starts() == ONCE
    assert here.states() == {1: "failed", 2: "done", 3: "done"}
    assert len(here.submitted()) == 1


# --- the world moves between plan and submit ----------------------------------------------------------------------


def _edit_code(made: Bench) -> None:
    (made.root / "main.py").write_text(fake.MAIN + "# better\n")


def _edit_sweep(made: Bench) -> None:
    made.sweep((1, 2, 4))


def _edit_resources(made: Bench) -> None:
    made.sweep(resources={**bench.SMALL, "mem": "2G"})


def _status(made: Bench, number: int, **values: object) -> None:
    run = runs_of(named(str(made.family), "tiny")[1], made.root)[number]
    prepare([run])
    run.folder.status.write_text(
        json.dumps({"host": "elsewhere", "pid": 1, "heartbeat": time.time(), "step": 1, "steps": 7, **values})
    )


def test_the_world_moves_between_plan_and_submit(here: Bench) -> None:
    moves: list[tuple[Callable[[Bench], None], str]] = [
        (_edit_code, "the code has changed since (main.py)"),
        (_edit_sweep, "1 no longer to be submitted (qsgd-3b-cnn-digits-s3"),
        (_edit_resources, "other resources for 2"),
        (lambda made: _status(made, 0, state="running"), "1 no longer to be submitted (qsgd-3b-cnn-digits-s1"),
        (
            lambda made: _status(made, 1, state="done", exit_code=0),
            "1 no longer to be submitted (qsgd-3b-cnn-digits-s2",
        ),
    ]
    for move, words in moves:
        here.good("plan")
        move(here)
        here.refused("submit", words, "Nothing was submitted")
    assert here.slurm.records() == []
    here.good("plan")
    (here.root / "notes.md").write_text("what no run reads")
    here.good("submit")
    here.wait()
    assert here.starts() == {3: 1}, "the first is alive elsewhere, the second is done"


def test_runs_end_between_the_halves_of_a_submission(chunked: Bench) -> None:
    chunked.good("plan")
    chunked.slurm.refuse_sbatch(after=1, message=REFUSAL)
    chunked.refused("submit", "Invalid account")
    _, waiting, _ = chunked.records()[0].chunks
    (chunked.root / waiting.elements[0][0] / "status.json").write_text(json.dumps({"state": "done", "exit_code": 0}))
    chunked.refused("submit", "1 of the runs that were still to be submitted are alive or done meanwhile", "plan again")
    chunked.good("plan")
    chunked.good("submit")
    chunked.wait()
    assert sorted(chunked.starts().values()) == [1, 1]


def test_experiments_leave_the_sweep_while_they_are_queued(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    here.sweep((1, 2))
    assert "no longer in the sweep" in here.good("plan")
    with monkeypatch.context() as patch:  # somebody at a terminal, who keeps it
        patch.setattr(sys, "stdin", io.StringIO("n\n"))
        patch.setattr(sys.stdin, "isatty", lambda: True)
        said = here("submit")
        assert (said.code, said.out.splitlines()[-1][-43:]) == (1, "nothing was cancelled and nothing submitted")
    here.refused("submit", "Cancel 1 queued or running script of runs that the sweep no longer has?", "--yes")
    assert here.submitted() == dict.fromkeys(["1_0", "1_1", "1_2"], "PENDING")
    assert "cancelled 1_2" in here.good("submit --yes")
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {1: 1, 2: 1}


def test_a_script_with_wanted_runs_is_not_cancelled(here: Bench) -> None:
    here.slurm.hold_all()
    here.good("plan --per_script 3")
    here.good("submit")
    here.sweep((1, 2))
    here.good("plan")
    assert "kept in the queue: 1_0" in here.good("submit")
    here.slurm.release_all()
    here.wait()
    assert here.starts() == ONCE


def test_defaults_move(here: Bench) -> None:
    here.good("plan --set optim.lr=0.2")  # as if 0.2 had been the default then
    here.good("submit")
    here.wait()
    shown = here.good("plan")
    assert "changed: the default optim.lr moved from 0.2 to 0.1: 3 earlier runs (" in shown
    assert "--set optim.lr=0.2 keeps them" in shown
    assert "new    3     3" in shown
    assert "done   3" in here.good("plan --set optim.lr=0.2")


def test_a_renamed_checkout(here: Bench) -> None:
    here.slurm.configure(real=True)
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    there = dataclasses.replace(here, root=here.root.rename(here.root.with_name("re named 100%a 'x' $HOME")))
    assert "3 pending" in there.good("status")
    here.slurm.release_all()
    here.wait()
    there.age()
    assert set(there.states().values()) == {"lost"}
    assert there.starts() == {}
    there.good("retry --yes --code")
    there.each_once(3, 2, in_vain=3)


def test_a_part_of_the_sweep_leaves_the_rest_in_the_queue(here: Bench) -> None:
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    for options in ("--seeds 1", "--set optim.lr=0.2"):
        assert "cancel" not in here.good(f"plan {options}"), "no word of the file says that the others are not wanted"
        here.good("submit --yes")
    assert len(here.submitted()) == 6
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 2}


def test_another_site_between_plan_and_submit(here: Bench) -> None:
    site = here.root.with_name("site.yaml")
    site.write_text("environment: {A_NAME: one}\n")
    here.good(f"plan --site {site}")
    site.write_text("environment: {A_NAME: two}\n")
    here.refused("submit", "the site's profile has changed since", "Nothing was submitted")
    assert here.slurm.records() == []


def test_the_snapshot_is_gone(here: Bench) -> None:
    here.slurm.configure(real=True)
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    shutil.rmtree(here.root / "jobs" / "code")
    _edit_code(here)
    assert "code drift: 3 runs in the queue execute snapshot" in here.good("plan")
    here.slurm.release_all()
    here.wait()
    here.age()
    assert here.starts() == {}
    assert set(here.states().values()) == {"failed"}, "and they can be started again"


def test_a_failed_run_is_started_again_while_its_script_goes_on(here: Bench) -> None:
    here.behave({1: [1, 0], 2: ["wait", 0]})
    here.good("plan --per_script 3")
    here.good("submit")
    here.until_started({1: 1, 2: 1})
    assert here.states() == {1: "failed", 2: "running", 3: "pending"}
    here.good("retry --yes --kind lost --kind code")
    here.slurm.wait("2")
    assert here.states() == {1: "done", 2: "running", 3: "pending"}
    here.slurm.preempt("1_0")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 1}
    assert set(here.states().values()) == {"done"}


def test_a_retry_that_breaks_off_is_taken_up_by_the_next(chunked: Bench) -> None:
    chunked.behave({1: [1, 0], 2: [1, 0], 3: [1, 0]})
    chunked.good("plan")
    chunked.good("submit")
    chunked.wait()
    chunked.slurm.hold_all()
    chunked.slurm.swallow_reply(after=1)
    chunked.refused("retry --yes --code", "timed out")
    chunked.slurm.refuse_sbatch(message=REFUSAL)
    chunked.refused("retry --yes --code", "Invalid account")
    assert "1 " in chunked.good("retry --yes --code")
    assert "nothing to retry" in chunked.good("retry --yes --code")
    chunked.slurm.release_all()
    chunked.wait()
    assert chunked.starts() == {1: 2, 2: 2, 3: 2}
    assert len(chunked.submitted()) == 6
