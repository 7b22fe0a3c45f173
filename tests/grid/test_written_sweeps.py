"""``--sweep`` in the place of GRID RUN_NAME: every subcommand takes it, and finds what the others did."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import grid_run
from analysis.logs.load import sweeps
from grid.engine.states import ledger
from grid.engine.submission import planning
from tests.grid import fake
from tests.tiers import few
from tests.virtual_slurm.cluster import Cluster

WORDS = ["method=qsgd,alq", "steps=7", "data=digits"]
FOLDER = "qsgd-alq-600d6645"
TAKING = [name for name, (_, arguments, _) in grid_run.COMMANDS.items() if arguments.startswith("GRID RUN_NAME")]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUQ_PYTHON", sys.executable)
    return fake.checkout(tmp_path / "co")


def test_other_commands_find_what_was_run(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "slurm_is_here", lambda: False)
    assert grid_run.main(["run", "--sweep", *WORDS, "--slots", "2"], root) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"the runs lie in runs/{FOLDER} (python -m analysis report {FOLDER})\n")
    assert said.endswith("2 done\n") and sweeps(root / "runs") == [FOLDER]
    again = ["--sweep", *reversed(WORDS)]
    for words, sentence in (
        (["run", *again], "2 done before"),
        (["status", *again], "2 done"),
        (["logs", "alq", *again], f"runs/{FOLDER}/alq-"),
        (["logs", *again, "--lines", "3", "QSGD"], f"runs/{FOLDER}/qsgd-"),
        (["failures", *again], "no run has failed"),
        (["collect", *again], f"runs/{FOLDER}/runs.csv: 2 runs"),
        (["run", *again, "--seeds", "2"], "2 done, 2 done before"),
        (["plan", *again, "--seeds", "3"], "new    2     2"),
    ):
        assert grid_run.main(words, root) == 0
        assert sentence in capsys.readouterr().out, words
    assert grid_run.main(["plan", *again, "--seeds", "3"], root) == 0
    line = capsys.readouterr().out.splitlines()[-1].partition("on this machine: ")[2]
    assert grid_run.main(shlex.split(line)[2:], root) == 0
    assert capsys.readouterr().out.endswith("2 done, 4 done before\n")


def test_a_name_that_is_taken(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(["run", "--sweep", *WORDS, "--name", "study"], root) == 0
    assert grid_run.main(["status", "--sweep", *WORDS, "--name", "study"], root) == 0
    capsys.readouterr()
    for command in ("run", "status", "plan", "prune"):
        assert grid_run.main([command, "--sweep", *WORDS[:2], "--name", "study"], root) == 2
        assert capsys.readouterr().err == (
            "grid_run.py: runs/study is also the folder of --sweep method=qsgd,alq data=digits steps=7 --name study: "
            "give one of them its own, --name NAME\n"
        )


def test_through_slurm(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.checkout(root, {1: "wait"})
    sweep = ["--sweep", *WORDS, "--name", "study"]
    with Cluster(tmp_path, cpus=8, partitions={"main": "UNLIMITED"}).in_place() as slurm:
        assert grid_run.main(["submit", *sweep], root) == 2
        assert "has been reviewed: python grid_run.py plan --sweep method=qsgd,alq data=" in capsys.readouterr().err
        assert grid_run.main(["plan", *sweep, "--gpus", "0"], root) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert line == "next: python grid_run.py submit --sweep method=qsgd,alq data=digits steps=7 --name study"
        assert grid_run.main(shlex.split(line)[3:], root) == 0
        (item,) = ledger.read_all(root, "study")
        assert item.title == "--sweep method=qsgd,alq data=digits steps=7 --name study"
        slurm.until(lambda: len(list(root.glob("runs/study/*/started"))) == 2, "the runs have not started")
        assert grid_run.main(["status", *sweep, "--now"], root) == 0
        assert "2 running" in capsys.readouterr().out
        assert grid_run.main(["cancel", *sweep, "--yes"], root) == 0
        assert "cancelled 2 scripts" in capsys.readouterr().out


@few(4, "command", TAKING)
def test_every_subcommand_takes_it_and_says_what_is_wrong(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(TAKING) >= 10
    for words, sentence in (
        (["--sweep", "ALQ"], "--sweep ALQ: must be a setting"),
        (["demo", "demo", "--sweep", "method=alq"], "demo demo beside --sweep: a sweep is named by GRID RUN_NAME or"),
        (["demo", "demo", "--name", "x"], "--name x: names what --sweep writes out"),
        (["--sweep", "method=alq", "--name", "../x"], "--name '../x': must be one name"),
        (["--sweep", "method=alq", "--name", "main"], "--sweep method=alq --name main: runs/main is the folder"),
    ):
        assert grid_run.main([command, *words], tmp_path) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"grid_run.py: {sentence}") and error.count("\n") == 1
    for given, missing in (([], "GRID, RUN_NAME"), (["demo"], "RUN_NAME")):
        with pytest.raises(SystemExit) as end:
            grid_run.main([command, *given], tmp_path)
        error = capsys.readouterr().err
        assert end.value.code == 2
        assert f"the following arguments are required: {missing} (or --sweep SETTING=A,B)\n" in error
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_gpus_of_a_type_without_a_number_are_told_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        grid_run.main(["plan", "demo", "--gpus", "a100"], tmp_path)
    told = capsys.readouterr().err
    assert end.value.code == 2 and "'a100'" in told and "a100:2" in told and "_number" not in told
