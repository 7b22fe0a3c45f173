"""The catalog: the tables of docs/experiments.md name what it holds, and adding a data set, a method, a model or a
figure takes the edits that CONTRIBUTING counts, shown with a toy of each in a copy of the code.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.data import DATA
from settings.models import MODELS

ROOT = Path(__file__).parent.parent
CODE = ("settings", "files", "nuq", "grid", "train", "analysis")

DATA_FILE = '''
"""Pictures that are as light as their class."""

import numpy as np

from .dataset import Arrays, Normalization
from .source import Source, Splits
from .data_files import missing


class Toy(Source):
    normalization = Normalization((0.35,), (0.26,))

    def read(self) -> Splits:
        path = self.data_dir / self.record.places[0]
        if not path.exists():
            raise missing("the toy", str(path), "make it")
        train, test = (np.arange(count) % self.num_classes for count in map(int, path.read_text().split()))
        return self._of(train), self._of(test)

    def _of(self, labels):
        return Arrays(np.tile((60 * labels).astype(np.uint8)[:, None, None, None], (1, *self.input_shape())), labels)
'''
DATA_LINE = '    "toy": DataRecord(Files, "train.data.toy:Toy", 4, (1, 8, 8), (40, 12), ("toys.txt",)),\n'
METHOD_FILE = '''
"""What was sent in full, once more."""

import torch

from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message


class Toy(Compressor):
    def __init__(self, settings):
        del settings

    def encode(self, tensor, key):
        del key
        x = tensor.reshape(-1).float().contiguous()
        return Message(b"TOYS", x.numel(), x.view(torch.uint8))

    def _decoded(self, message):
        return message.body.view(torch.float32)

    def message_bytes(self, n):
        return HEADER_BYTES + 4 * n
'''
METHOD_LINE = '    "toy": Method("Toy", SGD, "nuq.compressors.toy:Toy", **_EXACT),\n'
MODEL_FILE = '''
"""A linear model."""

import math

from torch import nn


def toy(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))
'''
MODEL_LINE = '    "toy": ModelRecord(Model, f"{_ROOM}toy:toy", ANYTHING),\n'
FIGURE_LINE = '    Plot("toy_rate", "Rate of the toy", ("lr",), "learning rate", False),\n'
SWEEP = """
from grid.engine.sweep import Sweep, point

def toys() -> Sweep:
    return Sweep([point("toy", data="toy", method="toy", model="toy")], seeds=[1])
"""
# the edits that CONTRIBUTING counts: new files, and lines of others
EDITS = {
    "train/data/toy.py": "new",
    "settings/data.py": ["+ " + DATA_LINE],
    "nuq/compressors/toy.py": "new",
    "nuq/registry.py": ["+ " + METHOD_LINE],
    "train/models/toy.py": "new",
    "settings/models.py": ["+ " + MODEL_LINE],
    "analysis/plots/curves.py": ["+ " + FIGURE_LINE],
}
# file -> the table in it, its end, and the line that is added
LINES = {
    "settings/data.py": ("DATA: dict", "}", DATA_LINE),
    "nuq/registry.py": ("METHODS: dict", "}", METHOD_LINE),
    "settings/models.py": ("MODELS: dict", "}", MODEL_LINE),
    "analysis/plots/curves.py": ("PLOTS = (", ")", FIGURE_LINE),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code that has the toys, and a sweep of them."""
    folder = tmp_path_factory.mktemp("toys") / "copy"
    for room in CODE:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, folder)
    (folder / "train/data/toy.py").write_text(DATA_FILE)
    (folder / "nuq/compressors/toy.py").write_text(METHOD_FILE)
    (folder / "train/models/toy.py").write_text(MODEL_FILE)
    for path, (table, end, line) in LINES.items():
        head, _, rest = (folder / path).read_text().partition(f"\n{table}")
        (folder / path).write_text(f"{head}\n{table}" + rest.replace(f"\n{end}\n", f"\n{line}{end}\n", 1))
    (folder.parent / "sweep.py").write_text(SWEEP)
    return folder


def run(copy: Path, *words: str, code: int = 0) -> str:
    """What a command prints there."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "NUQ_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("NUQ_DATA", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_adding_takes_the_edits_that_contributing_counts(copy: Path) -> None:
    made = {}
    for path in copy.rglob("*.py"):
        name = path.relative_to(copy).as_posix()
        before = (ROOT / name).read_text().splitlines(keepends=True) if (ROOT / name).exists() else None
        after = path.read_text().splitlines(keepends=True)
        if before is None:
            made[name] = "new"
        elif before != after:
            made[name] = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert made == EDITS
    told = (ROOT / "CONTRIBUTING.md").read_text()
    for what in ("method", "data set", "model"):
        assert f"A {what}: one file and one line" in " ".join(told.split())
    assert "A figure: one line" in told


@pytest.mark.slow
def test_the_help_lists_the_toys(copy: Path) -> None:
    told = run(copy, "main.py", "--help")
    for group in ("data", "method", "model"):
        assert re.search(rf"^{group}=\w+  \[one of .*, toy\]$", told, re.MULTILINE)
        assert re.search(rf"^ {group}=(\w+\|)*toy$", told, re.MULTILINE)


@pytest.mark.slow
def test_the_toys_are_checked_for_tried_trained_and_drawn(copy: Path) -> None:
    sweep = ("../sweep.py", "toys")
    assert "problem: data=toy: data holds no toy (" in run(
        copy, "grid_run.py", "plan", *sweep, "--ignore", "opinion", code=1
    )
    tried = run(copy, "grid_run.py", "dry-run", *sweep)
    assert (
        f"marked stand-in tensors in place of data=toy: the toy not found: expected {Path('data') / 'toys.txt'}"
        in tried
    )
    assert "evaluation, checkpoint and resume went well" in tried
    (copy / "data").mkdir()
    (copy / "data" / "toys.txt").write_text("40 12")
    assert "data holds no toy" not in run(copy, "grid_run.py", "plan", *sweep, "--ignore", "opinion")
    ours = ("data=toy", "method=toy", "model=toy", "steps=5", "batch_size=8", "workers=2", "optim.lr=0.001")
    assert "test accuracy" in run(copy, "main.py", *ours, "log_every=1", "run_dir=runs/toys/one")
    run(copy, "-m", "analysis", "figures", "toys", "--only", "toy_rate*")
    assert list((copy / "figures" / "toys").glob("**/toy_rate*.png"))


# --- docs/experiments.md ------------------------------------------------------------------------------------------


def rows(group: str) -> Iterator[tuple[list[str], str]]:
    """The names of each row of the page's table of a group, and the rest of the row."""
    table = (ROOT / "docs/experiments.md").read_text().split(f"\n| `{group}=` |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        first, rest = line.strip("| ").split(" | ", 1)
        yield [name for word in re.findall(r"`([^`]+)`", first) for name in spelled(word)], rest


def spelled(word: str) -> list[str]:
    """``vgg11/13[_bn]`` in full: vgg11, vgg13, vgg11_bn, vgg13_bn."""
    found = re.fullmatch(r"(.*?)(\d*)((?:/\d+)*)(?:\[(\w+)\])?", word)
    assert found
    stem, first, others, end = found.groups()
    names = [stem + number for number in [first, *others.split("/")[1:]]]
    return names + [name + end for name in names if end]


def test_the_tables_of_the_page_are_those_of_the_catalog() -> None:
    for group, table in (("data", DATA), ("model", MODELS)):
        named = [name for names, _ in rows(group) for name in names]
        assert sorted(named) == sorted(table)
    for names, rest in rows("data"):
        for name in names:
            places = [place for place in DATA[name].places if "{" not in place]
            assert not places or any(place.split("/")[-1] in rest for place in places), name
