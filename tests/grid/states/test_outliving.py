"""Runs that outlive the script that started them, and runs that are killed: what still beats is never started a second
time.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grid.engine.local.progress import Lines
from grid.engine.local.slots import run_all, summary
from grid.engine.states.record_values import process_alive
from grid.engine.states.runs import Run
from tests.grid import bench, fake
from tests.grid.bench import Bench

ONCE = {1: 1, 2: 1, 3: 1}


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    """One script with three runs: the first two wait for the word to end."""
    with bench.bench(tmp_path, capsys) as made:
        made.behave({1: "go", 2: "go"})
        made.good("plan --per_script 3")
        made.good("submit")
        made.until_started({1: 1})
        yield made
        _go(made, 1, 2)
        made.wait()


def _folder(here: Bench, seed: int) -> Path:
    (path,) = (here.root / "runs" / "tiny").glob(f"*-s{seed}-*")
    return path


def _go(here: Bench, *seeds: int) -> None:
    for seed in seeds:
        (_folder(here, seed) / "go").touch()


def _kill(here: Bench, seed: int, *, shell: bool = False) -> None:
    """SIGKILL to main.py of the run, or to its shell alone."""
    here.slurm.kill_run(here.run(seed), shell=shell)
    here.until_started({1: 1, 2: 1})  # the script goes on with the next
    here.slurm.advance(20)


def test_the_shell_of_a_run_is_killed_and_the_run_lives_on(here: Bench) -> None:
    _kill(here, 1, shell=True)
    assert here.states() == {1: "running", 2: "running", 3: "pending"}
    said = here.good("status --now")
    assert "it lives on: its script noted exit code 137; its last heartbeat is" in said
    said = here.good("retry --yes --code")
    assert "left alone: 1 run still beating after the end of the script or job: qsgd-3b-cnn-digits-s1" in said
    assert said.endswith("nothing to retry\n")
    assert "no run has failed" in here.good("failures")
    assert "nothing to submit" in here.good("plan")
    _go(here, 1)
    here.slurm.until(lambda: here.states()[1] == "done", "its own word does not count")
    _go(here, 2)
    here.wait()
    assert here.starts() == ONCE
    assert set(here.states().values()) == {"done"}, "whatever its script and its job say"


def test_a_run_is_killed_and_its_shell_lives(here: Bench) -> None:
    _kill(here, 1)
    assert here.states() == {1: "failed", 2: "running", 3: "pending"}
    assert "1 killed: left alone for now: it may be alive" in here.good("retry --yes")
    here.age(15)
    assert "1 killed: again as it was" in here.good("retry --yes")
    _go(here, 1)
    here.until_started({1: 2, 2: 1})
    here.slurm.until(lambda: here.states()[1] == "done", "it did not end")


def test_on_this_machine_a_run_without_its_shell_is_told_of_and_not_started_again(tmp_path: Path) -> None:
    runs = fake.runs(fake.checkout(tmp_path, {1: "go"}), 1)

    class Killer(Lines):
        """Kills the shell as soon as main.py works."""

        def beat(self, slot: int, run: Run) -> None:
            if (run.folder.path / "started").exists():
                lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in fake.processes(tmp_path)}
                os.kill(next(pid for pid, line in lines.items() if b"run.sh" in line), signal.SIGKILL)
                time.sleep(0.1)

    try:
        assert "run.sh ended (killed by signal 9), and the run itself goes on" in summary(run_all(runs, 1, Killer(1)))
        assert "not started: " in summary(run_all(runs, 1, Lines(1)))
    finally:
        (runs[0].folder.path / "go").touch()
    fake.until(lambda: runs[0].state().word == "done", "it did not end")
    assert (runs[0].folder.path / "started").read_text() == "x"


def test_a_process_that_goes_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> bytes:
        raise ProcessLookupError(3, "No such process")

    assert process_alive(socket.gethostname(), os.getpid()) is True
    monkeypatch.setattr(Path, "read_bytes", gone)
    assert process_alive(socket.gethostname(), os.getpid()) is False
