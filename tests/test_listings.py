"""Every command that lists something prints one JSON document, and tables are the same in every format."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import grid_run
from analysis.__main__ import main as analyse
from files import tables
from grid.commands import states
from tests.analysis.conftest import measured, write_run

__all__ = ["write_run"]  # a fixture

KEPT = sorted(path.parent for path in Path(__file__).parents[1].glob("results/*/*/status.json"))  # runs
# command -> arguments of an example, and the keys of its document (of the first record, where it is a list)
LISTINGS = {
    "list": ("demo", {"grid", "run_name", "experiments", "points", "summary"}),
    "show": ("demo demo", {"sweep", "what", "points", "experiments"}),
    "plan": ("demo demo", {"sweep", "code", "states", "problems", "submit", "cancel", "arrays"}),
    "status": ("demo demo", {"counts", "runs", "notes"}),
    "failures": ("demo demo", {"failures", "notes"}),
    "diff": (f"{KEPT[0]} {KEPT[1]}", {"runs", "different", "results"}),
    "prune": ("demo demo", {"folder", "runs"}),
    "collect": ("demo demo", {"run", "label", "state", "step", "setting.method"}),
}
ACTIONS = {"dry-run", "submit", "run", "logs", "retry", "cancel", "pjobs"}  # what they print is a log of what they do
ANALYSIS = {
    "table": ("demo", {"sweep", "rows", "notes", "files"}),
    "dgc": ("", {"trained on", "resnet50 paper", "resnet50 ours"}),
    "smaq": ("", {"format"}),
    "predict": ("--workers 8 --bandwidth 1G", {"workers", "bandwidth_bit_s", "method", "step_s", "collective"}),
}


def keys(text: str) -> set[str]:
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return set(document[0] if isinstance(document, list) else document)


def test_every_command_is_a_listing_or_an_action() -> None:
    assert set(LISTINGS) | ACTIONS == set(grid_run.COMMANDS)
    assert not set(LISTINGS) & ACTIONS


@pytest.mark.parametrize("command", LISTINGS)
def test_listings_of_the_grid(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, wanted = LISTINGS[command]
    (tmp_path / "main.py").write_text("")
    assert grid_run.main([command, *shlex.split(words), "--json"], tmp_path) in (0, 1)
    assert wanted <= keys(capsys.readouterr().out)


def test_one_experiment_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(shlex.split("show demo demo 1 --json"), tmp_path) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["script"].startswith("#!/")
    assert found["config"]["seed"] == found["seed"]


def test_a_document_is_of_one_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(shlex.split("status demo demo --json --watch"), tmp_path) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", ANALYSIS)
def test_listings_of_the_analysis(
    command: str,
    write_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run("demo", {"method": "alq"}, measured(3.0, (0, 50)))
    monkeypatch.chdir(tmp_path)
    words, wanted = ANALYSIS[command]
    assert analyse([command, *shlex.split(words), "--json"]) == 0
    assert wanted <= keys(capsys.readouterr().out)


# --- formats ------------------------------------------------------------------------------------------------------

ROWS = [
    {"run": "a_1", "loss": 0.5, "step": 3, "layers": [1, 2], "symmetric": True, "data": None, "mixed": 1},
    {"run": 'b "2", ', "loss": math.nan, "step": 4, "symmetric": False, "mixed": "two"},
]


def test_rows_as_csv_and_json() -> None:
    read = list(csv.DictReader(io.StringIO(tables.encoded(ROWS, "csv").decode())))
    assert [row["run"] for row in read] == ["a_1", 'b "2", ']
    assert read[0]["layers"] == "[1, 2]"
    assert [row["symmetric"] for row in read] == ["true", "false"]
    assert (read[0]["data"], read[1]["data"]) == ("null", "")
    first, second = json.loads(tables.encoded(ROWS, "json"))
    assert first == ROWS[0]
    assert second == {**dict.fromkeys(ROWS[0]), **ROWS[1], "loss": None}


def test_rows_as_latex() -> None:
    lines = tables.encoded(ROWS, "latex", ["run", "step", "layers"]).decode().splitlines()
    assert lines[1:] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"run & step & layers \\",
        r"\midrule",
        r"a\_1 & 3 & [1, 2] \\",
        r'b "2",  & 4 &  \\',
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_rows_as_parquet() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    read = parquet.read_table(io.BytesIO(tables.encoded(ROWS, "parquet"))).to_pylist()
    assert read[0] == {**ROWS[0], "mixed": "1"}
    assert (read[1]["step"], read[1]["layers"], read[1]["mixed"]) == (4, None, "two")


@pytest.mark.parametrize("command", ["collect", "table", "all"])
def test_parquet_without_pyarrow_is_a_sentence_before_any_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is looked at: the sweep of the others does not exist."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(states, "looked_at", None)
    if command == "collect":
        code = grid_run.main(shlex.split("collect demo demo --format parquet"), tmp_path)
    else:
        code = analyse([command, "none", "--runs", str(tmp_path), "--format", "csv", "parquet"])
    assert code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs pyarrow, which is not installed" in said


@pytest.mark.parametrize("form", ["csv", "json", "latex"])
def test_collect_writes_every_format(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(["collect", "demo", "demo", "--format", form], tmp_path) == 0
    path = tmp_path / "runs" / "demo" / f"runs.{tables.FORMATS[form]}"
    assert f"wrote {path}: 30 runs" in capsys.readouterr().out
    assert grid_run.main(["collect", "demo", "demo", "--format", form, "--out", "-"], tmp_path) == 0
    assert capsys.readouterr().out == path.read_text()
