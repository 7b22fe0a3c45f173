"""Checks before anything is submitted: evidence forbids, guesses warn, and each check can be ignored by its name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from grid.engine.states.runs import named, runs_of
from grid.engine.submission import preflight
from tests.grid import bench
from tests.grid.bench import Bench


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys, opinion=True, nodes=2) as made:
        yield made


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how many bytes the disk has left."""
    return lambda size: monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=size))


def problem(here: Bench, words: str, options: str = "") -> str:
    said = here(f"plan {options}")
    assert (said.code, said.err) == (1, ""), said
    line = next(line for line in said.out.splitlines() if line.startswith("problem: "))
    assert words in line
    here.refused("submit", "nothing was submitted: ", words)
    return line


def test_without_evidence_a_small_disk_is_a_note(here: Bench, free: Callable[[float], None]) -> None:
    free(250e6)
    said = here.good("plan")
    assert "problem" not in said
    (note,) = [line for line in said.splitlines() if line.startswith("note: ")]
    assert "0.25 GB left for 3 runs; what they need is not known before one is done, or dry-run has tried one" in note
    free(280e6)
    assert "note: " not in here.good("plan")
    here.good("submit")


def test_finished_siblings_are_evidence(here: Bench, free: Callable[[float], None]) -> None:
    here.sweep((1,))
    here.good("plan")
    here.good("submit")
    here.wait()
    (first,) = here.root.glob("runs/tiny/*-s1-*")
    (first / "checkpoint.pt").write_bytes(b"")
    (first / "evaluator").mkdir()
    os.truncate(os.open(first / "evaluator" / "events", os.O_CREAT | os.O_RDWR), 400_000_000)
    here.sweep((1, 2, 3))
    free(1000e6)
    problem(
        here,
        "1 GB left, and 2 runs of up to 0.4 GB need 1 GB, as finished siblings took: make room, submit fewer, or "
        "--ignore disk",
    )
    assert here.good("submit --ignore disk")
    free(1020e6)
    assert "nothing to submit" in here.good("plan")


def test_the_dry_run_is_evidence(here: Bench, free: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = runs_of(named(str(here.family), "tiny")[1], here.root)
    free(10e9)
    preflight.keep_measured(first, 4_000_000_000, here.root)
    problem(here, "10 GB left, and 3 runs of up to 4 GB need 12 GB, as the dry run measured")
    here.good("plan --ignore disk")
    here.good("submit")  # the plan remembers
    (here.root / "jobs/sweeps/tiny/dry_run.json").write_text('{"cnn": "much"}')
    assert preflight.read_measured(here.root, "tiny") == {}

    def tried(command: list[str], *, env: dict[str, str], **more: object) -> SimpleNamespace:
        Path(env["NUQ_MEASURED"]).write_text('{"disk_gb": 0.5}')
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", tried)
    here.good("dry-run")
    assert preflight.read_measured(here.root, "tiny") == {"cnn": 500_000_000}


def test_each_check_can_be_ignored(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here.slurm.hold_all()
    here.sweep(shared={"steps": 7, "data": "cifar10"})
    problem(here, "data=cifar10")
    here.good("plan --ignore data")
    here.good("submit")
    here.sweep()
    problem(here, "time=2:00 is 120 s", "--time 2:00")
    here.good("submit --yes --ignore time --ignore disk")
    here.sweep((4,))
    problem(here, "node configuration is not available", "--cpus 99")
    asked = len(here.slurm.calls("sbatch"))
    here.good("plan --cpus 99 --ignore opinion")
    assert len(here.slurm.calls("sbatch")) == asked
    here.good("plan")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda place, how, real=os.access: how != os.W_OK | os.X_OK and real(place, how))
        problem(here, "cannot be written")
        here.good("submit --yes --ignore folders")


def test_where_slurm_is_silent_the_way_out_is_named(here: Bench) -> None:
    here.slurm.controller_down()
    said = here("plan")
    (line,) = [line for line in said.out.splitlines() if line.startswith("problem: ")]
    assert said.code == 1 and "--ignore opinion" in line
    assert here("plan --ignore opinion").code == 0


def test_nodes_that_are_drained_or_down_forbid_nothing(here: Bench) -> None:
    here.slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN")
    here.slurm.fail_node("n2")
    said = here.good("plan")
    assert "Requested node configuration is not available" in said
    assert "; n1 is drained, n2 is down, for which it would wait" in said
    here.good("submit")
    assert set(here.submitted().values()) == {"PENDING"}
    here.sweep((4,))
    problem(here, "node configuration is not available", "--cpus 99")
    problem(here, "node configuration is not available", "--nodes 3 --ranks 3")
    problem(here, "node configuration is not available", "--gpus 1")
    here.slurm.resume_node("n2")
    here.wait()
    assert here.starts() == dict.fromkeys((1, 2, 3), 1)


def test_a_full_queue_is_no_matter_of_the_plan(here: Bench) -> None:
    here.slurm.hold_all()
    here.slurm.configure(max_job_count=3)
    here.slurm.run("sbatch", "--array=0-1", "--wrap", "true")
    assert "submit hands over 0 of 3 scripts now" in here.good("plan")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--gpus 1 --cpus 1 --time 30", ["1 GPU,", "1 core,", "30 min"]),
        ("--gpus a100:1 --cpus 2 --time 30:00", ["1 a100 GPU,", "2 cores,", "30:00"]),
        ("--gpus 2", ["2 GPUs,"]),
    ],
)
def test_what_a_script_asks_for_in_words(here: Bench, options: str, told: list[str]) -> None:
    said = here(f"plan {options} --ignore opinion").out
    (row,) = [line for line in said.splitlines() if line.startswith("s0c0 ")]
    assert all(words in f"{row}," for words in told)
