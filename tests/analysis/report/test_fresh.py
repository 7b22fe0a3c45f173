"""Figures are drawn again exactly when something that they show has changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import fresh

ARGUMENTS = ["runs", "column"]


@pytest.fixture
def run(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    run = write_run("demo", {"method": "alq"}, [("Vacc", 1, 50.0)])
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "accuracy.png").write_text("")
    fresh.remember(folder, fresh.digest(run.parent), ARGUMENTS, [str(folder / "accuracy.png")], ["a note"])
    return run


def before(run: Path, arguments: list[str] = ARGUMENTS) -> object:
    return fresh.drawn_before(run.parents[2] / "figures", fresh.digest(run.parent), arguments)


def test_nothing_changed(run: Path) -> None:
    assert before(run) == ([str(run.parents[2] / "figures" / "accuracy.png")], ["a note"])
    (run / "stdout.log").write_text("what nobody draws")
    assert before(run) is not None


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "events"])
def test_anything_touched_counts(run: Path, name: str) -> None:
    changed = next(run.glob("events*")) if name == "events" else run / name
    os.utime(changed, ns=(1, 1))  # also when it becomes older: a run that was copied back
    assert before(run) is None


def test_runs_that_come_and_go_count(run: Path) -> None:
    other = run.parent / "group" / "other"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("seed: 2")
    assert before(run) is None
    (other / "config.yaml").unlink()
    assert before(run) is not None


def test_other_arguments_and_lost_figures_count(run: Path) -> None:
    assert before(run, [*ARGUMENTS, "bits=3"]) is None
    (run.parents[2] / "figures" / "accuracy.png").unlink()
    assert before(run) is None


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_stamp_counts(run: Path, text: str) -> None:
    (run.parents[2] / "figures" / fresh.STAMP).write_text(text)
    assert before(run) is None
