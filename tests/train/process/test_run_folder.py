"""One process per run folder: its lock, and where locks do not travel the heartbeats of other machines."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings import resolving
from train.launch import launch
from train.process import run_folder
from train.process import status as statuses
from train.process.checkpoint import FILE
from train.process.run_folder import only_process_in
from train.process.signals import StopSignal

ROOT = Path(__file__).parents[3]
OTHER = {"state": "running", "host": "elsewhere", "pid": 7, "attempt": 1, "step": 3}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUQ_LAG_S", "0.4")
    monkeypatch.setattr(run_folder, "LOOK_S", 0.02)


def _settings(run_dir: Path, **more: Any) -> dict[str, Any]:
    small = {
        "data": "digits",
        "model": "cnn",
        "batch_size": 8,
        "steps": 2,
        "eval_every": 2,
        "eval_train": False,
        "method": "sgd",
    }
    return resolving.resolve(small | {"run_dir": str(run_dir)} | more)


def _left(run_dir: Path, **values: Any) -> dict[str, Any]:
    """A run of these settings that another process left, or seems to have left, in its folder."""
    assert launch(_settings(run_dir)) == 0
    (run_dir / FILE).unlink()
    record = {**OTHER, "heartbeat": time.time(), **values}
    (run_dir / "status.json").write_text(json.dumps(record))
    return record


@contextmanager
def _meanwhile(action: Callable[[], object], every_s: float) -> Iterator[None]:
    stop = threading.Event()

    def act() -> None:
        while not stop.wait(every_s):
            action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_one_process_per_folder_and_an_exit_code_for_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with only_process_in(tmp_path):
        assert launch(_settings(tmp_path)) == statuses.EXIT_HELD == 4
    assert "another process is training" in capsys.readouterr().err
    assert not (tmp_path / "status.json").exists(), "the word of those who have it stands"
    assert launch(_settings(tmp_path)) == 0


@pytest.mark.parametrize("skew_s", [0, -300, 4000])
def test_a_run_that_steps_on_another_machine_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], skew_s: float
) -> None:
    """It is left alone although this machine gets the lock, and whatever the other's clock says."""
    record = _left(tmp_path, heartbeat=time.time() + skew_s)

    def beat() -> None:
        record["heartbeat"] += 2
        statuses.write_text(tmp_path / "status.json", json.dumps(record))

    with _meanwhile(beat, 0.1):
        assert launch(_settings(tmp_path)) == 4
    said = capsys.readouterr()
    assert "process 7 on elsewhere may be training here; waiting up to 0 s" in said.out
    assert "process 7 on elsewhere is training in this folder" in said.err
    assert json.loads((tmp_path / "status.json").read_text()) == record


def test_a_run_of_another_machine_that_has_fallen_silent_is_taken_over(tmp_path: Path) -> None:
    _left(tmp_path)
    began = time.monotonic()
    assert launch(_settings(tmp_path)) == 0
    assert time.monotonic() - began >= 0.4
    assert statuses.read(tmp_path)["attempt"] == 2


@pytest.mark.parametrize(
    "values",
    [{"heartbeat": time.time() - 700}, {"state": "preempted"}, {"host": socket.gethostname()}, {"heartbeat": None}],
    ids=["silent for long", "it has stopped", "of this machine, whose lock is free", "never beat"],
)
def test_what_cannot_be_alive_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setenv("NUQ_LAG_S", "3600")
    _left(tmp_path, **values)
    assert launch(_settings(tmp_path)) == 0


def test_where_there_are_no_locks_a_process_of_this_machine_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*words: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.warns(UserWarning, match="cannot be locked"):
        record = _left(tmp_path, host=socket.gethostname(), pid=os.getpid())

    def beat() -> None:
        record["heartbeat"] += 2
        statuses.write_text(tmp_path / "status.json", json.dumps(record))

    with _meanwhile(beat, 0.1), pytest.warns(UserWarning, match="cannot be locked"):
        assert launch(_settings(tmp_path)) == 4


def test_a_run_that_is_finished_between_two_looks_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _left(tmp_path, state="done")
    looks = iter([{"state": "running"}])
    read = statuses.read
    monkeypatch.setattr(statuses, "read", lambda run_dir: next(looks, None) or read(run_dir))
    assert launch(_settings(tmp_path)) == 4
    assert read(tmp_path)["state"] == "done"


def test_a_signal_ends_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUQ_LAG_S", "3600")
    record = _left(tmp_path)
    stop = StopSignal()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert launch(_settings(tmp_path), stop) == 75
    finally:
        for number, handler in stop._before.items():
            signal.signal(number, handler)
    assert json.loads((tmp_path / "status.json").read_text()) == record


@pytest.mark.parametrize(
    ("more", "told", "untold"),
    [
        ({"steps": 3, "seed": 2}, ["steps=2, not 3", "seed=1, not 2"], ["method", "more"]),
        ({"method": "alq", "method.bits": 5, "device": "cpu"}, ["method=sgd, not alq"], ["bits", "device", "more"]),
        ({"schedule": "step", "schedule.at": [1], "optim.lr": 0.5}, ["schedule=constant, not step"], ["[1]"]),
    ],
)
def test_which_settings_are_others_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], told: list[str], untold: list[str]
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(_settings(tmp_path)))
    assert launch(_settings(tmp_path, **more)) == 2
    said = capsys.readouterr().err
    assert all(words in said for words in told) and not any(words in said for words in untold)


def test_what_is_no_place_for_a_run_is_refused_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    (notes := tmp_path / "notes").mkdir()
    (notes / "thesis.tex").write_text("mine")
    (repository := tmp_path / "repository" / ".git").mkdir(parents=True)
    places = ((home, "home"), (Path("/"), "root"), (ROOT, "checkout"), (notes, "thesis.tex"))
    other_home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # whatever HOME says
    for folder, word in (*places, (repository.parent, ".git"), (other_home, "home")):
        before = sorted(os.listdir(folder))
        assert launch(_settings(folder)) == 2
        said = capsys.readouterr().err
        assert repr(str(folder)) in said and word in said
        assert sorted(os.listdir(folder)) == before
    (begun := tmp_path / "begun").mkdir()
    for name in ("stdout.log", "job_1.out", "run.sh"):
        (begun / name).write_text("")
    assert launch(_settings(begun)) == 0, "what scripts leave is no other's"

    def nameless(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nameless)  # as in a container
    assert launch(_settings(tmp_path / "of a nameless user")) == 0


def test_a_run_that_was_taken_over_leaves_everything_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had stood still, as a suspended job does, and comes back: where no lock tells, the status does."""
    monkeypatch.setattr(statuses, "HEARTBEAT_S", 0.01)
    taken = json.dumps({**OTHER, "heartbeat": time.time(), "attempt": 2})

    def take() -> None:
        if statuses.read(tmp_path).get("step", 0) > 0:
            (tmp_path / "theirs").write_text(taken)
            os.replace(tmp_path / "theirs", tmp_path / "status.json")

    with _meanwhile(take, 0.05):
        assert launch(_settings(tmp_path, steps=100_000, eval_every=0, checkpoint_every=100_000)) == 4
    assert (tmp_path / "status.json").read_text() == taken
    assert not (tmp_path / FILE).exists()


def test_the_first_rank_leaves_its_exit_code_where_it_is_asked_for(tmp_path: Path) -> None:
    for rank, told in (("0", "2"), ("1", "")):
        path = tmp_path / f"code{rank}"
        environ = {**os.environ, "NUQ_EXIT_CODE": str(path), "RANK": rank}
        done = subprocess.run(
            [sys.executable, "main.py", "steps=-1"], cwd=ROOT, env=environ, capture_output=True, check=False
        )
        assert done.returncode == 2
        assert (path.read_text() if path.exists() else "") == told
