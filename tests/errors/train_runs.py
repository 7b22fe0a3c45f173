"""Errors of a run: its command line, folder and records, and what ends its training."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import main
from nuq.exchange.exchanged import BadGradientError
from settings import resolving
from tests.errors.rows import Row, cli, row
from train import launch
from train.logs.csv_file import CsvFile
from train.logs.event_file import EventFile
from train.process import config_file, rendezvous, run_folder, signals
from train.process import status as statuses
from train.process.run_folder import only_process_in
from train.steps import gradients, loss_scale, optim, update
from train.steps.order import Order

CPU = torch.device("cpu")
FULL = OSError(errno.ENOSPC, "No space left on device")
RUN = "runs/main/one"

# --- the command line ---------------------------------------------------------------------------------------------


def line(*words: str, **environment: str) -> Row:
    """A command line of main.py that is refused before it runs anything."""

    def make() -> None:
        with (
            mock.patch.object(sys, "argv", ["main.py", *words]),
            mock.patch.object(main, "open_streams"),
            mock.patch.object(main, "StopSignal"),
            mock.patch.object(main, "_end", sys.exit),
            mock.patch("train.process.config_file.read_config", lambda folder, name: resolving.resolve({})),
            mock.patch("train.process.rendezvous.refuse"),
            mock.patch.dict(os.environ, environment),
        ):
            main.main()

    given = " ".join([*(f"{name}={value}" for name, value in environment.items()), *words])
    return cli("main.py", given, make)


def environment(given: str, **variables: str) -> Row:
    def make() -> None:
        with mock.patch.dict(os.environ, variables):
            for name in {"RANK", "MASTER_ADDR", "MASTER_PORT"} - variables.keys():
                os.environ.pop(name, None)
            rendezvous.num_ranks()

    return row("torchrun's variables", given, make)


# --- folders and records ------------------------------------------------------------------------------------------


def _no_cuda() -> None:
    with mock.patch.object(torch.cuda, "is_available", lambda: False):
        launch.choose_device("cuda", 0)


def folder_of(given: str, files: Mapping[str, str | bytes], **settings: Any) -> Row:
    """A run_dir that holds these files, asked for with these settings."""

    def make(folder: Path) -> None:
        place = folder / "run"
        place.mkdir()
        for name, text in files.items():
            (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        launch._check_folder(Path("run"), resolving.resolve(settings))

    return row("main.py run_dir=", given, make)


def _another_fork(folder: Path) -> None:
    """A fork of one of two runs whose folders have one name, and whose settings differ."""
    for place, rate in (("a", 0.1), ("b", 0.2)):
        (folder / place / RUN).mkdir(parents=True)
        (folder / place / RUN / "config.yaml").write_text(_json(**{"optim.lr": rate}))
    (folder / "run").mkdir()
    (folder / "run/config.yaml").write_text(_json(**{"fork.run": f"a/{RUN}", "fork.at": 5}))
    launch._check_folder(Path("run"), resolving.resolve({"fork.run": f"b/{RUN}", "fork.at": 5}))


def _json(**settings: Any) -> str:
    return json.dumps(resolving.resolve(settings))


def config(given: str, text: str | bytes | None) -> Row:
    """The configuration of a run that is read again."""

    def make(folder: Path) -> None:
        (folder / RUN).mkdir(parents=True)
        if text is not None:
            (folder / RUN / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        config_file.read_config(Path(RUN))

    return row("main.py run=", given, make)


def status(given: str, text: str | bytes) -> Row:
    def make(folder: Path) -> None:
        (folder / "status.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        statuses.read(Path())

    return row("status.json", given, make)


def _held(folder: Path) -> None:
    del folder  # it runs there
    with only_process_in(Path()), only_process_in(Path()):
        pass


def silence(given: str, *read: Mapping[str, Any], stopped: bool = False) -> Row:
    """A folder whose status says so at each look, from a process on another machine."""

    def make(folder: Path) -> None:
        del folder
        looks = iter(read)
        with (
            mock.patch.object(statuses, "read", lambda run_dir: next(looks)),
            mock.patch.object(run_folder, "LOOK_S", 0.0),
            mock.patch.object(sys, "stdout", io.StringIO()),
        ):
            run_folder.await_silence(Path("run"), False, lambda: stopped)

    return row("main.py run_dir=", given, make)


def _alive(heartbeat: float) -> dict[str, Any]:
    import time

    return {"state": "running", "host": "elsewhere", "pid": 7, "heartbeat": time.time() + heartbeat}


def on_a_full_disk(module: Any, name: str, ask: Callable[[], object]) -> Callable[[Path], None]:
    """Do something where a call of the system finds the disk full."""

    def make(folder: Path) -> None:
        del folder
        with mock.patch.object(module, name, mock.Mock(side_effect=FULL)):
            ask()

    return make


def _own_status() -> statuses.Status:
    return statuses.Status(Path("run"), 9, "cpu", 1)


def _write_status() -> None:
    statuses.write_text(Path("status.json"), "{}")


def _folder_gone(folder: Path) -> None:
    (folder / "run").mkdir()
    told = _own_status()
    (folder / "run").rename(folder / "elsewhere")
    told.end(1)


def _taken_over(folder: Path) -> None:
    (folder / "run").mkdir()
    told = _own_status()
    (folder / "run/status.json").write_text('{"host": "elsewhere", "pid": 7}')
    told.check_own()


def _failing(folder: Path) -> None:
    (folder / "run").mkdir()
    told = _own_status()
    told._failing = -math.inf, FULL
    told.beat(1)


def _events(module: Any, name: str, what: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        file = EventFile(folder, "")
        try:
            with mock.patch.object(module, name, mock.Mock(side_effect=FULL)):
                getattr(file, what)(*([b"event"] if what == "_append" else []))
        except OSError as error:
            error.filename = "<folder>/events"  # it is named by the time and the machine
            raise
        finally:
            os.close(file._file)

    return make


def _csv(folder: Path) -> None:
    del folder
    file = CsvFile(Path(), 1)
    try:
        with mock.patch.object(os, "fsync", mock.Mock(side_effect=FULL)):
            file.flush()
    finally:
        file.close()


# --- steps --------------------------------------------------------------------------------------------------------


def _compile(cuda_graphs: bool) -> None:
    with mock.patch.object(shutil, "which", lambda name: None), mock.patch.dict(os.environ):
        os.environ.pop("CXX", None)
        gradients._check_device({"cuda_graphs": cuda_graphs, "compile": not cuda_graphs}, CPU)


def _no_matrix() -> None:
    model = nn.Linear(2, 2, bias=False)
    asked = resolving.resolve({"optim": "muon", "model": "logreg"})
    with mock.patch.object(optim.muon, "hidden_matrices", lambda model, without: []):
        optim.build(asked, dict(model.named_parameters()), model)


def _other_groups() -> None:
    model = nn.Linear(2, 2)
    own, parent = (
        resolving.resolve({"optim.decay_norms": decay, "fork.run": RUN, "fork.at": 5}) for decay in (True, False)
    )
    optim.check_groups(own, parent, dict(model.named_parameters()), model)


def _not_scaled() -> None:
    loss_scale.skipped(None, BadGradientError("the gradient of 'w' is not finite", [math.nan], False))


def _signalled() -> signals.StopSignal:
    """What hears a signal, and has heard one."""
    with mock.patch.object(signal, "signal"):
        stop = signals.StopSignal()
    stop._heard, stop._parent, stop._orphan = signal.SIGTERM, None, False
    return stop


def _before_it_began() -> None:
    with mock.patch.dict(os.environ, WORLD_SIZE="1"), _signalled().at_once():
        pass


def _while_it_starts() -> None:
    stop = _signalled()
    stop._at_once = True
    stop._handle(signal.SIGTERM, None)


ROWS = [
    line("--method", "alq"),
    line("-sc", "install=bash"),
    line("-m", "mode=evaluate", "run=runs/main/one"),
    line("--resolve"),
    line("-m", "seed=1,2", WORLD_SIZE="2"),
    line("-m", "fork=runs/main/one", "at=5", "seed=1,2", "--config-name", "mine"),
    environment("WORLD_SIZE=two", WORLD_SIZE="two"),
    environment("WORLD_SIZE=2 alone", WORLD_SIZE="2"),
    environment("WORLD_SIZE=2 RANK=2", WORLD_SIZE="2", RANK="2"),
    row("main.py device=", "'cuda', without CUDA", _no_cuda),
    # folders and records
    folder_of("a run without its configuration", {"status.json": "{}"}),
    folder_of("a configuration that is no UTF-8", {"config.yaml": b"\xff"}),
    folder_of("a configuration of another form", {"config.yaml": "- 3"}),
    folder_of("a run of other settings", {"config.yaml": _json(workers=8)}),
    row("main.py run_dir=", "a fork of another run", _another_fork),
    folder_of("other files", {"thesis.tex": ""}),
    row("main.py run_dir=", "/", lambda: launch._check_place(Path("/"), {})),
    row("main.py run_dir=", "where another process trains", _held),
    silence("of a run that is done meanwhile", {"state": "done"}),
    silence("of a run that is alive elsewhere", _alive(0), _alive(9)),
    silence("of a run that is alive elsewhere, with a signal", _alive(0), stopped=True),
    row("main.py run=", "not there", lambda: config_file.read_config(Path("runs/main/none"))),
    config("without a configuration", None),
    config("a configuration that is no YAML", "a: ["),
    config("a configuration of another form", "- 3"),
    config("a configuration that is no UTF-8", b"\xff"),
    status("cut short", '{"state": '),
    status("no UTF-8", b"\xff"),
    status("a list", "[]"),
    status("a step of 'many'", '{"step": "many"}'),
    row(
        "status.json",
        "on a full disk",
        on_a_full_disk(os, "replace", lambda: statuses.write_text(Path("status.json"), "{}")),
    ),
    row("status.json", "in a folder that was moved", _folder_gone),
    row("status.json", "of another process", _taken_over),
    row("status.json", "which could not be written for a minute", _failing),
    row("the log of a run", "scalars.csv on a full disk", _csv),
    row("the log of a run", "events that cannot be flushed", _events(os, "fsync", "flush")),
    row("the log of a run", "events on a full disk", _events(os, "write", "_append")),
    # steps
    row("main.py compute.cuda_graphs=", "True, on the CPU", lambda: _compile(True)),
    row("main.py compute.compile=", "True, without a compiler", lambda: _compile(False)),
    row("main.py optim=", "'muon', of a model without matrices", _no_matrix),
    row("main.py fork=", "other groups of parameters", _other_groups),
    row("main.py batch_size=", "more than the training set", lambda: Order(10, 8, 2, 1)),
    row("main.py", "a parameter of nan", lambda: update.check_finite(3, "the mean gradient", torch.tensor([math.nan]))),
    row("main.py", "a gradient of nan, without a loss scale", _not_scaled),
    row("main.py", "a signal before it starts", _before_it_began),
    row("main.py", "a signal while it starts", _while_it_starts),
]

_RENDEZVOUS = "tests/train/process/test_rendezvous.py"
_NOT_FINITE = "tests/train/steps/test_watchful.py::test_what_is_not_finite_is_named"
INTERNAL = {
    "train/data/sentences.py:SentenceSource.texts": "abstract",
    "train/data/source.py:Source.read": "abstract",
    "train/data/source.py:Fetched.find": "abstract",
    "train/steps/trainer.py:Trainer.attend": "ends a step of all ranks; told as Preempted",
}
HELD = {
    "train/process/rendezvous.py:process_group 1": f"{_RENDEZVOUS}::test_the_end_of_torchrun",
    "train/process/rendezvous.py:process_group 2": f"{_RENDEZVOUS}::test_what_is_wrong_here_is_not_said_of_others",
    "train/process/rendezvous.py:process_group 3": (
        "tests/train/process/test_lost_rank.py::test_a_file_that_one_rank_lacks_or_has_otherwise"
    ),
    "train/process/rendezvous.py:_join 1": f"{_RENDEZVOUS}::test_nowhere_to_meet",
    "train/process/rendezvous.py:_join 2": f"{_RENDEZVOUS}::test_words_of_an_earlier_attempt",
    "train/process/rendezvous.py:_join 3": f"{_RENDEZVOUS}::test_what_is_wrong_here_is_not_said_of_others",
    "train/process/rendezvous.py:_join 4": f"{_RENDEZVOUS}::test_a_backend_that_waits_for_nobody",
    "train/process/rendezvous.py:_reach": f"{_RENDEZVOUS}::test_nowhere_to_meet",
    "train/steps/estimator.py:measure": _NOT_FINITE,
    "train/steps/train_loop.py:_Attempt.go": (
        "tests/train/steps/test_interrupted.py::test_the_status_says_what_is_saved"
    ),
    "train/steps/train_loop.py:_Attempt._log_evaluation": _NOT_FINITE,
    "train/steps/trainer.py:Trainer._update_levels": _NOT_FINITE,
    "train/steps/trainer.py:Trainer.measure": _NOT_FINITE,
    "train/steps/update.py:update": _NOT_FINITE,
}
