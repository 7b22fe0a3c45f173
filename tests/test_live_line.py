"""The live line on a real terminal: rewritten in place, cut where that is narrow, and gone in the end."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from files.escaped import Escaping
from files.live_line import COLUMNS, cut, is_live
from tests.terminal import on_terminal, screen
from train.logs import run_log, step_line
from train.logs.run_log import Log
from train.logs.step_line import StepLine

ROOT = Path(__file__).parent.parent
PROGRAM = """
import sys
from files.escaped import Escaping
from files.live_line import LiveLine
sys.stdout, sys.stderr = Escaping(sys.stdout), Escaping(sys.stderr)
line = LiveLine()
line.show("first " + "long " * 20)
line.show("second")
print("an event")
line.show("third " + "\\x1b[31mlong " * 20)
print("an error", file=sys.stderr)
line.show("fourth")
print("half", end="")
line.show("not over the half of a line")
print(" a line")
line.show("fifth")
{end}
"""


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    return {**kept, "TERM": "xterm", "PYTHONPATH": str(ROOT), **more}


@pytest.mark.parametrize("columns", [12, 30, 0])
def test_what_others_print_stands_above_it_and_nothing_is_left(columns: int) -> None:
    program = PROGRAM.format(end="line.close(); print('the end')")
    written, code = on_terminal([sys.executable, "-c", program], columns, _environment(), ROOT)
    assert code == 0
    assert screen(written, columns or COLUMNS) == ["an event", "an error", "half a line", "the end", ""]
    shown = [part.partition("\x1b[K")[0] for part in written.split("\r") if "\x1b[K" in part]
    assert max(map(len, shown)) == (columns or COLUMNS) - 1, "a full line would be wrapped"
    assert "not over" not in written
    assert not re.search(r"\x1b(?!\[K)", written), "what others wrote steers no terminal"


def test_an_error_does_not_stand_behind_it() -> None:
    written, code = on_terminal([sys.executable, "-c", PROGRAM.format(end="1 / 0")], 60, _environment(), ROOT)
    assert code == 1
    assert screen(written, 60)[3:5] == ["Traceback (most recent call last):", '  File "<string>", line 17, in <module>']
    assert "fifth" not in "".join(screen(written, 60))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_lines_stay_plain() -> None:
    assert is_live(Escaping(_Terminal()), {"TERM": "xterm", "NO_COLOR": "1"}), "it has no colour"
    assert not is_live(Escaping(io.StringIO()), {"TERM": "xterm"})
    assert not is_live(_Terminal(), {"TERM": "xterm"}), "what is printed there would stand behind it"
    for environ in ({"TERM": "dumb"}, {}, {"TERM": ""}, {"TERM": "xterm", "CI": "true"}):
        assert not is_live(Escaping(_Terminal()), environ)


def test_wide_characters_are_cut_by_the_columns_that_they_take() -> None:
    assert [cut("量子化x", columns) for columns in (1, 2, 5, 6, 7)] == ["", "量", "量子", "量子化", "量子化x"]
    assert cut("e\u0301e\u0301", 1) == "e\u0301"


# --- one run ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the line, as they are shown."""
    texts: list[str] = []
    monkeypatch.setattr(step_line.LiveLine, "show", lambda self, text: texts.append(text))
    return texts


def test_steps_rate_loss_and_time_left(shown: list[str]) -> None:
    now = 100.0
    line = StepLine(lambda: now)
    line.draw(11, 1000)  # the first step of an attempt, which went on from 10
    now = 101.0
    line.draw(13, 1000)
    now = 101.1
    line.draw(14, 1000)
    now, line.loss = 104.0, 0.51237
    line.draw(31, 1000)
    line.draw(32, 1000, "evaluating")
    now = 604.0
    line.draw(1000, 1000)
    assert shown == [
        "step 11/1000",
        "step 13/1000",  # after one second nobody knows
        "step 31/1000, ETA 3:14, 5 steps/s, loss 0.5124",
        "step 32/1000, evaluating, ETA 3:04, 5.25 steps/s, loss 0.5124",
        "step 1000/1000, ETA 0:00, 1.96 steps/s, loss 0.5124",
    ]


@pytest.mark.parametrize(("is_first_rank", "terminal"), [(True, True), (True, False), (False, True)])
def test_the_first_rank_alone_shows_it_and_on_a_terminal(
    is_first_rank: bool, terminal: bool, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "is_live", lambda stream: terminal)
    log = Log(tmp_path if is_first_rank else None, 1)
    log.scalars(1, {"loss": 0.5, "time/step_s": 1.0})
    log.scalars(1, {"Vloss": 3.0})
    log.progress(1, 3)
    log.close()
    assert shown == (["step 1/3, loss 0.5"] if is_first_rank and terminal else [])


def test_no_loss_is_shown_before_it_is_known(shown: list[str]) -> None:
    line = StepLine(lambda: 0.0)
    assert math.isnan(line.loss)
    line.draw(1, 2, "evaluating")
    assert shown == ["step 1/2, evaluating"]


@pytest.mark.slow
def test_an_experiment_leaves_the_lines_that_a_pipe_gets(tmp_path: Path) -> None:
    words = ["main.py", "method=qsgd", "model=logreg", "data=digits", "steps=3", "log_every=1", "eval_every=2"]
    command = [sys.executable, *words]
    written, code = on_terminal([*command, f"run_dir={tmp_path}/a"], 200, _environment(), ROOT)
    assert code == 0
    assert "\rstep 1/3" in written and "\rstep 2/3, evaluating, loss " in written
    piped = subprocess.run(
        [*command, f"run_dir={tmp_path}/b"], cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True
    )
    assert "\r" not in piped.stdout and piped.stderr == ""

    def told(lines: list[str]) -> list[str]:
        return [re.sub(r"[\d.]+ s\b", "", line).partition(": ")[2] for line in lines]

    assert told(screen(written, 200)) == told([*piped.stdout.splitlines(), ""])
