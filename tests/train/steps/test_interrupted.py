"""A stop is heard at every batch, sample and step; what it cuts short is done again, and logged once."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from settings import resolving, run_identity
from tests.faults.compare import flat, logged
from train import launch
from train.logs.event_file import EventFile
from train.logs.run_log import Log
from train.process import checkpoint, rendezvous
from train.process.status import Status, read
from train.steps.train_loop import Preempted, run
from train.steps.trainer import Trainer

SETTINGS = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "workers": 2,
    "steps": 5,
    "eval_every": 2,
    "eval_batch_size": 720,
    "log_every": 1,
    "checkpoint_every": 2,
    "measure.every": 2,
    "measure.num_samples": 2,
    "untrain.steps": 2,
    "method": "alq",
    "method.update_at": [1, 4],
    "method.num_samples": 2,
    "method.statistics": "fresh",
    "method.bucket_size": 1024,
}


def attempt(config: dict[str, Any], run_dir: Path, stop_at: int | None) -> int:
    """Asked to stop at the question of this number (None: never); how many questions there were."""
    run_dir.mkdir(exist_ok=True)
    trainer = Trainer(config, device=torch.device("cpu"))
    questions = itertools.count()
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked = next(questions)
        return stop_at is not None and asked >= stop_at

    status = Status(run_dir, config["steps"], "cpu", 1)
    log = Log(run_dir, status.attempt)
    try:
        run(trainer, run_dir, status, log, stop)
    finally:
        log.close()
    return asked


@pytest.mark.slow
def test_stopped_at_any_question_and_started_again_it_ends_alike(tmp_path: Path) -> None:
    config = resolving.resolve(SETTINGS)
    questions = attempt(config, tmp_path / "undisturbed", None)
    assert questions > 30  # untraining, steps, batches of five evaluations, samples of measurements and updates
    states = {}
    for number in [0, 2, *range(5, questions, 9), questions]:
        folder = tmp_path / str(number)
        with pytest.raises(Preempted, match=f"of {config['steps']}; started again, it goes on from there"):
            attempt(config, folder, number)
        found = checkpoint.find(folder, run_identity.identity(config), torch.device("cpu"))
        states[number] = (found.state["step"], found.state["evaluated"]) if found else None
        attempt(config, folder, None)
        assert logged(folder) == logged(tmp_path / "undisturbed"), number
        both = [
            checkpoint.find(one, run_identity.identity(config), torch.device("cpu"))
            for one in (folder, tmp_path / "undisturbed")
        ]
        assert both[0] is not None and both[1] is not None
        assert flat(both[0].state) == flat(both[1].state), number
    assert states[0] is None  # nothing but untraining was done
    assert states[questions] == (5, False)  # the last evaluation was cut short
    assert len(set(states.values())) > 4


def test_the_status_says_what_is_saved(tmp_path: Path) -> None:
    config = resolving.resolve(
        {**SETTINGS, "checkpoint_every": 3, "eval_every": 100, "measure.every": 0, "untrain.steps": 0}
    )
    trainer = Trainer(config, device=torch.device("cpu"))
    status, log = Status(tmp_path, 5, "cpu", 1), Log(tmp_path, 1)

    class Lost(BaseException):
        """The machine."""

    def stop() -> bool:
        if trainer.step == 4:
            raise Lost
        return False

    with pytest.raises(Lost):
        run(trainer, tmp_path, status, log, stop)
    status.end(1)
    log.close()
    assert (read(tmp_path)["step"], read(tmp_path)["saved_step"]) == (4, 3)
    status = Status(tmp_path, 5, "cpu", 1)
    with pytest.raises(Preempted, match="stopped after step 3 of 5"):
        run(Trainer(config, device=torch.device("cpu")), tmp_path, status, Log(None, 2), lambda: True)
    status.end(75)
    assert (read(tmp_path)["step"], read(tmp_path)["saved_step"]) == (3, 3)


@pytest.mark.parametrize(("ranks", "code"), [("1", 75), ("2", None)])
def test_a_signal_while_data_is_loaded(
    ranks: str, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process leaves at once; among several it is remembered, since it may mean that another one failed."""

    def loading(config: dict[str, Any], *, device: torch.device, group: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)  # as loading data may take minutes
        raise ValueError("loaded to the end")

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)]
    monkeypatch.setattr(launch, "Trainer", loading)
    monkeypatch.setattr(rendezvous, "process_group", lambda *_: contextlib.nullcontext())
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", ranks)
    try:
        assert launch.launch(resolving.resolve({**SETTINGS, "run_dir": str(tmp_path)})) == (code or 2)
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)
    assert read(tmp_path)["state"] == ("preempted" if code else "failed")
    assert ("stopped while it was starting" in read(tmp_path)["failure"]["message"]) == (code == 75)


def test_rows_are_on_the_disk_before_a_checkpoint_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may lose its power right after a checkpoint: what it has logged so far is then not logged again."""
    done: list[str] = []
    for name in ("write", "flush"):
        real = getattr(EventFile, name)
        monkeypatch.setattr(EventFile, name, lambda *given, real=real, name=name: (done.append(name), real(*given))[1])
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *given: (done.append("save"), save(*given))[1])
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file, real=os.fsync: (synced.append(file), real(file))[1])
    attempt(resolving.resolve(SETTINGS), tmp_path, None)
    before = [done[:at] for at, what in enumerate(done) if what == "save"]
    assert len(before) > 2 and all("write" in each for each in before)
    assert all(each[-1] == "flush" for each in before)
    assert len(synced) > len(before)  # a flush is one of the disk itself
