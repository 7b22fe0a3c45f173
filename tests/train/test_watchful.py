"""What a run says while it is at work, and how it ends when numbers or the file system break: one sentence, nothing
half-written.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboardX.summary import scalar

from analysis.logs import events
from analysis.logs.load import load
from grid.engine.states.judge import judge
from settings import resolving
from train import launch
from train.logs import event_file
from train.logs.event_file import EventFile
from train.process import checkpoint, status
from train.process.status import FolderGone, Status, read
from train.steps import train_loop
from train.steps.gradients import Gradients
from train.steps.trainer import Trainer

BASE: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "method": "alq",
    "method.bucket_size": 1024,
    "method.update_at": [1],
    "batch_size": 8,
}
BASE |= {"workers": 2, "steps": 4, "eval_every": 2, "checkpoint_every": 2, "log_every": 1, "eval_train": False}


def run(run_dir: Path, **more: Any) -> int:
    return launch.launch(resolving.resolve(BASE | {"run_dir": str(run_dir)} | more))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def left(run_dir: Path) -> list[str]:
    """The files of a run, event files by that word alone."""
    return sorted(path.name if not path.name.startswith("events") else "events" for path in run_dir.iterdir())


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


# --- numbers ------------------------------------------------------------------------------------------------------


@contextmanager
def after(owner: type, name: str, action: Callable[..., Any]) -> Iterator[None]:
    """``action(self, result)`` gives the result of the method."""
    method = getattr(owner, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, lambda self, *rest, **more: action(self, method(self, *rest, **more)))
        yield


def _bad_gradient(gradients: Gradients, result: Any) -> Any:
    result[0][1][2].view(-1)[3] = float("nan")  # worker 1, the third parameter
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


# --- the file system ----------------------------------------------------------------------------------------------


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A run that was stopped after step 2."""
    run_dir = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Status, "beat", lambda self, step: os.kill(os.getpid(), 12) if step == 2 else None)  # SIGUSR2
        assert run(run_dir) == 75
    return run_dir


def goes_on(run_dir: Path) -> None:
    """Where the trouble is over the run gets to its end, with every step once in its logs."""
    assert run(run_dir) == 0
    loss = load(run_dir.parents[1], run_dir.parent.name, cache=False).of_tags("loss")
    assert loss[loss.run == run_dir.name].step.tolist() == [1, 2, 3, 4]


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: errors of the kernel itself, for root too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_for_a_checkpoint(half_done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = (half_done / "checkpoint.pt").read_bytes()
    before = left(half_done)
    capsys.readouterr()
    with file_size(100_000):
        assert run(half_done) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "File too large; what was saved before is whole, and started again the run goes on from it" in error
    assert (half_done / "checkpoint.pt").read_bytes() == saved
    assert left(half_done) == sorted([*before, "events"]), "nothing half-written"
    assert read(half_done)["state"] == "failed" and read(half_done)["exit_code"] == 1
    goes_on(half_done)


def test_no_room_for_a_log(
    half_done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from step 3 on: half of the record gets there, and is taken back."""
    capsys.readouterr()
    write = os.write

    def full(file: int, data: Any) -> int:
        if len(data) > 200:
            return write(file, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(launch.Log, "settings", lambda *_: patch.setattr(event_file.os, "write", full))
        assert run(half_done) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "events.out.tfevents." in error and "No space left on device; what was saved before is whole" in error
    sizes = sorted(path.stat().st_size for path in half_done.glob("events*"))
    EventFile(half_done, ".a9").close()
    assert sizes[0] == next(half_done.glob("events*.a9")).stat().st_size, (
        "the second attempt's file has its first record alone"
    )
    next(half_done.glob("events*.a9")).unlink()
    assert read(half_done)["failure"]["signature"].startswith("OSError at event_file.py")
    goes_on(half_done)


def test_a_disk_that_is_full_for_everything(
    half_done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    real = checkpoint.save

    def full(run_dir: Path, state: dict[str, Any]) -> None:
        monkeypatch.setattr(status.os, "fsync", _raises(errno.ENOSPC))
        real(run_dir, state)

    with monkeypatch.context():
        monkeypatch.setattr(checkpoint, "save", full)
        assert run(half_done) == 1
        monkeypatch.undo()
    first, second = capsys.readouterr().err.splitlines()
    assert "No space left on device" in first
    assert (
        second == f"main.py: nor can the end of the run be noted: {half_done / 'status.json'}: No space left on device"
    )
    assert not list(half_done.glob(".*.tmp"))
    goes_on(half_done)


def _raises(number: int) -> Callable[..., Any]:
    def raising(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return raising


def test_permission_lost(half_done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(
            train_loop._Attempt, "_log_evaluation", lambda *_: patch.setattr(os, "replace", _raises(errno.EACCES)) or {}
        )
        assert run(half_done) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and all("Permission denied" in error for error in errors)
    assert not list(half_done.glob(".*.tmp"))
    goes_on(half_done)


@pytest.mark.parametrize("kind", ["removed", "moved", "replaced"])
def test_the_folder_is_gone(
    kind: str, half_done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.0)
    elsewhere = half_done.parent / "elsewhere"
    train_step = Trainer.train_step

    def gone(self: Trainer, stop: bool = False) -> Any:
        shutil.copytree(half_done, elsewhere) if kind == "removed" else half_done.rename(elsewhere)
        if kind == "removed":
            shutil.rmtree(half_done)
        if kind == "replaced":
            half_done.mkdir()
        return train_step(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Status, "beating", _still)
        patch.setattr(Trainer, "train_step", gone)
        assert run(half_done) == 1
    errors = capsys.readouterr().err.splitlines()
    gone_words = "removed, moved or replaced while the run was in it"
    assert f"main.py: {half_done}: the run folder was {gone_words}; what it held is where it is now" in errors
    assert not list(half_done.iterdir()) if kind == "replaced" else not half_done.exists()
    if kind == "moved":
        elsewhere.rename(half_done)
        goes_on(half_done)


@contextmanager
def _still(self: Status) -> Iterator[None]:
    """Without the thread: ``beat`` alone writes."""
    del self
    yield


@pytest.mark.parametrize(("patience_s", "code"), [(1000.0, 0), (-1.0, 1)])
def test_heartbeats_that_fail_for_a_while(
    patience_s: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(status, "PATIENCE_S", patience_s)
    write_text, fails = status.write_text, [3]

    def failing(path: Path, text: str) -> None:
        if path.name == "status.json" and '"stepped": null' not in text and fails[0]:
            fails[0] -= 1
            raise OSError(errno.EIO, "Input/output error", str(path))
        write_text(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(Status, "beating", _still)
        patch.setattr(status, "write_text", failing)
        assert run(tmp_path / "run") == code
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == f"main.py: no heartbeat: {tmp_path / 'run' / 'status.json'}: Input/output error"
    assert len(errors) == (1 if code == 0 else 3)


def test_a_full_disk_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(status.os, "fsync", _raises(errno.ENOSPC))
        assert run(tmp_path / "run") == 1
    assert capsys.readouterr().err == f"main.py: {tmp_path / 'run' / 'config.yaml'}: No space left on device\n"
    assert list((tmp_path / "run").iterdir()) == []


def test_records_are_whole_or_not_there(tmp_path: Path) -> None:
    file = EventFile(tmp_path, ".a1")
    file.write([scalar("loss", 1.0)], 1)
    whole = file.path.read_bytes()
    with file_size(len(whole) + 10), pytest.raises(OSError, match=f"File too large.*{file.path.name}"):
        file.write([scalar("loss", 2.0), scalar("lr", 0.1)], 2)
    assert file.path.read_bytes() == whole
    file.write([scalar("loss", 2.0)], 2, 1e9)
    file.flush()
    file.close()
    file.close()
    found = events.read([file.path])
    assert (found.step.tolist(), found.value.tolist(), found.damage) == ([1, 2], [1.0, 2.0], {})


def test_a_status_that_lost_its_folder_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    told = Status(folder, 9, "cpu", 1)
    folder.rename(tmp_path / "other")
    with pytest.raises(FolderGone, match="removed, moved or replaced"):
        told.end(1)
    assert json.loads((tmp_path / "other" / "status.json").read_text())["state"] == "running"


@pytest.mark.parametrize(("idle_s", "stale"), [(5.0, False), (601.0, True)])
def test_the_orchestrator_sees_a_step_that_hangs(idle_s: float, stale: bool, tmp_path: Path) -> None:
    """Its process lives, so it is running and not to be started again, but it is told of as silent."""
    told = Status(tmp_path, 9, "cpu", 1)
    told.progress.at -= idle_s
    told.end(0)
    found = judge(read(tmp_path) | {"state": "running"}, None, None, None, time.time())
    assert (found.word, found.stale, found.may_start) == ("running", stale, False)
    assert found.age_s is not None and found.age_s >= idle_s
