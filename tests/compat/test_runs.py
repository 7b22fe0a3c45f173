"""Run folders, checkpoints, event files and the orchestrator's records of earlier code: read, and gone on with."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.logs.load import load
from grid.engine.states import ledger
from grid.engine.states.run_files import RunFolder
from grid.engine.submission import planning
from settings import run_identity
from tests.compat import WRITTEN, trainings
from tests.grid.bench import Bench, bench
from tests.tiers import few
from tests.train.emitted import in_this_process, words
from train.process import checkpoint
from train.process.config_file import read_config

PLACE = "/tmp/nuq-compat"
ALQ, TOPK = "alq-3b-logreg-digits-s1-a68a77cdd1d537", "topk-logreg-digits-s1-22d123d2efa542"
CPU = torch.device("cpu")


def unpacked(archive: str, folder: Path) -> Path:
    """The files of an archive, in which the folder stands where they were written."""
    with zipfile.ZipFile(WRITTEN / archive) as files:
        for name in files.namelist():
            path, data = folder / name, files.read(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if name.endswith(".pt") else data.replace(PLACE.encode(), bytes(folder)))
    return folder


def state(folder: Path) -> dict[str, Any]:
    identity = run_identity.identity(read_config(folder))
    found = checkpoint.find(folder, identity, CPU)
    assert found is not None and not found.damage
    return found.state


def numbers(value: Any, name: str = "") -> dict[str, Any]:
    """Every tensor and number of a checkpoint, by its place; times are left out."""
    if isinstance(value, dict):
        inside = [(f"{name}.{key}", each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        inside = [(f"{name}[{place}]", each) for place, each in enumerate(value)]
    else:
        return {} if name.endswith("_s") else {name: value}
    return {key: number for at, each in inside for key, number in numbers(each, at).items()}


def assert_same_bits(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All that the earlier code saved is there, with the same bits; later code may save more."""
    found, expected = numbers(found), numbers(expected)
    assert not expected.keys() - found.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[name].dtype == value.dtype and torch.equal(found[name], value), name
        else:
            assert found[name] == value, name


def scalars(runs: Path, sweep: str) -> dict[tuple[str, str, int], float]:
    """The values of a sweep's logs by run, tag and step, but for times and what a machine has."""
    logs = load(runs, sweep, cache=False)
    assert not logs.notes
    rows = zip(*(logs.scalars[name].tolist() for name in ("run", "tag", "step", "value")), strict=True)
    return {(run, tag, step): value for run, tag, step, value in rows if not tag.startswith("time/")}


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders ``stopped`` and ``done`` of runs, in a folder that this process is in; run.sh names ``runs/digits``."""
    unpacked("runs.zip", tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "stopped").rename(tmp_path / "runs" / "digits")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stopped_runs_are_read(stopped: Path) -> None:
    """Status, settings, identity, checkpoints of both generations, event files and CSV."""
    for name in (ALQ, TOPK):
        folder, done = stopped / "runs" / "digits" / name, stopped / "done" / name
        assert (RunFolder(folder).state().word, RunFolder(done).state().word) == ("preempted", "done")
        config = read_config(folder)
        assert name.endswith(run_identity.identity(config)[: len(name.rpartition("-")[2])])
        assert (state(folder)["step"], state(done)["step"]) == (7, 12)
        (folder / checkpoint.FILE).unlink()
        assert state(folder)["step"] == 6
    of_half, of_all = scalars(stopped / "runs", "digits"), scalars(stopped, "done")
    assert 100 < len(of_half) < len(of_all) and of_half.items() <= of_all.items()
    table = pd.read_csv(stopped / "done" / ALQ / "scalars.csv")
    assert len(table) > 50


@few(("ALQ",), "name", [ALQ, TOPK], ids=["ALQ", "TopK"])
def test_a_stopped_run_goes_on(stopped: Path, name: str) -> None:
    """It ends with the bits of the run that nobody stopped, which was recorded with it.

    The model's products of matrices differ in their last bits between processors.  The recorded bits are therefore
    demanded where this machine's arithmetic is that of the record (``trainings.arithmetic``).  Elsewhere weights are
    compared within a hundredth, because a rounding that flips moves single ones.
    """
    digits = stopped / "runs" / "digits"
    assert in_this_process(words(digits / name)) == 0
    assert json.loads((digits / name / "status.json").read_text())["attempt"] == 2
    resumed, recorded = state(digits / name), state(stopped / "done" / name)
    for key, weights in recorded["model"].items():
        assert float((resumed["model"][key] - weights).norm()) <= 0.01 * float(weights.norm()), key
    of_all = {at: value for at, value in scalars(stopped, "done").items() if at[0] == name}
    of_resumed = {at: value for at, value in scalars(stopped / "runs", "digits").items() if at[0] == name}
    assert of_resumed.keys() == of_all.keys()
    if (WRITTEN / "arithmetic").read_text() == trainings.arithmetic():
        assert_same_bits(resumed, recorded)
        assert of_resumed == of_all


def test_a_checkpoint_is_plain_values_and_tensors(stopped: Path) -> None:
    """torch.load reads it without running code."""
    data = (stopped / "done" / ALQ / checkpoint.FILE).read_bytes()
    found = torch.load(io.BytesIO(data), weights_only=True)
    assert found["step"] == 12 and found["workers"]["memories"]


@pytest.fixture
def sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    with bench(tmp_path, capsys) as here:
        unpacked("submission.zip", tmp_path)
        yield here


def test_a_submission_goes_on(sweep: Bench) -> None:
    """The record, the reviewed plan and the runs' files: what ended is not started again, what is new is."""
    (record,) = ledger.read_all(sweep.root, "tiny")
    (chunk,) = record.chunks
    assert (record.title, chunk.state, chunk.job_id, len(chunk.elements)) == ("mine.tiny", "submitted", "1", 3)
    plan = planning.reviewed(sweep.root, "tiny")
    assert plan is not None and plan.is_of(str(sweep.family), "tiny") and plan.is_built
    (run,) = plan.essence.runs
    assert "-s4-" in run and plan.essence.runs[run]["mem"] == "1G"
    assert sweep.states() == {1: "done", 2: "diverged", 3: "done", 4: "new"}
    assert "diverged" in sweep("failures").out
    sweep.good("plan")
    sweep.good("submit")
    sweep.wait()
    assert sweep.starts() == dict.fromkeys((1, 2, 3, 4), 1)
    assert sweep.states() == {1: "done", 2: "diverged", 3: "done", 4: "done"}
    assert len(ledger.read_all(sweep.root, "tiny")) == 2
