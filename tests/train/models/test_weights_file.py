"""model.weights_file: what a run keeps of it, when it is read, and what people are told of a file that is none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from settings import command_line, resolving
from tests.train.models.test_models import build
from train import evaluator, models
from train.data.dataset import InMemory
from train.launch import launch
from train.models import weights
from train.process.status import Status, read
from train.steps.trainer import Trainer

SMALL = {
    "data": "digits",
    "model": "cnn",
    "method": "supersgd",
    "batch_size": 8,
    "workers": 2,
    "steps": 4,
    "optim.lr": 0.001,
}
SMALL |= {"eval_every": 2, "eval_train": False, "checkpoint_every": 2, "log_every": 1}
GOOGLENET = {
    "data": "cifar10",
    "stand_in": True,
    "model": "torchvision",
    "model.arch": "googlenet",
    "method": "supersgd",
}
GOOGLENET |= {
    "batch_size": 2,
    "workers": 1,
    "steps": 1,
    "optim.lr": 0.0,
    "eval_every": 1,
    "eval_train": False,
    "eval_batch_size": 4,
}


# --- GoogLeNet's pictures -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_how_pictures_are_taken_is_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own evaluation, another process's, the run that goes on and one that begins from its checkpoint take
    them alike.
    """
    batches = InMemory.batches
    monkeypatch.setattr(InMemory, "batches", lambda self, split, size: [next(iter(batches(self, split, size)))])
    path, run_dir = tmp_path / "googlenet.pt", tmp_path / "run"
    own = build("torchvision", (3, 32, 32), 10, seed=5, **{"model.arch": "googlenet"}).state_dict()
    torch.save({**own, "aux1.fc2.bias": torch.zeros(10)}, path)
    config = resolving.resolve(GOOGLENET | {"model.weights_file": str(path), "run_dir": str(run_dir)})
    assert launch(config) == 0
    path.unlink()
    assert evaluator.run(command_line.evaluation({"run": str(run_dir), "once": True})) == 0
    (found,) = evaluator._read_results(run_dir / "evaluator" / "evaluations.json").values()
    assert found["Vloss"] == pytest.approx(read(run_dir)["metrics"]["Vloss"], rel=1e-6)
    state = torch.load(run_dir / "checkpoint.pt", weights_only=True)
    again = Trainer(config, device=torch.device("cpu"))
    assert again.model.transform_input is False
    again.load_state_dict(state)
    assert again.model.transform_input is True
    tuned = {"model.arch": "googlenet", "model.weights_file": str(run_dir / "checkpoint.pt")}
    assert build("torchvision", (3, 32, 32), 10, **tuned).transform_input is True
    torch.save({**state, "transform_input": False}, run_dir / "checkpoint.pt")
    assert build("torchvision", (3, 32, 32), 10, **tuned).transform_input is False


def test_other_models_checkpoints_say_nothing_of_it() -> None:
    assert list(models.state_of(build("cnn"))) == ["model"]


# --- when it is read ----------------------------------------------------------------------------------------------


def test_a_run_that_has_a_checkpoint_asks_for_the_file_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run_dir = tmp_path / "start.pt", tmp_path / "run"
    torch.save(build("cnn", (1, 8, 8), 10, seed=5).state_dict(), path)
    config = resolving.resolve(SMALL | {"model.weights_file": str(path), "run_dir": str(run_dir)})
    begun: list[Tensor] = []
    step = Trainer.train_step
    with monkeypatch.context() as patch:
        patch.setattr(
            Trainer,
            "train_step",
            lambda self, stop=False: (begun.append(self.model.state_dict()["conv1.weight"].clone()), step(self))[1],
        )
        patch.setattr(Status, "beat", lambda self, step: _stop(step == 2))
        assert launch(config) == 75
    assert torch.equal(begun[0], torch.load(path, weights_only=True)["conv1.weight"])
    path.rename(tmp_path / "moved.pt")
    assert launch(config) == 0
    capsys.readouterr()
    for old in run_dir.iterdir():
        old.unlink()
    assert launch(config) == 2, "a run that begins does ask"
    assert (
        capsys.readouterr().err
        == f"main.py: model.weights_file={path}: no such file; expected a state_dict of cnn, as torch.save writes it\n"
    )


def _stop(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGUSR2)


# --- what is none -------------------------------------------------------------------------------------------------


class Attack:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return print, ("it ran",)


def _meta(value: Tensor) -> Tensor:
    return torch.empty(value.shape, device="meta")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({0: torch.zeros(1)}, "found a mapping with 0"),
        ({0: torch.zeros(1), "a": torch.zeros(1)}, "found a mapping with 0, a"),
        (_meta, r"found a mapping with conv1\.weight \(meta\), "),
        (Tensor.to_sparse, r"found a mapping with conv1\.weight \(sparse_coo\), "),
        (lambda value: value.to(torch.complex64), r"found a mapping with conv1\.weight \(complex64\), "),
        (
            Attack(),
            "cannot be read as a state_dict of tensors: it holds something else than tensors and plain values, and "
            "nothing else is read$",
        ),
    ],
)
def test_what_is_no_state_dict_is_told_in_one_sentence(
    content: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / "weights.pt", build("cnn")
    torch.save(
        {key: content(value) for key, value in model.state_dict().items()} if callable(content) else content, path
    )
    with pytest.raises(weights.WeightsError, match=words) as told:
        weights.load_weights(model, "cnn", path)
    assert "\n" not in str(told.value) and capsys.readouterr().out == ""


def test_a_changed_file_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch may be led to a place before the file's beginning, which is an error of the system."""
    path = tmp_path / "weights.pt"
    path.write_bytes(b"PK")

    def led(*_: Any, **__: Any) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(torch, "load", led)
    with pytest.raises(weights.WeightsError, match=r"cannot be read as a state_dict of tensors: .*Invalid argument"):
        weights.load_weights(build("cnn"), "cnn", path)
