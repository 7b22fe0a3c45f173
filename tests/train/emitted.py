"""Small experiments of every data set, from files of its true format, as the scripts that ``grid_run.py`` writes for
them.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from grid.engine.scripts.script import run_script
from grid.engine.sweep import Experiment
from settings import resolving
from tests.train.archive_files import write_cifar100, write_svhn
from tests.train.data.test_data import write_cifar, write_mnist
from tests.train.data.test_picture_sets import write_folder
from tests.train.data.test_pictures import write_imagenet
from tests.train.glue_files import write_imdb, write_task
from train.steps.trainer import Trainer

ROOT = Path(__file__).parents[2]
STEPS = 20
COMMON: dict[str, Any] = {
    "workers": 2,
    "batch_size": 2,
    "steps": STEPS,
    "log_every": 1,
    "eval_every": 10,
    "eval_batch_size": 16,
    "checkpoint_every": 7,
    "optim.lr": 0.001,
    "device": "cpu",
}
FEW = {"data.num_train": 50, "data.num_test": 20}
UNVERIFIED = {"data.verify": False}  # not the original archives, whose checksums are known
OWN: dict[str, dict[str, Any]] = {
    **{f"logreg{classes}": FEW for classes in (2, 5, 10)},
    "text": {"data.length": 16, **FEW},
    **dict.fromkeys(("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"), UNVERIFIED),
    "folder": {"data.path": "insects"},
    **{name: {"data.length": 24, "data.vocabulary": 200} for name in ("glue", "imdb")},
}
BERT: dict[str, Any] = {"model": "bert", "model.layers": 1, "model.width": 16, "optim": "adamw"}
WRITERS: dict[str, Callable[[Path], object]] = {  # the others are in every installation
    "mnist": lambda folder: write_mnist(folder / "mnist", ".gz"),
    "fashion_mnist": lambda folder: write_mnist(folder / "FashionMNIST" / "raw"),
    "cifar10": lambda folder: write_cifar(folder / "cifar-10-batches-py"),
    "cifar100": lambda folder: write_cifar100(folder / "cifar-100-python"),
    "svhn": lambda folder: write_svhn(folder / "svhn"),
    "imagenet": lambda folder: write_imagenet(folder / "imagenet"),
    "folder": lambda folder: write_folder(folder / "insects"),
    "glue": lambda folder: write_task(folder, "stsb"),
    "imdb": write_imdb,
}


def write(data: str, folder: Path) -> None:
    """The files of a data set, where its reader looks for them."""
    WRITERS.get(data, lambda _: None)(folder)


def emit(run_dir: Path, data_dir: Path, settings: Mapping[str, Any]) -> Experiment:
    """``run.sh`` in a new run folder; ``settings`` name the data set."""
    every = COMMON | OWN.get(settings["data"], {}) | {"data_dir": str(data_dir)} | dict(settings)
    experiment = Experiment("emitted", run_dir.name, (), every, resolving.resolve(every))
    run_dir.mkdir(parents=True)
    (run_dir / "run.sh").write_text(run_script(experiment, str(run_dir), str(ROOT)))
    return experiment


def words(run_dir: Path) -> list[str]:
    """The words that the script hands to main.py."""
    _, _, rest = (run_dir / "run.sh").read_text().partition("\noverrides=(\n")
    return shlex.split(rest.partition("\n)\n")[0])


def in_this_process(words: Sequence[str]) -> int:
    """``python main.py WORDS`` without another process; its exit code."""
    argv, sys.argv = sys.argv, ["main.py", *words]
    try:
        with signals_kept():
            runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = argv
    raise AssertionError("main.py ends with an exit code")


@contextlib.contextmanager
def told_to_stop_at(step: int) -> Iterator[None]:
    """A run of this process is told to stop while it takes this step."""
    train_step = Trainer.train_step

    def halting(trainer: Trainer, stop: bool = False) -> Any:
        if trainer.step == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_step(trainer, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", halting)
        yield


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """A run takes the handlers of its signals; they are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
