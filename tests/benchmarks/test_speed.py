"""``benchmarks.speed`` in small: both sides of a ratio do the same work, and the JSON says what the table says."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import grid_run
from analysis.logs.load import load
from benchmarks import speed
from benchmarks.speed_cases import analysis, grid, memory, training


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch):
    before = torch.get_num_threads()
    monkeypatch.setattr("train.process.memory.KEPT_BYTES", 1 << 17)  # glibc's own: other tests keep theirs as it is
    yield
    torch.set_num_threads(before)


SHORT = ["--model", "lenet", "--batch", "2", "--workers", "2", "--seconds", "0"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick to load, and there on every machine."""
    given = training.trainer_of
    monkeypatch.setattr(training, "trainer_of", lambda *args, **more: given(*args, **{**more, "stand_in": True}))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert speed.main(words) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_every_case_is_there_and_takes_its_options() -> None:
    for case in speed.CASES.values():
        function = getattr(importlib.import_module(f"benchmarks.speed_cases.{case.module}"), case.function)
        assert set(inspect.signature(function).parameters) == {flag.removeprefix("--") for flag in case.options}


@pytest.mark.parametrize(
    "words, name",
    [
        ("train --model lenets", "lenets"),
        ("memory --formats smaq", "fp32"),
        ("memory --rounds 1", "--rounds"),
        ("memory --batch 0", "--batch 0"),
    ],
)
def test_options_that_make_no_case_are_one_sentence(words: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert speed.main(words.split()) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and name in err


@pytest.mark.slow
def test_a_training_beside_a_bare_loop(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "train", *SHORT)
    row = found["models"]["lenet"]
    assert row["stand_in"] is True and row["sgd"]["pairs"] == 3
    assert row["sgd"]["disagreement"] < 1e-5 < row["alq_3bit"]["disagreement"]
    for name in training.METHODS:
        assert found[f"overhead_{name}"] == row[name]["overhead"]
        assert row[name]["low"] <= row[name]["overhead"] <= row[name]["high"]
    assert found["share_measurement"] == 0 < found["share_updates"] < row["share_paper"]
    assert set(found["claims"]) == set(training.LIMITS)
    assert found["claims"]["overhead_sgd"] is (found["overhead_sgd"] <= 0.03)


def test_work_that_is_not_the_same_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = training.trainer_of("lenet", 2, 2, 1, training.METHODS["sgd"])
    twice = lambda output, labels: 2 * torch.nn.functional.cross_entropy(output, labels)  # noqa: E731
    monkeypatch.setattr(training, "cross_entropy", twice)
    with pytest.raises(AssertionError, match="not the same work"):
        training.overhead(ours, 0, exact=True)


def test_prepared_batches_are_the_trainers_own_in_turn() -> None:
    ours = training.trainer_of("lenet", 2, 2, 1, training.METHODS["sgd"])
    expected = [ours.gradients.batch(worker, step, ours.order, "train") for step in range(4) for worker in range(2)]
    prepared = training.Prepared(ours)
    for x, y in [*expected, expected[0]]:
        found = prepared.train_batch(torch.empty(0), torch.Generator())
        assert torch.equal(found[0], x) and torch.equal(found[1], y)


@pytest.mark.slow
def test_an_option_that_a_processor_lacks_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("compute.precision=bf16", "compute.cuda_graphs=true", "compute.accumulate=4")
    monkeypatch.setattr(training, "OPTIONS", {name: training.OPTIONS[name] for name in kept})
    rows = told(capsys, "train_options", *SHORT)["options"]["lenet"]
    assert list(rows) == [*kept, "threads=2", "threads=4"]
    assert rows["compute.precision=bf16"]["speedup"] > 0
    if not torch.cuda.is_available():
        graphs = rows["compute.cuda_graphs=true"]
        assert graphs["speedup"] is None and "CPU" in graphs["why"]


@pytest.mark.slow
def test_packed_activations_take_less_and_both_train(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "resnet8", "--batch", "128", "--rounds", "2", "--threads", "1", "--formats", "fp32", "fp8"]
    found = told(capsys, "memory", *words)
    plain, packed = (found["formats"][name] for name in ("fp32", "fp8"))
    assert plain["peak_ratio"] == plain["slowdown"] == plain["held"] == 1
    assert packed["peak_ratio"] < 0.8 and packed["held"] == pytest.approx(4, rel=0.01)
    assert packed["loss"] == pytest.approx(plain["loss"], rel=0.1)
    assert found["claims"] == {} and memory.CLAIMED not in found["formats"]  # smaq's alone


@pytest.mark.slow
def test_our_reader_agrees_with_tensorboard(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    words = ["--runs", "21", "--steps", "20", "--turns", "2", "--sample", "2", "--folder", str(tmp_path)]
    found = told(capsys, "analysis", *words)
    assert set(found) == {"load_21_cold_s", "load_21_warm_s", "speedup_vs_tensorboard", "peak_gb", "figures"}
    assert found["figures"]["rows"] == 21 * 20 * len(analysis.TAGS)
    assert found["figures"]["values_that_differ"] == 0 < found["peak_gb"]
    assert not list(tmp_path.iterdir())


def test_runs_of_the_made_sweep_differ_and_some_were_requeued(tmp_path: Path) -> None:
    analysis.make(tmp_path / analysis.SWEEP, 20, 30, np.random.default_rng(0))
    logs = load(tmp_path, analysis.SWEEP, cache=False)
    assert logs.notes == ()
    assert logs.of_tag("Vacc").nunique(axis=1).tolist() == [20] * 30
    assert set(logs.scalars.loc[logs.scalars["attempt"] > 0, "run"]) == {logs.settings.index[-1]}


FAMILY = """
from grid.engine.sweep import Sweep, axis, point, product

def two_thousand() -> Sweep:
    '''Ten of them.'''
    return Sweep(product(point("QSGD", method="qsgd"), axis("method.bits", [3])), range(1, 11), "two_thousand")
"""


@pytest.mark.slow
def test_the_plan_is_built_and_the_queue_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a whole checkout, with a queue that can be read."""
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the stand-ins change
    folder, root = grid.checkout(tmp_path)
    (family := tmp_path / "family.py").write_text(FAMILY)
    name = [str(family), "two_thousand"]
    assert grid_run.main(["plan", *name], root) == 0
    assert "nothing was built beforehand" not in capsys.readouterr().out
    assert grid_run.main(["submit", *name], root) == 0
    grid.history(root, family, folder)
    (root / "jobs" / "scheduler.json").unlink(missing_ok=True)
    capsys.readouterr()
    assert grid_run.main(["status", *name], root) == 0
    assert "6 done, 1 failed, 1 running, 2 pending (the scheduler's word is " in capsys.readouterr().out
    shutil.rmtree(root)
