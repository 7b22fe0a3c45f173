"""The original line with --submit, on a SLURM in virtual time: recorded, pinned, and never twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import grid_run
from grid.engine.states import ledger
from tests.grid import fake
from tests.virtual_slurm.cluster import Cluster

FAMILY = """from grid.engine.sweep import Sweep, point
def four() -> Sweep:
    return Sweep([point('A', method='qsgd', steps=7)], seeds=(1, 2, 3, 4))
"""
LINE = [
    "--prefix",
    "exp",
    "--cluster",
    "slurm",
    "--run_name",
    "four",
    "--cluster_args",
    "2,1,p100",
    "--gpus",
    "0",
    "--submit",
    "--grid",
]


def test_submitted_once_and_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fake.checkout(tmp_path / "co", {1: "wait"})
    family = tmp_path / "mine.py"
    family.write_text(FAMILY)
    with Cluster(tmp_path, cpus=8, partitions={"p100": "UNLIMITED"}).in_place() as slurm:
        monkeypatch.setenv("NUQ_PYTHON", sys.executable)
        assert grid_run.main([*LINE, str(family)], root) == 0
        assert "submitted job " in capsys.readouterr().out
        (root / "main.py").write_text(
            "import sys; sys.exit(1)  # edited after submitting: the jobs execute their snapshot"
        )
        job = ledger.read_all(root, "mine_four")[0].chunks[0].job_id
        slurm.wait(f"{job}_1", state="COMPLETED")
        slurm.until(lambda: list(root.glob("runs/mine_four/*-s1-*/started")), "the first run has not started")
        assert grid_run.main([*LINE, str(family)], root) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"queued or running already (running; job {job})" in error
        assert grid_run.main(["status", str(family), "four"], root) == 0
        words = [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:5]]
        assert words == ["running", "done", "pending", "done"]
        assert grid_run.main(["cancel", str(family), "four", "--yes"], root) == 0
        slurm.wait(f"{job}_0", state="CANCELLED")
        assert len(slurm.calls("sbatch")) == 1
    started = [path.read_text() for path in sorted(root.glob("runs/mine_four/*/started"))]
    assert started == ["x", "x", "x"]


def test_a_prefix_in_the_queue_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fake.checkout(tmp_path / "co", dict.fromkeys(range(1, 5), "wait"))
    family = tmp_path / "mine.py"
    family.write_text(
        FAMILY
        + FAMILY.splitlines()[1].replace("four", "other")
        + "\n"
        + FAMILY.splitlines()[2].replace("'A'", "'B'")
        + "\n"
    )
    with Cluster(tmp_path, cpus=8, partitions={"p100": "UNLIMITED"}).in_place():
        monkeypatch.setenv("NUQ_PYTHON", sys.executable)
        assert grid_run.main([*LINE, str(family)], root) == 0
        before = (root / "jobs" / "exp_0.sh").read_text()
        other = ["other" if word == "four" else word for word in LINE]
        assert grid_run.main([*other, str(family)], root) == 2
        assert "still runs jobs/exp_*.sh" in capsys.readouterr().err
        assert (root / "jobs" / "exp_0.sh").read_text() == before
        assert grid_run.main([*[word.replace("exp", "two") for word in other], str(family)], root) == 0
