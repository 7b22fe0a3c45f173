"""More runs than the cluster takes at once: they are handed over in waves, and limits that moved are asked again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grid.engine.slurm import scheduler
from grid.engine.states import chunk_submission
from tests.grid import bench
from tests.grid.bench import Bench

SEEDS = range(1, 9)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    """Eight runs of which nothing starts yet."""
    with bench.bench(tmp_path, capsys) as made:
        made.sweep(SEEDS)
        made.slurm.hold_all()
        yield made


def ended(here: Bench) -> None:
    """All jobs run to their end, and the controller forgets them; then nothing starts any more."""
    here.slurm.release_all()
    here.wait()
    here.slurm.configure(min_job_age_s=0)
    here.slurm.hold_all()


def waits(here: Bench, command: str = "submit") -> str:
    """The words of a command that cannot hand over everything: exit code 75."""
    said = here(command)
    assert (said.code, said.err) == (75, ""), said
    return said.out


def all_done(here: Bench) -> None:
    here.slurm.release_all()
    here.wait()
    assert here.starts() == dict.fromkeys(SEEDS, 1)
    assert set(here.states().values()) == {"done"}


def test_waves_under_max_job_count(here: Bench) -> None:
    here.slurm.configure(max_job_count=10)
    here.slurm.run("sbatch", "--wrap", "true")
    here.slurm.run("sbatch", "--array=0-1", "--wrap", "true")
    assert "note: submit hands over 6 of 8 scripts now (the cluster keeps 3 jobs of MaxJobCount=10)" in here.good(
        "plan"
    )
    said = waits(here)
    assert "submitted job 3: 6 scripts, 6 runs" in said
    assert (
        "2 of 8 scripts wait for room (the cluster keeps 3 jobs of MaxJobCount=10): run the same command again" in said
    )
    assert "2 of 8 scripts wait for room (the cluster keeps 9 jobs of" in waits(here), "nothing fits, nothing is lost"
    assert here.sbatches() == 3
    assert "2 of 8 scripts not handed over yet: the same command goes on" in here.good("status")
    ended(here)
    assert ": 2 scripts, 2 runs" in here.good("submit")
    assert "submitted already, as 3, " in here.good("submit")
    all_done(here)


def test_waves_under_max_submit_jobs(here: Bench) -> None:
    here.slurm.configure(max_submit=5)
    site = here.root / "site.yaml"
    site.write_text("max_submit: 5\n")
    here.slurm.run("sbatch", "--array=0-1", "--wrap", "true")
    here.good(f"plan --site {site} --max_running 2")
    assert "5 of 8 scripts wait for room (you have 2 in the queue of MaxSubmitJobs=5)" in waits(here)
    ended(here)
    here.good("submit")
    names = [
        (chunk.name, len(chunk.elements), chunk.cap, [name for _, name in chunk.after])
        for chunk in here.records()[0].chunks
    ]
    assert names == [("s0c0w0", 3, 1, []), ("s0c0", 1, 1, ["s0c0w0"]), ("s0c1", 4, 1, [])], (
        "both parts of an array together run no more than it may"
    )
    all_done(here)


def test_room_that_nobody_tells_is_found_by_halves(here: Bench) -> None:
    here.slurm.configure(max_submit=5)  # as of a quality of service: sacctmgr says nothing of it
    here.good("plan")
    assert "3 of 8 scripts wait for room (SLURM takes no more jobs of yours now)" in waits(here)
    assert "3 of 8 scripts wait for room (SLURM takes no more jobs of yours now)" in waits(here), "not even one"
    assert sum(state == "PENDING" for state in here.submitted().values()) == 5
    ended(here)
    here.good("submit")
    all_done(here)


def test_the_controller_is_full_all_of_a_sudden(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here.good("plan")
    here.slurm.configure(max_job_count=5)
    monkeypatch.setattr(scheduler, "queue_size", lambda: (0, 0))
    monkeypatch.setattr(chunk_submission, "SETTLE_S", 600.0)
    cache = here.root / "jobs/scheduler.json"
    assert '"max_job_count":10000' in cache.read_text()
    said = waits(here)
    assert "of 8 scripts wait for room (SLURM takes no more jobs now): run the same command again" in said
    assert sum(state == "PENDING" for state in here.submitted().values()) == 4
    here.slurm.configure(max_job_count=1000)
    here.good("submit")
    all_done(here)


def test_a_smaller_max_array_size_is_asked_again(here: Bench) -> None:
    here.good("plan")
    here.slurm.configure(max_array_size=4)
    said = here.good("submit")
    assert said.count("submitted job") == 3
    assert [len(chunk.elements) for chunk in here.records()[0].chunks] == [3, 3, 2]
    assert '"max_array_size":4' in (here.root / "jobs/scheduler.json").read_text()
    all_done(here)


def test_a_limit_that_was_raised_is_asked_again(here: Bench) -> None:
    here.slurm.configure(max_job_count=4)
    here.good("plan")
    here.slurm.configure(max_job_count=1000)
    here.good("submit")
    all_done(here)


@pytest.mark.parametrize("ends", [0, 1])
def test_what_waits_for_a_canary_in_a_later_wave(here: Bench, ends: int) -> None:
    here.behave({1: ends})
    here.slurm.configure(max_job_count=3)
    here.good("plan --canary")
    assert "6 of 8 scripts wait" in waits(here)
    here.slurm.release_all()
    here.wait()
    here.slurm.hold_all()
    here.slurm.configure(max_job_count=1000, min_job_age_s=0)  # SLURM has forgotten how the canary ended
    if ends:
        here.refused("submit", "s0canary, which has to succeed before s0c0", "is failed: plan again")
        return
    here.good("submit")
    all_done(here)


def test_a_limit_that_leaves_room_for_none_is_a_matter_of_waiting(here: Bench) -> None:
    here.slurm.run("sbatch", "--array=0-4", "--job-name=theirs", "--wrap=true")
    here.slurm.configure(max_submit=5)  # as of a quality of service: sacctmgr says nothing of it
    here.good("plan")
    assert "8 of 8 scripts wait for room (SLURM takes no more jobs of yours now)" in waits(here)
    here.slurm.run("scancel", "1")
    here.slurm.configure(max_submit=100)
    here.good("submit")
    assert sum(state == "PENDING" for state in here.submitted().values()) == 8


def test_what_earlier_code_kept_back_gets_the_ranks_that_were_planned(here: Bench) -> None:
    here.slurm.configure(max_submit=5)
    here.good("plan")
    waits(here)
    scripts = sorted(
        (here.root / "runs/tiny").glob("*/run.sh"), key=lambda path: int(path.parent.name.split("-s")[-1][0])
    )
    for path in scripts:  # as 3902daa2 wrote them
        path.write_text(path.read_text().replace("NUQ_NPROC", "NPROC").replace("NUQ_PYTHON", "PYTHON"))
    here.slurm.configure(max_submit=100)
    here.sweep(range(1, 8))
    here.refused("submit", "-s8-", "has left the sweep")
    here.sweep(SEEDS)
    here.good("submit")
    assert [index for index, path in enumerate(scripts, 1) if "NUQ_NPROC" in path.read_text()] == [6, 7, 8]
