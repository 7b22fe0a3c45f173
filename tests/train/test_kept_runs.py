"""Kept runs begun again: the first steps of today's code are the same bits.

A sweep's table is hours of training by the commits that its runs noted.  In place of all of it, one run of each kept
sweep is begun again with its own settings and stopped after some steps.  Every scalar that it has logged by then
(losses, bits, levels, variances; not times, nor what several processes sent) must be equal to the kept one.  What
only happens later, such as an evaluation, is not seen.  Forks, which begin in the middle, are left out.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
import yaml

from analysis.logs import discovery, events
from args import Config
from nuq.errors import NonFiniteError
from settings import resolving
from train.data.data_files import UNUSABLE
from train.launch import launch
from train.logs.run_log import Log
from train.process import machine, status
from train.process.config_file import read_config
from train.process.signals import Preempted
from train.steps.train_loop import run
from train.steps.trainer import Trainer

ROOT = Path(__file__).parents[2]
SWEEPS = sorted({path.parent.parent for path in (ROOT / "results").glob("*/*/config.yaml")})
STEPS = 120  # two updates of the levels behind the first, at 20 and 100
UNLIKE = ("time/", "comm/network_bytes")  # tags that no two runs share, or that only several processes log


def of_here(folder: Path) -> Iterator[Path]:
    """The runs of a sweep that begin at the start and were trained on such a processor, with such a PyTorch.

    Others round otherwise, and prove nothing here.
    """
    here = machine.describe(torch.device("cpu"), ROOT)
    for kept in discovery.find(folder, []):
        noted = status.read(kept.folder).get("machine")
        alike = isinstance(noted, dict) and all(noted.get(what) == here[what] for what in ("cpu", "gpu", "torch"))
        if alike and not read_config(kept.folder)["fork"]["run"]:
            yield kept.folder


def differing(folder: Path, steps: int, again: Path) -> tuple[list[str], int]:
    """Begin a kept run again: the tags whose scalars differ up to a step, and how many scalars are equal.

    One more step completes the last one.
    """
    again.mkdir(exist_ok=True)
    config: dict[str, Any] = {**read_config(folder), "data_dir": Config().data_dir, "run_dir": ""}
    torch.set_num_threads(config["threads"])
    trainer = Trainer(config, device=torch.device("cpu"))
    told = status.Status(again, config["steps"], "cpu", config["threads"])
    with contextlib.suppress(Preempted, NonFiniteError), contextlib.closing(Log(again, told.attempt)) as log:
        run(trainer, again, told, log, lambda: trainer.step > steps)
    before, now = (dict(scalars(path, steps)) for path in (folder, again))
    differ = {tag for tag, step in before.keys() | now.keys() if before.get((tag, step)) != now.get((tag, step))}
    return sorted(differ), len(before.items() & now.items())


def scalars(folder: Path, steps: int) -> Iterator[tuple[tuple[str, int], bytes]]:
    """The bytes of the scalars up to a step, by tag and step."""
    found = events.read(sorted(folder.glob(f"{discovery.EVENTS}*")))
    for tag, step, value in zip(found.tag, found.step, found.value, strict=True):
        if step <= steps and not found.tags[tag].startswith(UNLIKE):
            yield (found.tags[tag], int(step)), value.tobytes()  # NaN is equal to itself


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_a_kept_run_comes_out_again(sweep: Path, tmp_path: Path) -> None:
    folder = next(of_here(sweep), None)
    if folder is None:
        pytest.skip("its runs were trained on other processors or with another PyTorch, which round otherwise")
    try:
        differ, equal = differing(folder, STEPS, tmp_path)
    except UNUSABLE as error:
        pytest.skip(str(error))
    assert not differ and equal > 0


SETTINGS = {"data": "digits", "model": "mlp", "method": "alq", "method.update_at": [1], "measure.every": 2}
SETTINGS |= {"workers": 2, "steps": 4, "eval_every": 2, "log_every": 1, "seed": 1}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    assert launch(resolving.resolve(SETTINGS | {"run_dir": str(folder / "run-1")})) == 0
    return folder


def changed(run: Path, name: str, **values: object) -> None:
    read = {"config.yaml": yaml.safe_load, "status.json": json.loads}[name]
    (run / name).write_text(json.dumps(read((run / name).read_text()) | values))


def test_what_is_trained_otherwise_is_found(sweep: Path, tmp_path: Path) -> None:
    assert differing(sweep / "run-1", 3, tmp_path / "a")[0] == []
    copytree(sweep / "run-1", other := tmp_path / "other")
    changed(other, "config.yaml", seed=2)
    assert {"loss", "levels/1", "est_var"} < set(differing(other, 3, tmp_path / "b")[0])
    changed(other, "config.yaml", seed=1, measure={"every": 0, "num_samples": 2})
    differ, _ = differing(other, 3, tmp_path / "c")
    assert "est_var" in differ and "loss" not in differ, "one side lacks it"


def test_runs_of_other_processors_and_forks_are_left_out(sweep: Path, tmp_path: Path) -> None:
    (kept,) = of_here(copytree(sweep, tmp_path / "copy"))
    told = json.loads((kept / "status.json").read_text())["machine"]
    for other in ({"cpu": "another"}, {"gpu": "one"}, {"torch": "1.0"}):
        changed(kept, "status.json", machine=told | other)
        assert not list(of_here(kept.parent))
    changed(kept, "status.json", machine=told)
    changed(kept, "config.yaml", fork={"run": "runs/main/x", "at": 2})
    assert not list(of_here(kept.parent))
