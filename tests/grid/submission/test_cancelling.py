"""Cancelling: every array task on record that is in the queue, and with --pending those that have not begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grid.engine.slurm.scheduler_cache import Job
from grid.engine.states.judge import judge
from tests.grid import bench
from tests.grid.any_record import NOW
from tests.grid.bench import Bench
from tests.grid.states.test_judge import ASKED, CLAIM, FIRST, RUNNING, _record


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys, cpus=1) as made:
        yield made


def test_pending_leaves_scripts_that_have_begun(here: Bench) -> None:
    here.sweep((1, 2, 3, 4))
    here.behave({1: "wait"})
    here.good("plan --per_script 2")
    here.good("submit")
    here.until_started({1: 1})
    here.refused("cancel --pending", "Cancel 1 script with 2 unfinished runs?")
    here.refused("cancel", "Cancel 2 scripts with 4 unfinished runs?")
    assert "cancelled 1 script" in here.good("cancel --pending --yes")
    assert here.states() == {1: "running", 2: "cancelled", 3: "pending", 4: "cancelled"}
    assert "nothing to cancel" in here.good("cancel --pending --yes")
    assert "cancelled 1 script" in here.good("cancel --yes")


def test_tasks_that_no_run_waits_for_are_named_and_cancelled(here: Bench) -> None:
    here.behave({1: 0, 2: [1, 0], 3: 0})
    here.good("plan")
    here.good("submit")
    here.wait()
    here.good("retry --code --yes")
    here.wait()
    assert set(here.states().values()) == {"done"}
    assert "scheduler" not in here.good("status")
    for element in ("1_0", "1_1"):
        here.slurm.run("scontrol", "requeuehold", element)
    here.slurm.run("sbatch", "--hold", "--array=0-1", "--job-name=theirs", "--wrap=true")
    said = here.good("status --now")
    assert "also in the queue: 2 scripts that no run waits for: 1_0 (JobHeldUser), 1_1 (JobHeldUser)" in said
    here.refused("cancel", "Cancel 2 scripts with 0 unfinished runs?")
    assert "cancelled 2 scripts" in here.good("cancel --yes")
    assert "nothing to cancel" in here.good("cancel --yes")
    assert "no run waits for" not in here.good("status")
    assert list(here.submitted().values()).count("PENDING") == 2, "a stranger's"


CLOCKS = [-3000.0, -700.0, -120.0, 0.0, 700.0, 3000.0]


@pytest.mark.parametrize("skew_s", CLOCKS)
@pytest.mark.parametrize("claim", [CLAIM, FIRST])
def test_a_heartbeat_that_moves_is_running_whatever_the_clock_of_its_node_says(claim: Any, skew_s: float) -> None:
    begun = NOW - 10 + skew_s
    job = Job("RUNNING", node="n1", start=NOW - 15)
    record = _record("running", 1.0 - skew_s, start=begun)
    found = judge(record, claim, job, ASKED, NOW, lambda host, pid: None, moves=True)
    assert (found.word, found.may_start, found.stale, found.reason) == ("running", False, False, "")
    assert judge(_record("done"), claim, job, ASKED, NOW, moves=True).word == "done"
    assert judge(_record("running"), claim, RUNNING, ASKED, NOW, lambda host, pid: False, moves=True).word != "running"
