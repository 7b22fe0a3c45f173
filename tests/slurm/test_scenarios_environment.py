"""What of the caller's environment reaches a job: nothing that binds, and no name that others use, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.checkout import SITE, Checkout, stand_in
from tests.slurm.cluster import Slurm

STEP = ("srun", "-n1", "-c2", "--cpu-bind=map_cpu:0")
NOTES = 'activate: ["env >$PWD/seen-$SLURM_JOB_ID", "export SLURM_CPU_BIND=none"]\n'  # a profile may bind


@pytest.fixture
def checkout(slurm: Slurm, tmp_path: Path) -> Iterator[Checkout]:
    """A user whose shell has names of its own, and a site whose lines note what they see."""
    made = stand_in(tmp_path / "checkout", slurm, 1, site=SITE + NOTES)
    yield replace(
        made, environ={**made.environ, "NPROC": "7", "PYTHON": "/nowhere/python", "SLURM_HINT": "multithread"}
    )
    if made.ids():
        slurm.run("scancel", "--full", *made.ids(), check=False)


def seen(checkout: Checkout) -> dict[str, str]:
    """The environment of the latest job when the site's lines began."""
    path = max(checkout.root.glob("seen-*"), key=lambda path: path.stat().st_mtime)
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def test_submitted_from_within_an_interactive_step(checkout: Checkout) -> None:
    checkout.run("plan")
    assert "SLURM_CPU_BIND=" in checkout.shell(*STEP, "env").out, "this is what could leak"
    done = checkout.shell(*STEP, *checkout.command("submit", "sweeps.py", "some"))
    assert done.code == 0, done.out
    checkout.wait_until_over()
    assert checkout.states() == {1: "done"}
    names = seen(checkout)
    leaked = [
        name for name in names if name.startswith(("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_STEP", "SLURM_HINT"))
    ]
    assert not leaked, {name: names[name] for name in leaked}
    assert names["SLURM_CPUS_PER_TASK"] == "1"


def test_a_file_that_is_handed_to_sbatch_by_hand_from_within_a_step(checkout: Checkout) -> None:
    # sbatch is called by a person here: the script itself forgets what binds.
    checkout.run("plan", "--scripts")
    (file,) = (checkout.root / "jobs/sweeps").glob("some/*/*.sbatch")
    (file.parent / "logs").mkdir(exist_ok=True)
    around = ("env", "SLURM_GPU_BIND=single:1", "SLURM_GPUS_PER_TASK=1", "SLURM_THREADS_PER_CORE=1")  # as salloc sets
    checkout.shell(*STEP, *around, "sbatch", str(file))
    checkout.slurm.wait_until(lambda: list(checkout.root.glob("seen-*")))
    checkout.slurm.cancel_all()
    names = ("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_GPU_BIND", "SLURM_GPUS_PER_TASK", "SLURM_THREADS_PER_CORE")
    assert not [name for name in seen(checkout) if name.startswith(names)]


def test_plan_names_what_of_the_shell_decides(checkout: Checkout) -> None:
    shell = {**checkout.environ, "SBATCH_PARTITION": "short", "SBATCH_TIMELIMIT": "1"}
    told = replace(checkout, environ=shell).run("plan")
    assert "of this shell the jobs get" in told
    assert "SBATCH_PARTITION=short" in told and "SBATCH_TIMELIMIT=1" in told
    assert "SLURM_HINT" not in told
