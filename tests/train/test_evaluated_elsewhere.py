"""mode=evaluate of runs from elsewhere: other data, another device, a checkpoint that is damaged or full of nan."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from settings import command_line, resolving, run_identity
from train import evaluator
from train.evaluator import run
from train.launch import launch
from train.process import checkpoint

SETTINGS = {"data": "digits", "model": "cnn", "method": "supersgd", "batch_size": 8, "workers": 2, "optim.lr": 0.001}
SETTINGS |= {"steps": 4, "eval_every": 0, "checkpoint_every": 2, "eval_train": False}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that is done, with checkpoints of steps 2 and 4."""
    folder = tmp_path / "run"
    assert launch(resolving.resolve(SETTINGS | {"run_dir": str(folder)})) == 0
    return folder


def settings(run_dir: Path, **more: Any) -> command_line.Evaluation:
    return command_line.evaluation({"run": str(run_dir), "poll_s": 0.05, "patience_s": 0.2, **more})


def test_once_with_a_damaged_newest_says_which_it_evaluates(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / checkpoint.FILE).write_bytes(b"")
    assert run(settings(run_dir, once=True)) == 0
    previous = run_dir / checkpoint.PREVIOUS
    told = f"main.py: {run_dir / checkpoint.FILE} is damaged (it is empty): evaluating {previous}, of step 2\n"
    assert capsys.readouterr().err == told
    assert [row["step"] for row in json.loads((run_dir / evaluator.FOLDER / evaluator.RESULTS).read_text())] == [2]


def test_other_data_than_the_runs_are_refused(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text of another Python is such data.  NUQ_DATA is no way out: the run's own data_dir comes before it."""
    path = run_dir / checkpoint.FILE
    checkpoint.save(run_dir, {**torch.load(path, weights_only=True), "fingerprint": "abc"})
    for once in (True, False):
        assert run(settings(run_dir, once=once)) == 2
        told = (
            "the run began on data with the fingerprint abc, and digits's here have 45d9852abc54d5: evaluate it "
            "with the files that it began with (data_dir=FOLDER, now data; of data=text: the Python)"
        )
        assert told in capsys.readouterr().err
        shutil.copy(path, run_dir / checkpoint.PREVIOUS)


def test_a_run_does_not_go_on_on_other_data(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint.save(run_dir, {**torch.load(run_dir / checkpoint.FILE, weights_only=True), "fingerprint": "abc"})
    (run_dir / "status.json").unlink()
    assert launch(resolving.resolve(SETTINGS | {"run_dir": str(run_dir)})) == 2
    told = (
        "the run began on data with the fingerprint abc, and digits's here have 45d9852abc54d5: go on with the "
        "files that it began with"
    )
    assert capsys.readouterr().err.startswith(f"main.py: {run_dir / checkpoint.FILE}: {told}")


def test_a_checkpoint_older_than_fingerprints_goes_on(run_dir: Path) -> None:
    state = torch.load(run_dir / checkpoint.FILE, weights_only=True)
    del state["fingerprint"]
    checkpoint.save(run_dir, state)
    (run_dir / "status.json").unlink()
    assert launch(resolving.resolve(SETTINGS | {"run_dir": str(run_dir)})) == 0
    assert run(settings(run_dir, once=True)) == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": [1]}, "does not fit this run (its model is a list, where this run has a dict)"),
        ({"identity": "another"}, "was written with other settings (identity another, this run is"),
        ({"fingerprint": "abc"}, "the run began on data with the fingerprint abc"),
    ],
)
def test_an_odd_previous_is_told_once_and_the_newest_evaluated(
    values: dict[str, Any], words: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = torch.load(run_dir / checkpoint.FILE, weights_only=True)
    for state in ({**whole, "step": 3, **values}, whole):
        checkpoint.save(run_dir, state)
    held, seen = evaluator.Evaluator(settings(run_dir)), set[evaluator.Mark]()
    (run_dir / evaluator.FOLDER).mkdir()
    for _ in range(3):
        evaluator._evaluate_new(held, seen)
    assert list(held.results) == [4] and len(seen) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"main.py: {run_dir / checkpoint.PREVIOUS}") and error.endswith(": going on without it\n")
    assert words in error and error.count("\n") == 1
    assert run(settings(run_dir)) == 0
    os.replace(run_dir / checkpoint.PREVIOUS, run_dir / checkpoint.FILE)
    assert run(settings(run_dir)) == 2, "of the newest it is an error"
    assert f"main.py: {run_dir / checkpoint.FILE}" in capsys.readouterr().err


def test_the_advice_to_who_trains_is_not_given(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run that an evaluator's reader would move away or start anew is somebody else's."""
    newest = run_dir / checkpoint.FILE
    (run_dir / checkpoint.PREVIOUS).unlink()
    newest.write_bytes(b"")
    (run_dir / "status.json").write_text("[]")
    for once in (True, False):
        run(settings(run_dir, once=once))
    checkpoint.save(run_dir, {"identity": "another", "step": 2})
    assert run(settings(run_dir, once=True)) == 2
    newest.unlink()
    newest.mkdir()
    assert run(settings(run_dir, once=True)) == 2
    damaged, waiting, status, another, unreadable = capsys.readouterr().err.splitlines()
    assert damaged == f"main.py: {newest} is damaged (it is empty)" == waiting.removesuffix(": waiting for the next")
    assert status == f"main.py: {run_dir}/status.json is damaged (it holds no object)"
    assert another.startswith(
        f"main.py: {newest} was written with other settings (identity another, "
    ) and another.endswith(")")
    assert unreadable == f"main.py: {newest} cannot be read (Is a directory)"


@pytest.mark.parametrize("name", ["cuda_graphs", "compile"])
def test_means_of_training_are_not_asked_for(name: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a GPU is evaluated on a CPU, and where there is no compiler."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    config = evaluator.read_config(run_dir)
    config["compute"][name] = True
    (run_dir / "config.yaml").write_text(json.dumps(config))
    checkpoint.save(
        run_dir, {**torch.load(run_dir / checkpoint.FILE, weights_only=True), "identity": run_identity.identity(config)}
    )
    assert run(settings(run_dir, once=True)) == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("conv1.bias", float("nan"), "'conv1.bias' is not finite"),
        ("conv1.weight", 3e38, "the model's parameters and buffers are finite, what it makes of its inputs is not"),
    ],
)
def test_what_is_not_finite_is_named(
    name: str,
    value: float,
    words: str,
    run_dir: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = torch.load(run_dir / checkpoint.FILE, weights_only=True)
    state["model"][name].fill_(value)
    checkpoint.save(run_dir, state)
    assert run(settings(run_dir, once=True)) == 0
    assert re.fullmatch(rf"step 4: the loss on the test set is (nan|inf): {words}\n", capsys.readouterr().err)
    assert not caplog.records, "nothing unnamed is told beside it"
