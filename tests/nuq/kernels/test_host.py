"""The tensors that pass through the host are those of docs/wire.md, and the user is told."""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from nuq.compressors.message import parse
from nuq.kernels import host, low_rank
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.registry import METHODS
from nuq.settings import declared
from nuq.testing.cases import build, gradient

ROOT = Path(__file__).parents[3]
ROWS = {
    what: (cost, methods)
    for what, cost, methods in re.findall(
        r"^\| (\w+) \| (.*) \| (.*) \|$", (ROOT / "docs" / "wire.md").read_text(), re.MULTILINE
    )
    if what != "what"
}
CODED = [
    f"{name} coding={coding}"
    for name, entry in METHODS.items()
    if "coding" in (settings := declared(entry.settings))
    for coding in settings["coding"].rule["choices"]
    if coding != "packed"
]
N = 5000


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tensors that have passed."""
    found: set[str] = set()

    def recorded(tensor: torch.Tensor, passes: str) -> np.ndarray:
        found.add(passes)
        return host.numpy_of(tensor, passes)

    for module in list(sys.modules.values()):
        if module is not host and getattr(module, "numpy_of", None) is host.numpy_of:
            monkeypatch.setattr(module, "numpy_of", recorded)
    return found


def sent_and_read(case: str) -> None:
    compressor = build(case)
    compressor.decode(parse(compressor.encode(gradient(N), Key(0, 0, 0)).to_bytes()), N)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """All methods' modules, so that each can be watched."""
    for name in METHODS:
        build(name)


def test_the_table_has_every_passage_in_its_words() -> None:
    assert {what: cost for what, (cost, _) in ROWS.items()} == host.PASSES


def test_the_table_names_the_methods(seen: set[str]) -> None:
    found: dict[str, set[str]] = {what: set() for what in host.PASSES}
    for name in METHODS:
        seen.clear()
        sent_and_read(name)
        for what in seen:
            found[what].add(name)
    assert found["checksum"] == set(METHODS)
    for what in ("codes", "indices", "sample"):
        listed = {name for part in ROWS[what][1].split(";")[0].split(", ") if " " not in (name := part)}
        assert listed == found[what], what
    assert ROWS["statistics"][1].split(", ") == [name for name, entry in METHODS.items() if entry.adaptive]


@pytest.mark.parametrize("case", CODED)
def test_with_an_entropy_coder_the_codes_pass(seen: set[str], case: str) -> None:
    sent_and_read(case)
    assert seen == {"checksum", "codes"} | ({"sample"} if case.startswith(("casq", "sketchml")) else set())


def test_the_others_pass_where_their_work_is_done(seen: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sent_and_read("smaq samples=16")
    assert seen == {"checksum", "sample"}
    seen.clear()
    low_rank.orthonormal(torch.randn(2, 8))
    assert seen == {"factor"}
    seen.clear()
    monkeypatch.setattr("nuq.native.library", lambda: None)  # as for a tensor that is not a CPU's
    Statistics.empty(8).add([gradient(N)], 64, "linf", moments=False)
    assert seen == {"statistics"}


class OnAGPU:
    """A stand-in for a GPU's tensor, with as much of it as is asked."""

    is_cuda = True

    def cpu(self) -> torch.Tensor:
        return torch.arange(3)


def test_the_user_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host._tell.cache_clear()
    with pytest.warns(
        RuntimeWarning, match=r"codes of tensors on a GPU pass through the host: one byte a coordinate.*docs/wire.md"
    ):
        assert host.numpy_of(OnAGPU(), "codes").tolist() == [0, 1, 2]  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        host.numpy_of(OnAGPU(), "codes")  # pyright: ignore[reportArgumentType]
        host.numpy_of(torch.ones(2), "indices")
    host._tell.cache_clear()


# What no warning tells: heads, tables, control, a number for each count or cluster, scales, and what debug=true and a
# checkpoint copy.  All of it is listed in docs/wire.md.
UNTOLD = {
    "agreement": 2,
    "body": 1,
    "casq": 1,
    "cells": 1,
    "checksum": 1,
    "counts": 1,
    "entropy_device": 4,
    "frame": 2,
    "gathered_state": 2,
    "host": 1,
    "index_coding_device": 2,
    "level_updates": 1,
    "message": 2,
    "operators": 1,
    "quantizer": 1,
    "saved_encoders": 1,
    "sparse": 1,
    "transport": 1,
}


def test_nothing_else_is_copied_to_the_host() -> None:
    found = Counter(path.stem for path in (ROOT / "nuq").rglob("*.py") for _ in range(path.read_text().count(".cpu()")))
    assert found == UNTOLD
