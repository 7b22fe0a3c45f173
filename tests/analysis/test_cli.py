"""``python -m analysis``: what it prints, writes and returns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import figures
from analysis.__main__ import main
from tests.analysis.conftest import measured


@pytest.fixture
def runs(write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for method, level in (("sgd", 1.0), ("alq", 3.0)):
        write_run("demo", {"method": method, "trajectory": "sgd", "measure.every": 10}, measured(level, (0, 50)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_prints_the_table_and_every_path(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FORMATS", ("pdf",))
    assert main(["all", "demo"]) == 0
    out = capsys.readouterr().out
    written = {str(path.relative_to(runs)) for path in (runs / "figures").rglob("[!.]*") if path.is_file()}
    assert {"figures/demo/est_var-sgd_trajectory.pdf", "figures/demo/table.csv", "figures/demo/table.tex"} <= written
    assert written <= set(out.splitlines())
    assert "\nALQ " in out


def test_a_selection_is_written_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "demo", "--where", "method=alq", "bits=3"]) == 0
    out = capsys.readouterr().out
    assert "figures/demo/method=alq_bits=3/table.csv" in out
    assert "SGD " not in out.splitlines()[2]
    assert len(out.split("+-: 95")[0].splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "dem"], "error: no sweep 'dem' in runs; did you mean 'demo'? (found: demo)"),
        (["figures", "demo", "--runs", "nowhere"], "error: no sweep 'demo' in nowhere (found: none)"),
        (["table", "demo", "--where", "method=qsgd"], "error: no run with method=qsgd (there are: alq, sgd)"),
        (["table", "demo", "--where", "metod=alq"], "error: unknown setting 'metod'; did you mean 'method'?"),
        (["table", "demo", "--where", "method=["], "error: no run with method=["),
    ],
)
def test_wrong_names_exit_2_with_one_line(runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith(message)
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_unknown_commands_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["draw", "demo"])
    assert stop.value.code == 2
    assert "invalid choice: 'draw'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["figures", "table", "all"])
def test_sweeps_without_anything_to_show_end_in_a_sentence(
    write_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    assert main([command, "empty", "--runs", str(tmp_path / "runs")]) == 1
    assert capsys.readouterr().err == "nothing to show: sweep 'empty' has 0 runs, none with both settings and logs\n"
    silent = write_run("silent", {"method": "alq"}, state=None)
    assert main([command, "silent", "--runs", str(tmp_path / "runs")]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"note: 1 of 1 runs have logged nothing: {silent.name}",
        "nothing to show: sweep 'silent' has 1 run, none with both settings and logs",
    ]
    nameless = write_run("nameless", {"method": "alq"}, [("Vacc", 0, 1.0)])
    (nameless / "config.yaml").unlink()
    assert main([command, "nameless", "--runs", str(tmp_path / "runs")]) == 1
    assert "no config.yaml" in capsys.readouterr().err
