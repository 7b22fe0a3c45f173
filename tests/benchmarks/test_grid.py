"""The benchmark of the orchestrator measures what users wait for: a whole checkout, and a queue that can be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import grid_run
from benchmarks import grid

FAMILY = """
from grid.engine.sweep import Sweep, axis, point, product

def two_thousand() -> Sweep:
    '''Ten of them.'''
    return Sweep(product(point("QSGD", method="qsgd"), axis("method.bits", [3])), range(1, 11), "two_thousand")
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the stand-ins change
    yield grid.checkout(tmp_path)
    shutil.rmtree(tmp_path / "checkout")


@pytest.mark.slow
def test_the_plan_is_built_and_the_queue_is_read(
    bench: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (family := tmp_path / "family.py").write_text(FAMILY)
    folder, root = bench
    name = [str(family), "two_thousand"]
    assert grid_run.main(["plan", *name], root) == 0
    assert "nothing was built beforehand" not in capsys.readouterr().out
    assert grid_run.main(["submit", *name], root) == 0
    grid.history(root, family, folder)
    (root / "jobs" / "scheduler.json").unlink(missing_ok=True)
    capsys.readouterr()
    assert grid_run.main(["status", *name], root) == 0
    assert "6 done, 1 failed, 1 running, 2 pending (the scheduler's word is " in capsys.readouterr().out
