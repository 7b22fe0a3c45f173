"""Real trainings through the queue end with the bits of the same trainings run alone: on two nodes, and after a
preemption.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.slurm.checkout import Checkout, accounted, queued, whole
from tests.slurm.cluster import Slurm

SHORT, LONG = 40, 6000  # long enough not to end between the preemption and its signal (SLURM sends a SIGCONT first)
SWEEPS = f'''
"""The same task on two nodes, in a partition that is preempted, and alone."""

from grid.engine.sweep import Sweep, point


def task(steps):
    settings = {{"optim.lr": 0.01, "method.bits": 3, "method.bucket_size": 512, "method.update_at": [10, 30]}}
    training = {{"workers": 2, "batch_size": 8, "eval_every": steps, "steps": steps}}
    return point("ALQ", settings, method="alq", data="digits", model="mlp", **training)


def nodes() -> Sweep:
    """Two workers on two nodes."""
    return Sweep([task({SHORT})], resources={{"nodes": 2, "ranks": 2}}, folder="nodes")


def low() -> Sweep:
    """Two runs, one a node, that give way to others."""
    return Sweep([task({LONG})], seeds=(1, 2), resources={{"partition": "low", "cpus": 5}}, folder="low")


def alone() -> Sweep:
    """Both, of seed 1, without SLURM."""
    return Sweep([task({SHORT}), task({LONG})], folder="alone")
'''


@pytest.fixture(scope="module")
def checkout(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return whole(tmp_path_factory.mktemp("training") / "checkout", slurm, SWEEPS, "nodes")


@pytest.fixture(scope="module")
def alone(checkout: Checkout) -> Iterator[subprocess.Popen[str]]:
    """The undisturbed runs, in the background."""
    with checkout.begin("run", "sweeps.py", "alone", "--slots", "2") as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def soon(slurm: Slurm) -> Iterator[None]:
    """The batch shell is warned a second after the preemption, not six: the run is not to end meanwhile."""
    slurm.run("scontrol", "update", "PartitionName=low", "GraceTime=1")
    yield
    slurm.run("scontrol", "update", "PartitionName=low", "GraceTime=6")


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process stands still meanwhile: a run on a fast machine must not end before it is preempted."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("soon")
def test_a_preempted_run_ends_with_the_bits_of_an_undisturbed_one(
    slurm: Slurm, checkout: Checkout, alone: subprocess.Popen[str]
) -> None:
    low = replace(checkout, name="low")
    job = low.submit()
    folders = {seed: checkout.root / row["run"] for seed, row in low.rows().items()}
    victim = 1
    slurm.wait_until(lambda: told(folders[victim]).get("step", 0) > 0, 90, 0.02)
    with frozen(told(folders[victim])["pid"]):
        slurm.wait_until(lambda: told(folders[2]).get("step", 0) > 0, 90)
        before = {seed: told(folder) for seed, folder in folders.items()}
        assert before[victim]["state"] == "running"
        nodes = dict(
            row.split() for row in slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%i %N").splitlines()
        )
        assert set(nodes.values()) == {"n1", "n2"}
        slurm.run(
            "sbatch",
            "--partition=high",
            f"--nodelist={nodes[f'{job}_0']}",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 1",
        )
        slurm.wait_until(lambda: queued(slurm, job).get(f"{job}_0") != "RUNNING", 60, 0.05)
    slurm.wait_until(lambda: told(folders[victim])["state"] == "preempted", 60)
    stopped_at = told(folders[victim])["step"]
    assert 0 < stopped_at < LONG
    assert low.states()[victim] in ("pending", "preempted")
    low.wait_until_over(300)

    first, second = told(folders[1]), told(folders[2])
    assert (first["state"], second["state"]) == ("done", "done")
    assert (first["attempt"], second["attempt"]) == (2, 1)
    assert second["pid"] == before[2]["pid"]
    assert (first["slurm"]["SLURM_RESTART_COUNT"], first["slurm"]["SLURM_ARRAY_TASK_ID"]) == ("1", "0")
    assert "SLURM_RESTART_COUNT" not in second["slurm"]
    assert low.states() == {1: "done", 2: "done"}
    everything = {f"{job}_0": "COMPLETED", f"{job}_1": "COMPLETED"}
    slurm.wait_until(lambda: accounted(slurm, [job]) == everything, 30)
    lives = slurm.run("sacct", "-X", "-P", "-n", "-D", "-j", job, "-o", "JobID,State").splitlines()
    assert sorted(lives) == sorted([f"{job}_0|PREEMPTED", f"{job}_0|COMPLETED", f"{job}_1|COMPLETED"])
    assert_same_bits(checkout, alone, folders[1], LONG)


def test_two_nodes_end_with_the_bits_of_one_process(
    slurm: Slurm, checkout: Checkout, alone: subprocess.Popen[str]
) -> None:
    job = checkout.submit()
    (row,) = checkout.rows().values()
    folder = checkout.root / row["run"]
    slurm.wait_until(lambda: queued(slurm, job) == {f"{job}_0": "RUNNING"} or told(folder), 30)
    checkout.wait_until_over(120)
    log = (folder / "stdout.log").read_text()
    assert told(folder)["state"] == "done", log
    assert checkout.rows()[1]["state"] == "done"
    steps = slurm.run("sacct", "-P", "-n", "-j", job, "-o", "JobID,NNodes,NTasks,State").splitlines()
    assert f"{job}_0.0|2|2|COMPLETED" in steps
    assert told(folder)["code"] == Path(checkout.records()[-1]["code"]["path"]).name
    assert_same_bits(checkout, alone, folder, SHORT)


def told(folder: Path) -> dict[str, Any]:
    """The words of a run on itself; empty before it said anything."""
    try:
        return json.loads((folder / "status.json").read_text())
    except FileNotFoundError:
        return {}


def assert_same_bits(checkout: Checkout, alone: subprocess.Popen[str], folder: Path, steps: int) -> None:
    """The final parameters and the optimizer's state are those of the run of the same settings alone."""
    out = alone.communicate(timeout=150)[0] if alone.poll() is None else ""
    assert alone.returncode == 0, out
    # The folder's name holds the identity: the same settings.
    other = checkout.root / "runs/alone" / folder.name
    left, right = (torch.load(place / "checkpoint.pt", weights_only=True) for place in (folder, other))
    assert left["step"] == right["step"] == steps
    tensors = [
        [value.numpy().tobytes() for value in flat([state["model"], state["optimizer"]])] for state in (left, right)
    ]
    assert len(tensors[0]) > 4
    assert tensors[0] == tensors[1]


def flat(values: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested dictionaries and lists."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict | list | tuple):
        for value in values.values() if isinstance(values, dict) else values:
            yield from flat(value)
