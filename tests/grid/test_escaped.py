"""Control characters in what others wrote are shown, whatever prints them."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

import grid_run
from analysis.__main__ import main as analyse
from analysis.report.page import part
from files.escaped import escaped
from grid.engine.states.runs import prepare, runs_of
from grid.engine.sweep import load

RED = "\x1b[31mred\x1b[0m\x07\r\x9b2J\u202e"
SHOWN = r"\x1b[31mred\x1b[0m\x07\r\x9b2J\u202e"


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A root where every run of the demo failed with such words."""
    for run in runs_of(load("demo", "demo").experiments(), tmp_path):
        prepare([run])
        status = {
            "state": "failed",
            "step": 1,
            "steps": 2,
            "exit_code": 1,
            "end": time.time() - 9999,
            "heartbeat": time.time() - 9999,
        }
        status |= {
            "attempt": 1,
            "seconds": 1.0,
            "failure": {"signature": f"ValueError{RED}", "message": f"no {RED} here"},
        }
        (run.folder.path / "status.json").write_text(json.dumps(status))
        run.folder.log.write_text(f"a line {RED}\nValueError: no {RED} here\n")
    return tmp_path


@pytest.mark.parametrize("words", ["failures demo demo", "logs demo demo", "collect demo demo --out -"])
def test_words_of_runs(words: str, failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(shlex.split(words), failed) == 0
    printed = capsys.readouterr()
    assert printed.out and escaped(printed.out) == printed.out and printed.err == ""
    assert r"\x1b[31m" in printed.out


def test_refusals(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(["status", "demo", f"de{RED}mo"], failed) == 2
    assert f"de{SHOWN}mo" in capsys.readouterr().err
    assert analyse(["table", f"de{RED}mo", "--runs", str(failed / "runs")]) == 2
    assert f"de{SHOWN}mo" in capsys.readouterr().err


def test_reports() -> None:
    assert part("paragraph", f"<b>{RED}\n") == f"<p>&lt;b&gt;{SHOWN}\n</p>"
    assert escaped("lone \ud800") == r"lone \ud800"


@pytest.mark.parametrize(
    "bad",
    [
        "--mem lots",
        "--time soon",
        "--account 'a b'",
        "--qos '\"'",
        "--constraint 'a b'",
        "--exclude '$(x)'",
        "--cluster_args 3,0",
    ],
)
@pytest.mark.parametrize("cluster", ["slurm", "local"])
def test_the_original_command_checks_before_it_writes(
    bad: str, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(f"--grid demo --run_name demo --cluster {cluster} {bad}")
    assert grid_run.main(words, tmp_path) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
