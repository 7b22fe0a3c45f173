"""States from status.json alone: every word, damage, and how the file is written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.atomic import write_text
from grid.engine.states import run_files as states
from grid.engine.states.run_files import RunFolder
from tests.grid.any_record import JSON, KEYS, NOW, WORDS

LEGAL = {"new", "running", "done", "failed", "diverged", "preempted", "lost", "unknown"}


def _state(tmp_path: Path, **values: Any) -> states.State:
    (tmp_path / "status.json").write_text(json.dumps(values))
    return RunFolder(tmp_path).state(NOW)


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_no_status_is_new(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).state().word == "new"
    assert RunFolder(tmp_path / "nowhere").state().word == "new"


@pytest.mark.parametrize("word", ["done", "failed", "diverged", "preempted"])
def test_what_a_run_says_of_its_end_is_believed(tmp_path: Path, word: str) -> None:
    found = _state(
        tmp_path, state=word, heartbeat=0, failure={"message": "why"} if word == "failed" else None, step=5, steps=9
    )
    assert (found.word, found.step, found.steps) == (word, 5, 9)
    assert found.reason == ("why" if word == "failed" else "")
    assert found.may_start == (word != "done")


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "alive", "age_s", "word"),
    [
        (HERE, True, 5, "running"),
        (HERE, True, 599, "running"),
        (HERE, True, 601, "unknown"),  # hung, or the pid is somebody else's by now
        (HERE, False, 5, "lost"),
        (HERE, False, 9999, "lost"),
        ("elsewhere", False, 5, "running"),  # its pid means nothing here
        ("elsewhere", True, 601, "lost"),
    ],
)
def test_running(tmp_path: Path, dead_pid: int, host: str, alive: bool, age_s: float, word: str) -> None:
    pid = os.getpid() if alive else dead_pid
    found = _state(tmp_path, state="running", host=host, pid=pid, heartbeat=NOW - age_s)
    assert found.word == word
    assert found.may_start == (word == "lost"), "what may be alive is not started a second time"
    assert bool(found.reason) == (word != "running")


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"state": 3}',
    b"{}",
    b'{"state": "running"}',
    b"\xff\xfe",
    b'{"state": ["done"]}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damage_is_unknown_and_says_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    found = RunFolder(tmp_path).state()
    assert found.word == "unknown"
    assert found.reason
    assert not found.may_start


@given(st.dictionaries(KEYS, JSON | WORDS), st.booleans())
def test_any_record_gives_a_legal_state_and_done_only_if_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], here: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    if here:
        values["host"] = HERE
    (folder / "status.json").write_text(json.dumps(values))
    found = RunFolder(folder).state(NOW)
    assert found.word in LEGAL - {"new"}
    assert (found.word == "done") == (values.get("state") == "done")


def test_write_text_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.sh"
    write_text(path, "old", executable=True)
    assert path.stat().st_mode & 0o111

    def no(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", no)
    with pytest.raises(OSError, match="disk full"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.sh"]


def test_last_lines(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.last_lines(3) == []
    folder.log.write_bytes(b"first\n" + b"x" * 50000 + b"\n\xff\n\none\ntwo\n\n")
    assert folder.last_lines(2) == ["one", "two"]
    assert len(folder.last_lines(100)) == 4
