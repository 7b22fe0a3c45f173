"""``python -m analysis``: what it prints, writes and returns."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import commands, figures, restyled
from analysis.__main__ import main
from tests.analysis.conftest import measured


@pytest.fixture
def runs(write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for method, level in (("sgd", 1.0), ("alq", 3.0)):
        write_run("demo", {"method": method, "trajectory": "sgd", "measure.every": 10}, measured(level, (0, 50)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_all_prints_the_table_and_every_path(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restyled, "OURS", restyled.Style(formats=("pdf",)))
    assert main(["all", "demo", "--all"]) == 0
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
        (["table", "../runs/demo"], "error: no sweep '../runs/demo' in runs (found: demo)"),
        (["table", ".."], "error: no sweep '..' in runs (found: demo)"),
        (["report", ""], "error: no sweep '' in runs (found: demo)"),
        (["table", "a" * 300], "error: runs/aaa"),
        (["figures", "demo", "--out", "file"], "error: file/demo: Not a directory"),
        (["report", "demo", "--out", "file"], "error: file/demo: Not a directory"),
    ],
)
def test_wrong_names_exit_2_with_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (runs / "file").write_text("")
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith(message)
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ("runs/.archive", "figures/runs_.archive/demo"),
        ("results", "figures/results/demo"),
        ("/elsewhere/../other", "figures/_other/demo"),
        (".", "figures/{here}/demo"),
        ("results/../runs", "figures/demo"),
        ("linked", "figures/demo"),
    ],
)
def test_another_folder_of_runs_has_its_own_folder_of_figures(runs: Path, given: str, folder: str) -> None:
    (runs / "results").mkdir()
    (runs / "linked").symlink_to("runs")
    options = argparse.Namespace(runs=Path(given), out=None, sweep="demo", where=[])
    assert str(commands.folder_of(options)) == folder.format(here=str(runs).replace("/", "_"))


def test_a_report_of_archived_runs_leaves_the_live_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "demo", "--format", "csv"]) == 0
    before = Path("figures/demo/table.csv").read_text()
    run, archive = next((runs / "runs" / "demo").iterdir()), runs / "runs" / ".archive" / "demo"
    archive.mkdir(parents=True)
    run.rename(archive / run.name)
    assert main(["table", "demo", "--format", "csv", "--runs", "runs/.archive"]) == 0
    assert Path("figures/demo/table.csv").read_text() == before


def test_a_long_selection_has_a_folder_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "demo", "--where", f"method={'alq,' * 100}sgd"]) == 0
    (folder,) = (path for path in (runs / "figures" / "demo").iterdir() if path.is_dir())
    assert len(folder.name) < 120


@pytest.mark.slow
def test_odd_settings_and_names_are_no_traceback(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (path for path in (runs / "runs" / "demo").iterdir())
    for run, lines in (
        (first, "method: {name: 7}\nsteps: many\n"),
        (second, "method: {name: [x, y]}\nschedule: {at: [null, a]}\n"),
    ):
        (run / "config.yaml").write_text(lines)
    first.rename(os.fsdecode(os.fsencode(first.with_name("run")) + b"\xff"))
    assert main(["all", "demo", "--all"]) == main(["report", "demo"]) == 0
    said = capsys.readouterr()
    assert "('x', 'y')" in said.out
    assert "Traceback" not in said.err


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
        f"note: 1 of 1 runs has logged nothing: {silent.name}",
        "nothing to show: sweep 'silent' has 1 run, none with both settings and logs",
    ]
    nameless = write_run("nameless", {"method": "alq"}, [("Vacc", 0, 1.0)])
    (nameless / "config.yaml").unlink()
    assert main([command, "nameless", "--runs", str(tmp_path / "runs")]) == 1
    assert "no config.yaml" in capsys.readouterr().err


@pytest.mark.slow
def test_what_was_drawn_is_not_drawn_again(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restyled, "OURS", restyled.Style(formats=("pdf",)))
    drawn: list[object] = []
    draw = figures.draw
    monkeypatch.setattr(figures, "draw", lambda wanted, *more: drawn.append(len(wanted)) or draw(wanted, *more))
    for arguments in ([], [], ["--only", "est_var"], ["--only", "est_var"], ["--redraw"], ["--methods", "alq"]):
        assert main(["figures", "demo", *arguments]) == 0
    assert drawn == [4, 1, 4, 4]
    assert capsys.readouterr().err.count("drawn before, and nothing has changed since") == 2


def test_the_table_takes_columns_and_an_order(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "demo", "--columns", "final,bits", "--sort", "bits", "--descending"]) == 0
    head, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["method", "seeds", "final", "acc.", "%", "bits"]
    assert first.startswith("ALQ") and second.startswith("SGD")
    assert main(["table", "demo", "--columns", "final", "final"]) == main(["table", "demo", "--columns", ""]) == 2
    assert (
        capsys.readouterr().err
        == "error: --columns: 'final' is given twice\nerror: --columns: a name must not be empty\n"
    )
    assert main(["table", "demo", "--sort", "bitz"]) == 2
    assert "unknown column 'bitz'; did you mean 'bits'?" in capsys.readouterr().err


def test_a_report_is_one_file(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "demo", "--most-figures", "1", "--where", "method=alq"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == Path("figures/demo/method=alq/report.html")
    assert "1 run with method=alq: 1 done" in path.read_text(encoding="utf-8")
    (runs / "runs" / "empty").mkdir()
    assert main(["report", "empty"]) == 1
    assert capsys.readouterr().err == "nothing to show: sweep 'empty' has no runs\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["watch", "demo", "--every", "0"], "'0': must be a number of seconds from 1 to 86400"),
        (["figures", "demo", "--target", "101"], "'101': must be an accuracy of 0 to 100 percent"),
        (["report", "demo", "--most-figures", "-1"], "'-1': must be a whole number, 0 or more"),
        (["figures", "demo", "--x", "days"], "invalid choice: 'days' (choose from 'step', 'time', 'epoch', 'bytes')"),
    ],
)
def test_wrong_options_exit_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["figures", "table", "all", "report", "watch", "predict"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("where", "way_out"),
    [("method=alq,qsgd", "; method=alq,qsgd,supersgd keeps it"), ("bits=3", None), ("method=alq,qsgd,supersgd", None)],
)
def test_a_selection_without_the_baseline_says_so(
    write_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, way_out: str | None
) -> None:
    for method in ("alq", "qsgd", "supersgd"):
        write_run("s", {"method": method, "steps": 100}, measured(3.0, (0, 50, 100)), step=100, steps=100)
    assert (
        main(["table", "s", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "figures"), "--where", where])
        == 0
    )
    said = capsys.readouterr()
    sentence = f"note: --where leaves out SuperSGD, with which 2 of these runs would be compared{way_out}\n"
    assert (sentence in said.err) == (way_out is not None)
    assert ("vs SuperSGD" in said.out) == (way_out is None)


def test_missing_variance_names_the_setting_that_measures_it(
    write_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured runs are told nothing of it."""
    for method in ("qsgd", "alq"):
        write_run("plain", {"method": method}, [("Vacc", step, step / 2) for step in (0, 10, 20)])
        write_run("measured", {"method": method, "measure.every": 10}, measured(2.0, (0, 10, 20)))
    monkeypatch.chdir(tmp_path)
    for words in (["--list"], ["--only", "est_var"]):
        for sweep in ("plain", "measured"):
            main(["figures", sweep, *words])
            assert ("measure.every" in capsys.readouterr().err) == (sweep == "plain"), (sweep, words)
