"""The whole mission on a real SLURM: the six methods of the paper as a sweep, submitted by submitit, trained by real
ranks and preempted in the middle; and a run on two nodes.  All ends with the bits of the same trainings in one process.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.slurm.checkout import ROOT, Checkout, accounted, queued, whole
from tests.slurm.cluster import PATIENCE_S, Slurm

METHODS = {"ALQ": "alq", "AMQ": "amq", "SuperSGD": "supersgd", "QSGDinf": "qsgdinf", "NUQSGD": "nuqsgd", "TRN": "trn"}
SHORT, LONG = 40, 200
CHECKPOINT = 80  # the run of ALQ is preempted soon after this step
SWEEPS = f'''
"""The six methods in a partition that is preempted, and one of them on two nodes."""

from grid.engine.sweep import Sweep, point, product, union, where_read

SHARED = {{"optim.lr": 0.01, "measure.num_samples": 2, "measure.every": {LONG // 4}, "checkpoint_every": {CHECKPOINT}}}


def task(steps, methods):
    training = {{"workers": 2, "batch_size": 8, "eval_every": steps // 4, "steps": steps}}
    levels = where_read({{"method.bits": 3, "method.bucket_size": 512, "method.update_at": [10, 30, 120]}})
    named = union(*(point(label, method=name) for label, name in methods.items()))
    return product(point("", SHARED, data="digits", model="mlp", **training), levels, named)


def nodes() -> Sweep:
    """Two workers on two nodes."""
    return Sweep(task({SHORT}, {{"ALQ": "alq"}}), resources={{"nodes": 2, "ranks": 2}}, folder="nodes")


def mission() -> Sweep:
    """Runs of two ranks, each of which takes a node, that give way to others."""
    resources = {{"partition": "low", "ranks": 2, "cpus": 4}}
    return Sweep(task({LONG}, {METHODS}), resources=resources, folder="mission")
'''
ALONE = """
import sys
from grid.engine.states.runs import named
from train.launch import launch

for sweep in ("nodes", "mission"):
    for item in named("sweeps.py", sweep)[1]:
        if code := launch({**item.config, "run_dir": f"../alone/{item.folder}/{item.name}"}):
            sys.exit(code)
"""
TIMES = {"steps_per_s", "images_per_s", "seconds"}


@pytest.fixture(scope="module")
def checkout(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return whole(tmp_path_factory.mktemp("training") / "checkout", slurm, SWEEPS, "mission")


@pytest.fixture(scope="module")
def alone(checkout: Checkout) -> Iterator[subprocess.Popen[str]]:
    """The undisturbed runs, one after another in one process that knows of no SLURM, in the background."""
    with subprocess.Popen(
        [sys.executable, "-c", ALONE], cwd=checkout.root, env=checkout.environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def soon(slurm: Slurm) -> Iterator[None]:
    """SLURM tells all processes of a preempted job at once: a short run is not to end meanwhile."""
    slurm.run("scontrol", "update", "PartitionName=low", "GraceTime=0")
    yield
    slurm.run("scontrol", "update", "PartitionName=low", "GraceTime=6")


@pytest.mark.usefixtures("soon")
def test_the_six_methods_with_a_preemption_end_with_the_figures_of_undisturbed_runs(
    slurm: Slurm, checkout: Checkout, alone: subprocess.Popen[str]
) -> None:
    job = checkout.submit()
    folders = {row["label"]: checkout.root / row["run"] for row in checkout.table()}
    assert folders.keys() == METHODS.keys()
    victim = folders["ALQ"]
    slurm.wait_until((victim / "checkpoint.pt").exists, every_s=0.001)
    pid = told(victim)["pid"]
    os.kill(pid, signal.SIGSTOP)
    (node,) = slurm.run("squeue", "-h", "-j", f"{job}_0", "-o", "%N").split()
    slurm.run("sbatch", "--partition=high", f"--nodelist={node}", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    slurm.wait_until(lambda: queued(slurm, job).get(f"{job}_0") != "RUNNING", every_s=0.05)
    with contextlib.suppress(ProcessLookupError):  # SLURM lets it go on, too, and tells it to stop
        os.kill(pid, signal.SIGCONT)
    slurm.wait_until(lambda: told(victim)["state"] == "preempted")
    assert CHECKPOINT <= told(victim)["step"] < LONG
    checkout.wait_until_over()

    ended = {label: told(folder) for label, folder in folders.items()}
    assert {label: (run["state"], run["attempt"]) for label, run in ended.items()} == {
        label: ("done", 1 + (label == "ALQ")) for label in METHODS
    }
    assert (ended["ALQ"]["slurm"]["SLURM_RESTART_COUNT"], ended["ALQ"]["slurm"]["SLURM_ARRAY_TASK_ID"]) == ("1", "0")
    assert {row["state"] for row in checkout.table()} == {"done"}
    elements = {f"{job}_{index}" for index in range(6)}
    slurm.wait_until(lambda: accounted(slurm, [job]) == dict.fromkeys(elements, "COMPLETED"))
    lives = slurm.run("sacct", "-X", "-P", "-n", "-D", "-j", job, "-o", "JobID,State").splitlines()
    assert sorted(lives) == sorted([f"{job}_0|PREEMPTED", *(f"{each}|COMPLETED" for each in elements)])
    wait_for(alone)
    for folder in folders.values():
        assert "sent by the first process" in (folder / "stdout.log").read_text()  # so there were several
        assert_same_bits(checkout, folder, LONG)
    here, there = (drawn(checkout, place) for place in ("runs", "../alone"))
    assert {"table.csv", "accuracy.png", "relative_var.pdf", "levels.png", "overview.png"} <= here.keys()
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


def test_two_nodes_end_with_the_bits_of_one_process(
    slurm: Slurm, checkout: Checkout, alone: subprocess.Popen[str]
) -> None:
    nodes = replace(checkout, name="nodes")
    job = nodes.submit()
    (row,) = nodes.rows().values()
    folder = checkout.root / row["run"]
    slurm.wait_until(lambda: queued(slurm, job) == {f"{job}_0": "RUNNING"} or told(folder))
    nodes.wait_until_over()
    log = (folder / "stdout.log").read_text()
    assert told(folder)["state"] == "done", log
    assert nodes.rows()[1]["state"] == "done"
    steps = slurm.run("sacct", "-P", "-n", "-j", job, "-o", "JobID,NNodes,NTasks,State").splitlines()
    assert f"{job}_0.0|2|2|COMPLETED" in steps
    assert told(folder)["code"] == Path(nodes.records()[-1]["code"]["path"]).name
    wait_for(alone)
    assert_same_bits(checkout, folder, SHORT)


def drawn(checkout: Checkout, runs: str) -> dict[str, Any]:
    """The files of figures by their names, and the table without its times, that ``python -m analysis`` makes."""
    out = checkout.root.parent / f"drawn-{Path(runs).name}"
    command = [sys.executable, "-m", "analysis", "all", "mission", "--x", "step", "--format", "csv"]
    done = subprocess.run(
        [*command, "--runs", str(checkout.root / runs), "--out", str(out)], cwd=ROOT, env=checkout.environ,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files: dict[str, Any] = {path.name: path.read_bytes() for path in out.rglob("[!.]*.*")}
    rows = csv.DictReader(files["table.csv"].decode().splitlines())
    files["table.csv"] = [{name: text for name, text in row.items() if name not in TIMES} for row in rows]
    assert {row["method"] for row in files["table.csv"]} == set(METHODS.values())
    return files


def wait_for(alone: subprocess.Popen[str]) -> None:
    out = alone.communicate(timeout=PATIENCE_S)[0] if alone.poll() is None else ""
    assert alone.returncode == 0, out


def told(folder: Path) -> dict[str, Any]:
    """The words of a run on itself; empty before it said anything."""
    try:
        return json.loads((folder / "status.json").read_text())
    except FileNotFoundError:
        return {}


def assert_same_bits(checkout: Checkout, folder: Path, steps: int) -> None:
    """The final parameters and the optimizer's state are those of the run of the same settings alone."""
    # The folder's name holds the identity: the same settings.
    other = checkout.root.parent / "alone" / folder.relative_to(checkout.root / "runs")
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
