"""The words of a run while it is at work, and its end when numbers break: one sentence, nothing half-written."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from grid.engine.states.judge import judge
from tests.train.small_runs import run
from train.process import status
from train.process.status import Status, read
from train.steps.gradients import Gradients
from train.steps.trainer import Trainer


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the heartbeat ------------------------------------------------------------------------------------------------


def test_a_hung_step_shows_while_the_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.02)
    told = Status(tmp_path, 9, "cpu", 1)
    assert read(tmp_path)["phase"] == "starting" and read(tmp_path)["stepped"] is None
    with told.beating():
        told.progress.phase = "training"
        told.beat(3)
        wait_for(lambda: read(tmp_path)["step"] == 3)
        before = read(tmp_path)
        wait_for(lambda: read(tmp_path)["heartbeat"] > before["heartbeat"])  # nothing else happens here
        hung = read(tmp_path)
        assert {key: hung[key] for key in ("step", "stepped", "progress", "phase")} == {
            key: before[key] for key in ("step", "stepped", "progress", "phase")
        }
        with told.progress.during("evaluating"):
            wait_for(lambda: read(tmp_path)["phase"] == "evaluating")
            entered = read(tmp_path)
            assert entered["progress"] > hung["progress"] and entered["stepped"] == hung["stepped"]
            told.progress.moved()
            wait_for(lambda: read(tmp_path)["progress"] > entered["progress"])
        wait_for(lambda: read(tmp_path)["phase"] == "training")
    last = read(tmp_path)["heartbeat"]
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
    told.end(0)
    assert read(tmp_path)["heartbeat"] >= last


def test_a_run_says_what_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    moved = status.Progress.moved
    monkeypatch.setattr(status.Progress, "moved", lambda self: (seen.append(self.phase), moved(self))[-1])
    assert run(tmp_path, **{"measure.every": 4, "measure.num_samples": 2, "method.statistics": "fresh"}) == 0
    order = list(dict.fromkeys(seen))
    assert order == [
        *(
            "loading data and model",
            "starting",
            "sampling gradients (measure)",
            "training",
            "sampling gradients (update)",
        ),
        *("evaluating", "saving"),
    ]
    assert seen.count("evaluating") > 4, "between the batches too"
    ended = read(tmp_path)
    assert ended["phase"] == "starting" or ended["phase"] == "training"
    assert ended["start"] <= ended["stepped"] <= ended["progress"] <= ended["heartbeat"]


def test_the_phase_of_a_failure_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Trainer, *rest: Any) -> None:
        raise OSError(errno.EIO, "the data broke", "somewhere")

    monkeypatch.setattr(Trainer, "evaluate", broken)
    assert run(tmp_path) == 1
    assert read(tmp_path)["phase"] == "evaluating" and read(tmp_path)["step"] == 2


@pytest.mark.parametrize(("idle_s", "stale"), [(5.0, False), (601.0, True)])
def test_the_orchestrator_sees_a_step_that_hangs(idle_s: float, stale: bool, tmp_path: Path) -> None:
    """Its process lives, so it is running and not to be started again, but it is told of as silent."""
    told = Status(tmp_path, 9, "cpu", 1)
    told.progress.at -= idle_s
    told.end(0)
    found = judge(read(tmp_path) | {"state": "running"}, None, None, None, time.time())
    assert (found.word, found.stale, found.may_start) == ("running", stale, False)
    assert found.age_s is not None and found.age_s >= idle_s


# --- numbers ------------------------------------------------------------------------------------------------------


@contextmanager
def after(owner: type, name: str, action: Callable[..., Any]) -> Iterator[None]:
    """``action(self, result)`` gives the result of the method."""
    method = getattr(owner, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, lambda self, *rest, **more: action(self, method(self, *rest, **more)))
        yield


def _bad_gradient(gradients: Gradients, result: Any) -> Any:
    gradients.layout.views(result[0][1])[2].view(-1)[3] = float("nan")  # worker 1, the third parameter
    return result


def _bad_loss(gradients: Gradients, result: Any) -> Any:
    return result[0], {worker: float("inf") for worker in result[1]}


def _bad_samples(gradients: Gradients, result: Any) -> Any:
    for sample in result:
        sample[0][0].view(-1)[0] = float("inf")
        yield sample


def _bad_parameter(optimizer: Any, result: Any) -> Any:
    optimizer.param_groups[0]["params"][1].data.view(-1)[0] = float("nan")
    return result


def _bad_memory(trainer: Trainer, result: Any) -> Any:
    trainer.optimizer.state[next(iter(trainer.parameters.values()))]["exp_avg_sq"].fill_(float("inf"))
    return result


def _bad_buffer(trainer: Trainer, result: Any) -> Any:
    dict(trainer.model.named_buffers())["blocks.0.norm1.running_var"].fill_(float("inf"))
    return result


def _bad_evaluation(trainer: Trainer, result: Any) -> Any:
    return result | {"Vloss": float("nan")}


BATCH_NORM = {
    "data": "cifar10",
    "model": "resnet8",
    "stand_in": True,
    "batch_size": 2,
    "workers": 1,
    "eval_batch_size": 10,
}


@pytest.mark.parametrize(
    ("owner", "name", "action", "more", "words"),
    [
        (
            Gradients,
            "of_workers",
            _bad_gradient,
            {},
            r"step 0: the gradient of 'conv2.weight' on worker 1 is not finite",
        ),
        (Gradients, "of_workers", _bad_loss, {}, r"step 0: the loss on worker 0 is inf"),
        (
            *(Gradients, "samples", _bad_samples, {"method.statistics": "fresh"}),
            r"step 1: the gradient of 'conv1.weight'.*, sampled for the level update, is not finite",
        ),
        (
            Gradients,
            "samples",
            _bad_samples,
            {"measure.every": 2},
            r"step 0: while measuring the estimator, .*not finite",
        ),
        (
            torch.optim.SGD,
            "step",
            _bad_parameter,
            {},
            r"step 0: the parameter 'conv1.bias' is not finite after the update",
        ),
        (
            Trainer,
            "train_step",
            _bad_memory,
            {"optim": "adam"},
            r"step 2: the optimizer's exp_avg_sq of 'conv1.weight' is not finite",
        ),
        (
            Trainer,
            "train_step",
            _bad_buffer,
            BATCH_NORM,
            r"step 2: the buffer 'blocks.0.norm1.running_var' is not finite",
        ),
        (Trainer, "evaluate", _bad_evaluation, {}, r"step 2: the loss on the test set is nan"),
    ],
)
def test_what_is_not_finite_is_named(
    owner: type,
    name: str,
    action: Callable[..., Any],
    more: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with after(owner, name, action):
        assert run(tmp_path, **more) == 3
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert re.fullmatch(f"main.py: {words}.*", errors[0])
    ended = read(tmp_path)
    assert (ended["state"], ended["exit_code"], ended["failure"]["message"]) == (
        "diverged",
        3,
        errors[0].removeprefix("main.py: "),
    )
    assert not (tmp_path / "checkpoint.pt").exists(), "nothing that is not finite is saved"
