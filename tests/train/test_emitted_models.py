"""A model of each kind through its emitted script: trained, stopped by a signal, started again and evaluated.

``test_emitted_scripts`` runs the scripts themselves.  Here the words that a script hands to main.py are read back out
of it, and what main.py does with them is done in this process.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import main
from settings import command_line, resolving
from settings.models import MODELS
from tests.faults.compare import logged
from tests.train.emitted import BERT, STEPS, emit, signals_kept, told_to_stop_at, words, write
from tests.train.glue_files import needs_extra
from train import evaluator

OWN: dict[str, dict[str, Any]] = {
    "cnn": {"data": "digits"},
    "mlp": {"data": "logreg10"},
    "logreg": {"data": "logreg5"},
    "lenet": {"data": "svhn"},
    "wide_resnet": {"data": "cifar100", "model.depth": 10, "model.widen": 1},  # the default has 36 million parameters
    "bert": {"data": "imdb", **BERT},
    "gpt": {"data": "text", "model.layers": 2, "model.width": 16},
    "torchvision": {"model.arch": "mobilenet_v3_small"},
}
# Up to two seconds a step, and checkpoints of up to half a gigabyte.
LARGE = {"resnet9", "cifar_resnet18", "alexnet", "vgg11", "inception", "resnet18"}
FEW_STEPS = 2
QUICK = ("cnn", "gpt")  # which `make test` runs
KINDS = list({record.code: name for name, record in reversed(MODELS.items())}.values())  # one of each function's models


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for data in ("mnist", "cifar10", "cifar100", "svhn", "imdb"):
        write(data, folder)
    return folder


def settings(name: str) -> dict[str, Any]:
    chosen = {
        "data": "cifar10" if MODELS[name].takes.fit((3, 32, 32)) else "mnist",
        "model": name,
        "method": "qsgdinf",
        **OWN.get(name, {}),
    }
    if name in LARGE:
        chosen |= {"workers": 1, "eval_train": False, "checkpoint_every": STEPS}
        chosen |= {"steps": FEW_STEPS, "eval_every": FEW_STEPS, "optim.momentum": 0.0}  # nor twice the checkpoint
    return chosen


def train(run_dir: Path) -> int:
    with signals_kept():
        return main.run(resolving.resolve(command_line.parse_overrides(words(run_dir))))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK) + [needs_extra] * (name == "bert"))
        for name in KINDS
    ],
)
def test_a_model_trains_is_stopped_goes_on_and_is_evaluated(name: str, data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "stopped"
    config = emit(folder, data_dir, settings(name)).config
    steps = config["steps"]
    assert steps == (FEW_STEPS if name in LARGE else STEPS)
    stop_at = steps // 3 + 1
    with told_to_stop_at(stop_at):
        assert train(folder) == 75
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["saved_step"]) == ("preempted", stop_at)
    assert train(folder) == 0
    rows = logged(folder)
    assert sorted(step for tag, step in rows if tag == "loss") == list(range(1, steps + 1))
    assert main.evaluate(command_line.evaluation({"run": str(folder), "once": True})) == 0
    (found,) = json.loads((folder / evaluator.FOLDER / evaluator.RESULTS).read_text())
    assert found["step"] == steps
    assert found["Vloss"] == pytest.approx(
        struct.unpack("<d", rows["Vloss", steps])[0], rel=1e-6
    )  # of other weights it is another
    shutil.rmtree(tmp_path)  # gigabytes for all of them
