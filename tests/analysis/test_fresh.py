"""Figures are drawn again exactly when something that they show has changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import fresh

ARGUMENTS = ["runs", "column"]


@pytest.fixture
def sweep(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    run = write_run("demo", {"method": "alq"}, [("Vacc", 1, 50.0)])
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "accuracy.png").write_text("")
    fresh.remember(folder, ARGUMENTS, [str(folder / "accuracy.png")], ["a note"])
    ahead = max(path.stat().st_mtime_ns for path in [run, *run.iterdir(), run.parent, folder / fresh.STAMP]) + 10**9
    os.utime(folder / fresh.STAMP, ns=(ahead, ahead))
    return run


def before(sweep: Path, arguments: list[str] = ARGUMENTS) -> object:
    return fresh.drawn_before(sweep.parents[2] / "figures", sweep.parent, arguments)


def test_nothing_changed(sweep: Path) -> None:
    assert before(sweep) == ([str(sweep.parents[2] / "figures" / "accuracy.png")], ["a note"])


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "events", "a new run"])
def test_anything_newer_counts(sweep: Path, name: str) -> None:
    changed = {"events": next(sweep.glob("events*")), "a new run": sweep.parent}.get(name, sweep / name)
    later = (sweep.parents[2] / "figures" / fresh.STAMP).stat().st_mtime_ns + 10**9
    os.utime(changed, ns=(later, later))
    assert before(sweep) is None


def test_other_arguments_and_lost_figures_count(sweep: Path) -> None:
    assert before(sweep, [*ARGUMENTS, "bits=3"]) is None
    (sweep.parents[2] / "figures" / "accuracy.png").unlink()
    assert before(sweep) is None


def test_a_damaged_stamp_counts(sweep: Path) -> None:
    (sweep.parents[2] / "figures" / fresh.STAMP).write_text("{")
    assert before(sweep) is None
