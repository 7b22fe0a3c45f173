"""``benchmarks.train`` on a few small steps: the two sides do the same work, and the JSON says what the table says."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import train, train_turns
from nuq.compressors.full_precision import FullPrecision


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


SHORT = ["--model", "lenet", "--batch", "2", "--workers", "2", "--seconds", "0"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Quick to load, and there on every machine."""
    given = train_turns.trainer_of
    monkeypatch.setattr(train, "trainer_of", lambda *args, **more: given(*args, **more, stand_in=True))
    monkeypatch.setattr(
        "train.process.memory.KEPT_BYTES", 1 << 17
    )  # glibc's own: other tests keep their memory as it is


@pytest.mark.slow
def test_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    train.main(SHORT)
    lines = capsys.readouterr().out.splitlines()
    told = json.loads(lines[-1])
    row = told["models"]["lenet"]
    assert (
        row["stand_in"] is True
        and row["sgd"]["pairs"] == 3
        and row["sgd"]["disagreement"] < 1e-5 < row["alq_3bit"]["disagreement"]
    )
    for name in train_turns.METHODS:
        assert (
            told[f"overhead_{name}"] == row[name]["overhead"]
            and row[name]["low"] <= row[name]["overhead"] <= row[name]["high"]
        )
        assert f"{100 * row[name]['overhead']:.2f} %" in lines[-2]
    assert told["share_measurement"] == 0 < told["share_updates"] < row["share_paper"]
    assert set(told["claims"]) == set(train.LIMITS)
    assert told["claims"]["overhead_sgd"] is (told["overhead_sgd"] <= 0.03)


def test_work_that_is_not_the_same_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = train_turns.trainer_of("lenet", 2, 2, 1, train_turns.METHODS["sgd"])
    monkeypatch.setattr(
        train, "cross_entropy", lambda output, labels: 2 * torch.nn.functional.cross_entropy(output, labels)
    )
    with pytest.raises(AssertionError, match="not the same work"):
        train.overhead(ours, 0, exact=True)


def test_prepared_batches_are_the_trainers_own_in_turn() -> None:
    ours = train_turns.trainer_of("lenet", 2, 2, 1, train_turns.METHODS["sgd"])
    expected = [ours.gradients.batch(worker, step, ours.order, "train") for step in range(5) for worker in range(2)]
    prepared = train_turns.Prepared(ours)
    for number, (x, y) in enumerate(expected):
        if number < 2 * train_turns.PREPARED_STEPS:
            found = prepared.train_batch(torch.empty(0), torch.Generator())
            assert torch.equal(found[0], x) and torch.equal(found[1], y)
    assert torch.equal(prepared.train_batch(torch.empty(0), torch.Generator())[0], expected[0][0])


def test_a_model_that_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        train.main(["--model", "lenets"])
    assert "lenets" in capsys.readouterr().err


@pytest.mark.slow
def test_options(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import train_options

    monkeypatch.setattr(train_options, "trainer_of", train_turns.trainer_of)
    kept = ("compute.precision=bf16", "compute.cuda_graphs=true", "compute.accumulate=4")
    monkeypatch.setattr(train_options, "OPTIONS", {name: train_options.OPTIONS[name] for name in kept})
    train.main([*SHORT, "--options"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["options"]["lenet"]
    assert list(told) == [*kept, "threads=2", "threads=4"]
    assert told["compute.precision=bf16"]["speedup"] > 0
    if not torch.cuda.is_available():
        assert told["compute.cuda_graphs=true"]["speedup"] is None and "CPU" in told["compute.cuda_graphs=true"]["why"]


def test_full_precision_adds_from_aligned_and_other_memory() -> None:
    compressor, vector = FullPrecision(), torch.randn(9, generator=torch.Generator().manual_seed(0))
    from nuq.compressors.message import parse
    from nuq.kernels.spec import Key

    whole = compressor.encode(vector, Key(1, 0, 0)).to_bytes()
    moved = torch.cat([torch.zeros(1, dtype=torch.uint8), whole])[1:]
    for payload in (whole, moved):
        message = parse(payload)
        total = torch.ones(9)
        compressor.add(message, total)
        assert torch.equal(total, vector + 1) and torch.equal(compressor.decode(message), vector)
