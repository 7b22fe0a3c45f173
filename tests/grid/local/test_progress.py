"""The live line of a sweep: what it tells and when, by a fake clock; and what it leaves on a real terminal."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from grid.engine.local import progress
from grid.engine.local.progress import Live
from grid.engine.states.runs import Run
from tests.grid import fake
from tests.terminal import on_terminal, screen

ROOT = Path(__file__).parents[3]


class _Shown:
    """A live line under a clock that the test sets, and the texts that it shows."""

    def __init__(self, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.texts = 1000.0, list[str]()
        monkeypatch.setattr(progress.LiveLine, "show", lambda line, text: self.texts.append(text))
        self.live = Live(runs, lambda: self.now)

    def after(self, seconds: float) -> Live:
        self.now += seconds
        return self.live


def _reaches(run: Run, step: int) -> None:
    status = {"state": "running", "host": "elsewhere", "pid": 1, "heartbeat": time.time(), "step": step, "steps": 7}
    run.folder.status.write_text(json.dumps(status))


def test_rate_and_time_left_come_from_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = fake.runs(fake.checkout(tmp_path), 5)
    shown = _Shown(runs, monkeypatch)
    names = [f"QSGD bits=3 (seed {seed})" for seed in range(1, 6)]
    with shown.live as live:
        live.started(0, runs[0])
        live.started(1, runs[1])
        _reaches(runs[0], 6)
        shown.after(5).beat(0, runs[0])
        shown.after(0.5).beat(0, runs[0])  # too early for another look
        assert shown.texts == [
            f"0/5 runs in 0:00 | {names[0]} 0 %",
            f"0/5 runs in 0:00 | {names[0]} 0 %, {names[1]} 0 %",
            f"0/5 runs in 0:05 | {names[0]} 85 %, {names[1]} 0 %",  # no run is done: nobody knows the time left
        ]
        shown.after(4.5).ended(0, runs[0], "done in 10 s", "done")
        live.started(0, runs[2])
        # 10 s a run: nothing is left of the second, one and two others wait, two at a time
        assert shown.texts[-1] == f"1/5 runs in 0:10, ETA 0:15, 6.0 runs/min | {names[2]} 0 %, {names[1]} 0 %"
        shown.after(1).ended(1, runs[1], "exit code 1", "failed")
        live.passed(runs[3], "now done, by another process; not started here")
        shown.after(1).beat(0, runs[2])
        assert shown.texts[-1] == f"3/5 runs in 0:12, 1 failed, ETA 0:09, 5.0 runs/min | {names[2]} 0 %"
        _reaches(runs[2], 2)
        shown.after(26).beat(0, runs[2])  # slower than the first: its own pace counts, 5 steps of 14 s
        assert shown.texts[-1] == f"3/5 runs in 0:38, 1 failed, ETA 1:10, 1.6 runs/min | {names[2]} 28 %"
        live.ended(0, runs[2], "another process runs it already", "left")
        live.started(0, runs[4])
        assert shown.texts[-1] == f"4/5 runs in 0:38, 1 failed, ETA 0:10, 1.6 runs/min | {names[4]} 0 %", (
            "it is neither"
        )
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{names[1]}: exit code 1",
        f"{names[3]}: now done, by another process; not started here",
        f"{names[2]}: another process runs it already",
    ]


def test_long_runs_tell_the_time_left_before_one_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that goes on from its checkpoint is measured by the steps that it makes now."""
    runs = fake.runs(fake.checkout(tmp_path), 2)
    _reaches(runs[0], 3)
    shown = _Shown(runs, monkeypatch)
    shown.live.started(0, runs[0])
    _reaches(runs[0], 5)
    shown.after(59).beat(0, runs[0])
    assert "ETA" not in shown.texts[-1]
    shown.after(3541).beat(0, runs[0])  # 1800 s a step: 2 steps are left here, 7 of the other run
    assert shown.texts[-1] == "0/2 runs in 1:00:00, ETA 4:30:00 | QSGD bits=3 (seed 1) 71 %"
    shown.after(3600).ended(0, runs[0], "done in 7200 s", "done")
    shown.live.started(0, runs[1])
    assert shown.texts[-1] == "1/2 runs in 2:00:00, ETA 3:30:00, 0.5 runs/h | QSGD bits=3 (seed 2) 0 %"


DRIVER = """
import sys
import time
from pathlib import Path
from files.escaped import Escaping
from grid.engine.local import slots
from tests.grid import fake
slots.POLL_S, slots.GRACE_S = 0.01, 2.0
sys.stdout, sys.stderr = Escaping(sys.stdout), Escaping(sys.stderr)
sys.exit(slots.run_with_progress(fake.runs(Path(sys.argv[1]), 3), 1).exit_code)
"""


def _drive(root: Path, columns: int, ctrl_c_after: str = "", **more: str) -> tuple[str, list[str], int]:
    environ = fake.environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="", **{"TERM": "xterm", "CI": "", **more})
    command = [sys.executable, "-c", DRIVER, str(root)]
    written, code = on_terminal(command, columns, environ, ROOT, ctrl_c_after)
    return written, screen(written, columns), code


def test_a_terminal_keeps_the_events_and_the_summary(tmp_path: Path) -> None:
    written, lines, code = _drive(fake.checkout(tmp_path, {2: 3}), 60)
    assert code == 1
    assert "\r0/3 runs in 0:0" in written and "\r2/3 runs in 0:0" in written and ", 1 failed" in written
    assert [line.partition(" in ")[0] for line in lines[:3]] == [
        "QSGD bits=3 (seed 1): done",
        "QSGD bits=3 (seed 2): diverged",
        "QSGD bits=3 (seed 3): done",
    ]
    assert lines[-2:] == ["2 done, 1 failed", ""]
    assert not [line for line in lines if "runs in" in line]


@pytest.mark.slow
def test_ctrl_c_leaves_a_clean_terminal(tmp_path: Path) -> None:
    _, lines, code = _drive(fake.checkout(tmp_path, {1: "wait"}), 70, ctrl_c_after="(seed 1) 42 %")
    assert code == 130
    assert "stopping 1 run; a second Ctrl-C stops them at once" in lines[0]
    assert lines[1:] == ["stopped; the same command goes on from the last checkpoints", "1 stopped, 2 not started", ""]
    assert not [line for line in lines if "runs in" in line]


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    written, lines, _ = _drive(fake.checkout(tmp_path), 200, TERM="dumb")
    assert "\x1b" not in written and "\r" not in written.replace("\r\n", "")
    assert lines[0].startswith("start QSGD bits=3 (seed 1): runs/tiny/")
    assert lines[1].startswith("[1/3] QSGD bits=3 (seed 1): done in ")
    assert lines[-2:] == ["3 done", ""]
