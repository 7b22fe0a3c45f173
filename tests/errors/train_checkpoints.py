"""Errors of checkpoints: where they are saved, read, gone on from and evaluated."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

from settings import command_line, resolving, run_identity
from tests.errors.rows import Row, cli, row
from tests.errors.train_runs import CPU, FULL, RUN, on_a_full_disk
from tests.train.small_runs import BASE
from train import evaluator, launch
from train.process import checkpoint
from train.steps import optim, update
from train.steps.loss_scale import LossScale


def _keep() -> None:
    (Path() / checkpoint.FILE).touch()
    with mock.patch.object(os, "link", mock.Mock(side_effect=OSError(errno.EPERM, "Operation not permitted"))):
        checkpoint.keep(Path(), 5)


def _archive(state: object, file: object) -> None:
    """``torch.save`` where a write fails."""
    try:
        raise FULL
    except OSError:
        raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904 - as torch has it


def _cannot_save() -> None:
    with mock.patch.object(torch, "save", _archive):
        checkpoint._save_archive({"step": 4}, io.BytesIO())


def _read() -> None:
    with open(checkpoint.FILE, "rb") as file:
        checkpoint.decoded(checkpoint.checked(file), CPU)


def _find() -> None:
    checkpoint.find(Path(), "own", CPU)


def saved(
    given: str, change: Callable[[Path], object] | None = None, look: Callable[[], object] = _read, **values: Any
) -> Row:
    """The newest checkpoint of a run, whose identity is ``own``, with other values or other bytes."""

    def make(folder: Path) -> None:
        del folder
        checkpoint.save(Path(), {"identity": "own", "step": 4, **values})
        if change:
            change(Path() / checkpoint.FILE)
        look()

    return row("checkpoint.pt", given, make)


def _without_line(path: Path) -> bytes:
    return path.read_bytes()[: -checkpoint._LINE_BYTES]


def _older(path: Path) -> None:
    """A checkpoint without our checksum, with a tensor whose bytes have changed."""
    torch.save({"identity": "own", "step": 4, "model": torch.arange(100.0)}, path)
    whole = path.read_bytes()
    place = whole.index(torch.arange(90.0, 100.0).numpy().tobytes())
    path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])


def _patched(module: Any, name: str, error: Exception) -> Callable[[Path], None]:
    """A checkpoint without our checksum, of which a library says that it cannot be read."""

    def make(folder: Path) -> None:
        del folder
        torch.save({"identity": "own", "step": 4}, checkpoint.FILE)
        with mock.patch.object(module, name, mock.Mock(side_effect=error)):
            _read()

    return make


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _of_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _signed(content: Any) -> Callable[[Path], object]:
    """Something else than a state, with our checksum."""

    def change(path: Path) -> None:
        path.unlink()
        checkpoint.save(path.parent, content)

    return change


def values(given: str, state: Mapping[str, Any], own: Mapping[str, Any]) -> Row:
    """A state of a run of 10 steps, against what the run would save itself."""
    return row("checkpoint.pt of this run", given, lambda: checkpoint.check_values({"step": 4, **state}, dict(own), 10))


def _on_all_ranks() -> None:
    transport: Any = SimpleNamespace(rank=1, world=2, texts=lambda word, tag: ['{"error": "it is damaged"}'])
    checkpoint.on_all_ranks(lambda: None, CPU, transport)


def again(given: str, newest: Mapping[str, Any] | None, **settings: Any) -> Row:
    """A run of four steps that goes on from a checkpoint with such values."""

    def make(folder: Path) -> int:
        asked = resolving.resolve(BASE | {"run_dir": "run"} | settings)
        (folder / "run").mkdir()
        (folder / "run/config.yaml").write_text(json.dumps(asked))
        if newest is not None:
            checkpoint.save(Path("run"), {"identity": run_identity.identity(asked), "step": 2, **newest})
        return launch.launch(asked)

    return cli("main.py", given, make)


def evaluated(given: str, ask: Callable[[evaluator.Evaluator], object], **settings: Any) -> Row:
    """An evaluation of a run that has its configuration alone."""

    def make(folder: Path) -> None:
        (folder / RUN).mkdir(parents=True)
        (folder / RUN / "config.yaml").write_text(json.dumps(resolving.resolve(BASE | {"data_dir": "."} | settings)))
        ask(evaluator.Evaluator(command_line.evaluation({"run": RUN, "once": True})))

    return row("main.py mode=evaluate", given, make)


def _evaluate(state: Mapping[str, Any]) -> Callable[[evaluator.Evaluator], None]:
    return lambda held: held.evaluate(Path("c.pt"), {"identity": held.identity, "step": 4, **state}, 0.0)


def restored(given: str, change: Callable[[dict[str, Any]], object]) -> Row:
    """An optimizer's saved state with another value."""

    def make() -> None:
        ours = torch.optim.Adam(nn.Linear(2, 2).parameters())
        state = ours.state_dict()
        change(state)
        optim.restore(ours, state)

    return row("checkpoint.pt of this run", given, make)


ROWS = [
    row("checkpoint.pt", "saved on a full disk", on_a_full_disk(os, "fsync", lambda: checkpoint.save(Path(), {}))),
    row("checkpoint-5.pt", "kept on a full disk", on_a_full_disk(shutil, "copyfile", _keep)),
    row("checkpoint.pt", "written on a full disk", _cannot_save),
    saved("empty", _of_bytes(b"")),
    saved("cut short", lambda path: path.write_bytes(path.read_bytes()[:200])),
    saved("a changed byte", lambda path: path.write_bytes(b"Q" + path.read_bytes()[1:])),
    saved("an older one, with a changed byte", _older),
    row(
        "checkpoint.pt",
        "an older one, without its archive",
        _patched(zipfile, "ZipFile", zipfile.BadZipFile("it is no archive")),
    ),
    row("checkpoint.pt", "which torch cannot read", _patched(torch, "load", RuntimeError("it has another format"))),
    saved("a list", _signed([1])),
    saved("code", _signed({"identity": "own", "step": 4, "code": print})),
    saved("a step of True", step=True),
    saved("of other settings", look=_find, identity="another"),
    saved("damaged, and no other", _of_bytes(b""), look=_find),
    saved("a folder", _a_folder, look=_find),
    saved("of another step than fork.at=3", look=lambda: checkpoint.at_step(Path(), "own", 3, CPU)),
    row("checkpoint.pt", "damaged, on another rank", _on_all_ranks),
    values("step 11 of 10", {"step": 11}, {}),
    values("without a model", {}, {"model": {}}),
    values("bytes of 'many'", {"totals": {"bytes": "many"}}, {"totals": {"bytes": 0}}),
    values("another shape", {"model": {"w": torch.zeros(2)}}, {"model": {"w": torch.zeros(3)}}),
    values("without a parameter", {"model": {}}, {"model": {"w": torch.zeros(3)}}),
    values("a total that is none", {"totals": {"miles": 1}}, {"totals": {}}),
    restored("other parameters of the optimizer", lambda state: state["param_groups"][0]["params"].reverse()),
    restored("a step of -1 of the optimizer", lambda state: state["state"].update({0: {"step": -1}})),
    row("checkpoint.pt of this run", "a loss scale of 3", lambda: LossScale().restore({"value": 3.0})),
    row("checkpoint.pt of this run", "nan", lambda: update.check_saved({"model": {"w": torch.tensor([math.nan])}})),
    again("goes on from a checkpoint without a model", {}),
    again("goes on from a checkpoint of other data", {"fingerprint": "abc"}),
    again("fork=, of a run that is gone", None, **{"fork.run": "runs/main/none", "fork.at": 1}),
    evaluated("data that are not there", print, data="mnist", model="mlp"),
    evaluated("once=true, without a checkpoint", lambda held: held.newest()),
    evaluated("a checkpoint of other data", _evaluate({"fingerprint": "abc"})),
    evaluated("a checkpoint without a model", _evaluate({})),
]
