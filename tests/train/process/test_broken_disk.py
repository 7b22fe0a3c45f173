"""A run whose file system breaks: one sentence, nothing half-written, and what becomes of its records."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.summary import scalar

from analysis.logs import events
from analysis.logs.load import load
from tests.train.small_runs import run
from train import launch
from train.logs import event_file
from train.logs.event_file import EventFile
from train.process import checkpoint, status
from train.process.status import FolderGone, Status, read
from train.steps import train_loop
from train.steps.trainer import Trainer


def left(run_dir: Path) -> list[str]:
    """The files of a run, event files by that word alone."""
    return sorted(path.name if not path.name.startswith("events") else "events" for path in run_dir.iterdir())


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A run that was stopped after step 2."""
    run_dir = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Status, "beat", lambda self, step: os.kill(os.getpid(), 12) if step == 2 else None)  # SIGUSR2
        assert run(run_dir) == 75
    return run_dir


def goes_on(run_dir: Path) -> None:
    """Check that the run gets to its end once the trouble is over, with every step once in its logs."""
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
    """A status without the thread: ``beat`` alone writes."""
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
