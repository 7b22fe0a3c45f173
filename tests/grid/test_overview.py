"""Thousands of runs on one screen, and tables that no name breaks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import grid_run
from grid.commands.options import table
from grid.commands.report import counted
from grid.engine.slurm.scheduler_cache import Answer, Job
from grid.engine.states.evidence import View
from grid.engine.states.judge import judge
from grid.engine.states.runs import Run, runs_of
from grid.engine.states.state import Claim, State
from grid.engine.sweep import load

FAMILY = """
from grid.engine.sweep import Sweep, axis, point, product

def large() -> Sweep:
    bits = axis("method.bits=2,3,4,5")
    points = product(point("QSGD", method="qsgd"), bits, axis("optim.lr", [0.001 * (1 + i) for i in range({points})]))
    needs = lambda config: {{"gpus": 0, "time": f"{{config['method']['bits']}}:00:00"}}
    return Sweep(points, seeds=range(1, 6), resources=needs)

def odd() -> Sweep:
    return Sweep([point("a\\nb" + 200 * "x", method="qsgd"), point("\\x1b[31mred", method="alq")], folder="odd")
"""
LOG = (
    'Traceback (most recent call last):\n  File "/home/me/train/steps/trainer.py", line {line}, in '
    "step\nValueError: loss {loss} {what}\n"
)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweeps.py"
    path.write_text(FAMILY.format(points=100))
    return path


def _past(runs: list[Run]) -> None:
    """Runs of which, in every ten, six are done, one failed (of two bugs), two run, and one has not begun."""
    now = time.time()
    for number, run in enumerate(runs):
        word = ("done", "done", "done", "done", "done", "done", "failed", "running", "running", "")[number % 10]
        if not word:
            continue
        run.folder.path.mkdir(parents=True)
        values = {
            "state": word,
            "attempt": 1,
            "host": "elsewhere",
            "pid": 1,
            "start": now - 90,
            "heartbeat": now,
            "steps": 1000,
        }
        values |= {"step": 1000 if word == "done" else 100 + number % 800, "seconds": 50.0}
        run.folder.status.write_text(json.dumps(values))
        if word == "failed":
            what = "overflows float16" if number % 40 == 6 else "of float32"
            run.folder.log.write_text(LOG.format(line=100 + number, loss=number / 7, what=what))


def _watched(sweep: Path, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    assert grid_run.main(["status", str(sweep), "large", "--watch"], root) == 130
    return capsys.readouterr().out.splitlines()


def test_two_thousand_runs_fit_one_screen(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of(load(str(sweep), "large").experiments(), tmp_path)
    assert len(runs) == 2000
    _past(runs)
    old = [run for number, run in enumerate(runs) if number % 10 == 6 and number % 40 != 6]
    for run in old:
        for path in (run.folder.status, run.folder.log):
            os.utime(path, (time.time() - 7200, time.time() - 7200))
    lines = _watched(sweep, tmp_path, capsys, monkeypatch)
    assert len(lines) < 24  # and the cursor's own
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "1200 done, 400 running, 200 failed, 200 new" in text
    assert "rate: " in text and "runs/h" in text
    for bits in (2, 3, 4, 5):  # a shape of its own each
        assert f"time={bits}:00:00: 300 done, 100 running, 50 waiting; about " in text
    newest, oldest = [line for line in lines if "ValueError" in line]
    assert newest.startswith("  50 code, ") and "overflows float16" in newest
    assert oldest.startswith("  150 code, 2.0 h ago: ValueError at trainer.py in step: loss N of float32")
    slowest = lines[lines.index("running, the slowest first:") + 1 :]
    steps = [int(line.partition("): ")[2].partition("/")[0]) for line in slowest if "(seed" in line]
    assert len(steps) >= 2 and steps == sorted(steps) and steps[0] == 107
    assert "more" in text


def test_few_runs_are_told_one_by_one(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.write_text(FAMILY.format(points=1).replace("range(1, 6)", "(1, 2)") + "\n")
    runs = runs_of(load(str(sweep), "large").experiments(), tmp_path)
    _past(runs)
    runs[0].folder.status.write_text(runs[0].folder.status.read_text().replace("done", "running"))
    lines = _watched(sweep, tmp_path, capsys, monkeypatch)
    assert sum(line.startswith("QSGD bits=") for line in lines) == len(runs) == 8


def test_status_lists_the_slowest_of_hundreds_that_run(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _past(runs_of(load(str(sweep), "large").experiments(), tmp_path))
    assert grid_run.main(["status", str(sweep), "large"], tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("QSGD bits=") for line in lines) == 40
    assert "... and 360 more that need less time still (--all lists every run)" in lines


@pytest.mark.parametrize("command", ["show", "status"])
def test_names_do_not_break_tables(
    command: str, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grid_run.main([command, str(sweep), "odd"], tmp_path) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    rows = [line for line in out.splitlines() if "x..." in line or "[31m" in line]
    assert len(rows) == 2
    assert all(r"a\nbxx" in line or r"\x1b[31mred" in line for line in rows)
    assert len({line.index("qsgd-" if "x..." in line else "alq-") for line in rows}) == 1 or command == "show"
    assert max(map(len, rows)) < 200


def test_a_table_has_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    table(("LABEL", "WHY"), [("a\r\nb\tc", "x"), ("y" * 200, "z")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == r"a\r\nb\tc".ljust(60) + "  x"
    assert lines[2] == "y" * 37 + "..." + "y" * 20 + "  z"


def test_reasons_keep_names() -> None:
    states = {str(step): State("failed", f"CIFAR-10 not found at step {step} by rank-{step}") for step in (3, 4)}
    assert counted(View(states), "failed") == "2 CIFAR-10 not found at step ... by rank-..."


def test_held_jobs_say_which_they_are_and_who_may_release_them() -> None:
    def told(reason: str, *elements: str) -> str:
        states = {}
        for element in elements:
            claim = Claim(element, time.time())
            job = Job("PENDING", reason)
            states[element] = judge(None, claim, job, Answer(time.time(), {element: job}), time.time())
        return counted(View(states), "pending")

    assert told("JobHeldUser", "1234_5") == "JobHeldUser: waits for scontrol release 1234_5"
    assert told("JobHeldUser", "12_5", "12_6", "13_2") == "3 JobHeldUser: waits for scontrol release 12_[5-6],13_2"
    many = told("JobHeldUser", *(f"12_{index}" for index in range(0, 90, 2)))
    assert many == "45 JobHeldUser: waits for scontrol release 12_0, 12_2, 12_4, ..."
    assert told("", "12_5", "12_6") == "", "that it waits is said already"
    for reason in ("JobHeldAdmin", "JobHoldMaxRequeue"):
        assert told(reason, "12_5", "12_6") == f"2 {reason}: held until an administrator releases it"


@pytest.mark.parametrize(
    ("command", "code"), [("show", 2), ("plan", 2), ("run", 2), ("status", 0), ("cancel", 0), ("failures", 0)]
)
def test_a_setting_that_nothing_reads_starts_no_run_and_hides_none(
    command: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user, root = tmp_path / "mine.py", tmp_path / "root"
    root.mkdir()
    point = "product(point(method='qsgd'), where_read({'method.num_samples': 10}))"
    user.write_text(
        f"from grid.engine.sweep import Sweep, point, product, where_read\n"
        f"def study() -> Sweep:\n    return Sweep({point})"
    )
    assert grid_run.main([command, str(user), "study"], root) == code
    refused = "method.num_samples: no method of mine.study reads this setting" in capsys.readouterr().err
    assert refused == (code == 2)
