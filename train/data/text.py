"""A text that every Python has: the sources of its own standard library, as characters to be predicted in turn.

The files are every ``.py`` below the standard library's folder, but for what distributions leave out, patch or generate
(``SKIPPED``).  They are ordered by SHA-256 of their path, so that a file more or less moves no other one; those whose
digest begins below ``TEST_BELOW`` are the test split.  Only as many are read as the settings ask for.  Two releases of
Python mostly give two texts: ``Text.fingerprint`` says which text it was, and a run is not continued on another one.

A character is one of 97, whatever the Python: the 95 printable ones of ASCII, the end of a line, and one for every
other byte.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .dataset import DataSet, Split
from .objective import CLASSES
from .source import Source

VOCABULARY = bytes(range(32, 127)) + b"\n"  # a byte that is not here has the last code
NUM_CODES = len(VOCABULARY) + 1
SKIPPED = {
    *("__pycache__", "site-packages", "dist-packages", "lib-dynload", "test", "tests"),
    # packages of their own in some distributions, or gone
    *("distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo"),
    *("encodings", "pydoc_data"),  # tables and generated text
}
# beginnings of names that differ from one installation to the next
GENERATED = ("_sysconfigdata", "site.py", "sysconfig")
TEST_BELOW = 32  # a bound out of 256: one file in eight is a test file

_CODES = np.full(256, NUM_CODES - 1, dtype=np.uint8)
_CODES[np.frombuffer(VOCABULARY, dtype=np.uint8)] = np.arange(len(VOCABULARY), dtype=np.uint8)


class Text:
    """Windows of ``length`` characters without overlap; their labels are the characters that follow each."""

    objective = CLASSES

    def __init__(
        self,
        name: str,
        train: np.ndarray,
        test: np.ndarray,
        length: int,
        device: torch.device,
        *,
        is_stand_in: bool = False,
    ) -> None:
        """Make the data set of the splits train and test: uint8 codes, a multiple of ``length`` and one more."""
        self.name, self.device, self.is_stand_in = name, device, is_stand_in
        self.num_train, self.num_test = (len(train) - 1) // length, (len(test) - 1) // length
        self.input_shape, self.num_classes = (length,), NUM_CODES
        self.fingerprint = hashlib.sha256(b"%d " % len(train) + train.tobytes() + test.tobytes()).hexdigest()[:14]
        self._splits = {"train": torch.from_numpy(train).to(device), "test": torch.from_numpy(test).to(device)}
        self._offsets = torch.arange(length + 1, dtype=torch.int64, device=device)

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The int64 characters (batch, length) and the next ones (batch, length) of a batch; nothing is random here."""
        del generator
        return self._windows("train", indices.to(self.device))

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        count = self.num_train if split == "train" else self.num_test
        for start in range(0, count, batch_size):
            end = min(start + batch_size, count)
            yield self._windows(split, torch.arange(start, end, dtype=torch.int64, device=self.device))

    def _windows(self, split: Split, numbers: Tensor) -> tuple[Tensor, Tensor]:
        windows = self._splits[split][numbers[:, None] * self.input_shape[0] + self._offsets].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def encode(content: bytes) -> np.ndarray:
    """The uint8 codes in [0, 97) of a text, one for each byte."""
    return _CODES[np.frombuffer(content, dtype=np.uint8)]


def source_files(home: Path) -> dict[str, list[str]]:
    """The paths below ``home`` of both splits, in reading order; FileNotFoundError where there are none."""
    names = []
    for folder, inner, found in os.walk(home):
        inner[:] = [name for name in inner if name not in SKIPPED and not name.startswith("config-")]
        here = Path(folder).relative_to(home)
        names += [(here / name).as_posix() for name in found if name.endswith(".py") and not name.startswith(GENERATED)]
    if not names:
        version = ".".join(map(str, sys.version_info[:2]))
        raise FileNotFoundError(
            f"data=text reads the standard library's sources, and Python {version} has no .py files below {home}"
        )
    digests = {name: hashlib.sha256(name.encode(errors="surrogateescape")).digest() for name in names}
    ordered = sorted(names, key=digests.__getitem__)
    return {
        "train": [name for name in ordered if digests[name][0] >= TEST_BELOW],
        "test": [name for name in ordered if digests[name][0] < TEST_BELOW],
    }


class StandardLibrary(Source):
    """The first ``num_train`` and ``num_test`` windows; ValueError where this Python's text is shorter."""

    def load(self, device: torch.device) -> DataSet:
        settings, length = self.settings, self.settings["length"]
        home = Path(sysconfig.get_path("stdlib"))
        files = source_files(home)
        splits = {}
        for split, count in (("train", settings["limit"] or settings["num_train"]), ("test", settings["num_test"])):
            parts, found, needed = [], 0, count * length + 1
            for name in files[split]:
                parts.append(encode((home / name).read_bytes()))
                found += len(parts[-1])
                if found >= needed:
                    break
            else:
                need = f"data.num_{split}={count} windows of data.length={length} need {needed} characters"
                have = f"the {len(files[split])} {split} files below {home} have {found}"
                legal = f"legal: data.num_{split} at most {max(found - 1, 0) // length}"
                raise ValueError(f"{need}, and {have} ({legal})")
            splits[split] = np.concatenate(parts)[:needed]
        return Text(self.name, splits["train"], splits["test"], length, device)

    def input_shape(self) -> tuple[int, ...]:
        return (self.settings["length"],)

    def num_bytes(self) -> int:
        return sum(count * self.settings["length"] + 1 for count in self.sizes())  # one a character

    def stand_in(self, device: torch.device, num_train: int, num_test: int) -> DataSet:
        length, draws = self.settings["length"], np.random.default_rng(0)
        sizes = (num_train * length + 1, num_test * length + 1)
        train, test = (draws.integers(0, NUM_CODES, size, dtype=np.uint8) for size in sizes)
        return Text(self.name, train, test, length, device, is_stand_in=True)
