"""Facts about a job that were not said: suspended, cancelled before it began, not certain yet, not looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grid.engine.slurm.scheduler_cache import Job
from grid.engine.states.judge import judge
from tests.grid import bench, fake
from tests.grid.any_record import NOW
from tests.grid.bench import Bench
from tests.grid.states.test_judge import ASKED, CLAIM, FAILED, FRESH, SILENT


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys, cpus=1) as made:
        yield made


@pytest.mark.parametrize(
    ("record", "stopped", "word"),
    [
        (FRESH, "SUSPENDED", "running"),
        (SILENT, "STOPPED", "running"),
        (None, "SUSPENDED", "pending"),
        (FAILED, "SUSPENDED", "failed"),
    ],
)
def test_what_a_suspended_job_means(record: dict[str, Any] | None, stopped: str, word: str) -> None:
    found = judge(
        record, CLAIM, Job(stopped, node="n1", start=CLAIM.submitted_at + 900), ASKED, NOW, lambda host, pid: None
    )
    assert (found.word, found.may_start, found.stale) == (word, False, False)
    assert found.reason == ("why" if record is FAILED else "suspended on n1")


def test_a_suspended_element_says_suspended(here: Bench) -> None:
    here.behave({1: "wait"})
    here.good("plan")
    here.good("submit")
    here.until_started({1: 1})
    here.slurm.run("scontrol", "suspend", "1_0")
    said = here.good("status --now")
    assert "suspended: 1 run, " in said
    assert re.search(r" s?1 .*running .* suspended on n1$", said, re.MULTILINE), said
    assert "silent" not in said
    here.slurm.run("scontrol", "resume", "1_0")
    assert "suspended" not in here.good("status --now")
    here.good("cancel --yes")
    here.wait()


def test_an_element_that_is_cancelled_while_it_waits_says_cancelled(here: Bench) -> None:
    here.behave({1: "wait"})
    here.good("plan")
    here.good("submit")
    here.until_started({1: 1})
    here.slurm.run("scancel", "1_1")
    assert "1_1" not in here.submitted(), "SLURM forgets it"
    assert here.states() == {1: "running", 2: "cancelled", 3: "pending"}
    assert "it left the queue before it began" in here.good("status")
    here.good("cancel --yes")
    here.wait()


def test_what_is_not_certain_yet_says_when_it_is(here: Bench) -> None:
    here.behave({1: ["deaf", 0]})
    here.good("plan")
    here.good("submit")
    here.until_started({1: 1})
    here.slurm.oom("1_0")
    here.wait()
    for command in ("plan", "failures", "retry --yes", "status --now"):
        said = here.good(command)
        found = re.search(r"1 run ended moments ago: what became of it can be told in (\d+) s", said)
        assert found and 60 < int(found[1]) <= 120, (command, said)
    here.age()
    (here.root / "jobs" / "scheduler.json").unlink()
    assert "ended moments ago" not in here.good("plan")
    assert "again with 2048 MB" in here.good("retry --yes")


def test_what_could_not_be_looked_at_is_said(here: Bench) -> None:
    here.behave({1: "wait"})
    here.good("plan")
    here.good("submit")
    here.until_started({1: 1})
    here.slurm.controller_down()
    for command in ("plan", "submit", "failures"):
        if command == "submit":
            here.good("plan")
        said = here.good(command)
        assert "the queue could not be looked at (slurm_load_jobs error: Unable to contact slurm controller" in said, (
            command
        )
        assert "status --now asks again" in said
    here.sweep((1, 2, 3, 4))
    assert "the queue could not be looked at" in here.refused("submit", "1 new")
    assert "--now asks again at once" in here.good("status")
    here.slurm.controller_up()
    assert "not asked again for" in here.good("status")
    assert "cannot be asked" not in here.good("status --now")
    here.good("cancel --yes")
    here.wait()
    fake.until(lambda: not fake.processes(here.root / "runs"), "something is left")
