"""``predict`` asked about runs: seconds to a target against numbers by hand, its files, and its errors."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.__main__ import main
from analysis.prediction import fastest_map
from tests.analysis.conftest import Rows

ENDLESS = "1000000G"


def run_of(size: float, *, accuracy: float = 90.0, seconds: float = 0.4, codec_s: float = 0.0) -> Rows:
    """Rows of a run that evaluates after 10, 20 and 30 steps, and is at this accuracy after 20 and 30."""
    rows: list[tuple[str, int, float]] = []
    for step in (10, 20, 30):
        rows += [("comm/bytes", step, size * step), ("time/step_s", step, seconds + 2 * codec_s)]
        rows += [("time/encode_s", step, codec_s), ("time/decode_s", step, codec_s)]
        rows += [("Vacc", step, accuracy if step > 10 else 10.0), ("Vloss", step, 3.0 - step / 10)]
    return rows


@pytest.fixture
def sweep(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    """SuperSGD in 1 MB a step and ALQ in .1 MB, four workers in one process, whose passes take .1 s each."""
    settings = {"workers": 4, "eval_every": 10}
    write_run("s", {"method": "supersgd", **settings}, run_of(1e6))
    for seed in (1, 2):
        write_run("s", {"method": "alq", "seed": seed, **settings}, run_of(1e5, accuracy=88, codec_s=0.2))
    return tmp_path / "runs" / "s"


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The records of a question, by method, workers, H and bandwidth in Mbit/s."""
    assert main(["predict", *map(str, words), "--latency", "0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {(row["method"], row["workers"], row["every"], row["bandwidth_bit_s"] / 1e6): row for row in rows}


def test_seconds_are_computation_codec_and_bytes(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, sweep, "--bandwidth", "8M")
    dense, alq = found["supersgd", 4, 1, 8.0], found["alq", 4, 1, 8.0]
    assert (dense["steps"], alq["steps"], alq["num_runs"]) == (20, 20, 2)
    assert dense["seconds"] == pytest.approx(20 * (0.1 + 1.5), rel=1e-3)  # a ring of four sends 1.5 times a MB
    assert alq["seconds"] == pytest.approx(20 * (0.1 + 0.2 / 4 + 0.2 + 0.3), rel=1e-3)
    assert alq["speedup"] == pytest.approx(1.6 / 0.65, rel=1e-3)


def test_coded_bf16_is_a_way_of_its_own(
    sweep: Path, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"method": "bf16", "workers": 4, "eval_every": 10}
    write_run("s", {**settings, "method.coding": "rans"}, run_of(3e5))
    (coded,) = (row for (method, *_), row in asked(capsys, sweep, "--bandwidth", "8M").items() if method == "bf16")
    assert coded["label"] == "BF16, rANS" and coded["speedup"] == pytest.approx(1.6 / (0.1 + 0.9), rel=1e-3)
    assert main(["predict", str(sweep), "--bandwidth", "8M"]) == 0
    assert "speed-up over SuperSGD" in capsys.readouterr().out
    write_run("s", settings, run_of(5e5))
    assert main(["predict", str(sweep), "--bandwidth", "8M"]) == 0
    said = capsys.readouterr().out
    assert "speed-up over BF16" in said and "BF16 (packed)" in said and "BF16 (rans)" in said


def test_more_workers_decode_and_send_more(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, sweep, "--bandwidth", "8M", "--workers", "8", "--every", "1,4")
    every_step, in_rounds = found["alq", 8, 1, 8.0], found["alq", 8, 4, 8.0]
    assert every_step["seconds"] == pytest.approx(20 * (0.1 + 0.05 + 0.4 + 0.7), rel=1e-3)
    assert in_rounds["seconds"] == pytest.approx(20 * (0.1 + (0.05 + 0.4 + 0.7) / 4), rel=1e-3)
    assert (every_step["runs_every"], every_step["runs_workers"]) == (1, 4)


def test_a_target_within_a_round_is_reached_at_its_end(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, sweep, "--bandwidth", "8M", "--every", "20,32")
    assert found["alq", 4, 32, 8.0]["steps"] == 20
    assert found["alq", 4, 20, 8.0]["seconds"] == pytest.approx(20 * 0.1 + 0.05 + 0.2 + 0.3, rel=1e-3)
    assert found["alq", 4, 32, 8.0]["seconds"] == pytest.approx(32 * 0.1 + 0.05 + 0.2 + 0.3, rel=1e-3)


def test_runs_with_the_asked_h_give_their_own_steps(
    sweep: Path, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = {"exchange.local_steps": 10, "exchange.outer_lr": 1.0, "eval_every": 10}
    late = [(tag, step, 10.0 if (tag, step) == ("Vacc", 20) else value) for tag, step, value in run_of(1e4)]
    write_run("s", {"method": "alq", "workers": 4, **rounds}, late)
    found = asked(capsys, sweep, "--bandwidth", "8M", "--every", "1,8")
    assert [found["alq", 4, every, 8.0]["steps"] for every in (1, 8)] == [20, 30]
    assert found["alq", 4, 8, 8.0]["runs_every"] == 10
    assert found["supersgd", 4, 8, 8.0]["runs_every"] == 1
    assert asked(capsys, sweep).keys() >= {("alq", 4, every, 10.0) for every in (1, 10)}


def test_runs_without_rounds_are_those_of_every_kind_of_rounds(
    sweep: Path, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = {"method": "alq", "workers": 4, "eval_every": 10, "exchange.local_steps": 10}
    for own in ({}, {"exchange.fragments": 2}, {"exchange.fragments": 5, "exchange.overlap": 1}):
        write_run("s", rounds | own, run_of(1e4))
    assert main(["predict", str(sweep), "--bandwidth", "8M", "--every", "1,10", "--methods", "alq"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "from the logs of 5 runs" in said[0]
    labels = [line.partition("  ")[0] for line in said if line.startswith("ALQ")]
    assert labels == ["ALQ (fragments 1)", "ALQ (fragments 2)", "ALQ (fragments 5), overlap 1"] * 2
    assert not any(line.endswith("*") for line in said)


def test_forks_are_left_out(sweep: Path, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    (parent,) = sweep.glob("supersgd-*")
    forked = {"method": "topk", "workers": 4, "eval_every": 10, "fork.run": str(parent), "fork.at": 10}
    fork = write_run("s", forked, run_of(1e4))
    assert main(["predict", str(sweep), "--bandwidth", "8M"]) == 0
    told = capsys.readouterr()
    assert "note: 1 fork is left out: its steps to a target" in told.err and "TopK" not in told.out
    assert main(["predict", str(fork)]) == 2
    assert "error: all of these runs are forks, whose steps" in capsys.readouterr().err


def test_latency_counts_for_each_round_of_messages_and_each_step_s_losses(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(sweep), "--bandwidth", ENDLESS, "--latency", "1", "--json", "--every", "5"]
    assert main(words) == 0
    found = {row["method"]: row["seconds"] for row in json.loads(capsys.readouterr().out)}
    assert found["alq"] == pytest.approx(20 * 0.1 + 4 * (0.25 + 1) + 20, rel=0.01)
    assert found["supersgd"] == pytest.approx(20 * 0.1 + 4 * 6 + 20, rel=0.01)


def test_the_least_good_run_sets_the_target_and_a_higher_one_is_never_reached(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(sweep), "--bandwidth", "1M,1G"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("To 88.00 % validation accuracy (what the least good run reaches), from the logs of 3")
    assert said[1].startswith("Assumed: ")
    assert "never" not in "".join(said)
    assert main(["predict", str(sweep), "--bandwidth", "1M,1G", "--target", "89", "--workers", "2,4"]) == 0
    said = capsys.readouterr().out
    (_, first, second) = (line.split() for line in said.splitlines() if line.startswith(("ALQ", "To")))
    assert first == second == ["ALQ", "never", "never"]
    assert said.splitlines()[-1].startswith("*: no run of the method has this H and number of workers")
    assert asked(capsys, sweep, "--target", "89")["alq", 4, 1, 10.0]["seconds"] is None
    assert asked(capsys, sweep, "--target", "loss=2")["alq", 4, 1, 10.0]["steps"] == 10


def test_one_run_is_enough_and_draws_its_map(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = sweep.glob("supersgd-*")
    table, picture = tmp_path / "deep" / "table.csv", tmp_path / "map.png"
    words = ["predict", str(run), "--bandwidth", "1M..1G", "--every", "1..16", "--csv", str(table)]
    assert main([*words, "--figure", str(picture)]) == 0
    assert str(picture) in capsys.readouterr().out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 7 * 5
    assert {row["speedup"] for row in rows} == {"1.0"}
    assert picture.stat().st_size > 10_000
    assert picture.with_suffix(".pdf").exists()


def test_the_map_marks_cells_whose_method_has_no_such_runs(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(fastest_map, "saved", lambda figure, _: drawn.append(figure) or [])
    words = ["predict", str(sweep), "--bandwidth", "1M,1G", "--every", "1,2", "--figure", str(tmp_path / "map.png")]
    assert main(words) == 0
    (axes,) = drawn[0].axes
    assert [(text.get_position()[1], text.get_text()[-1]) for text in axes.texts] == [
        *[(0, "x")] * 2,
        *[(1, "*")] * 2,
    ]
    assert "*: steps of runs with another H" in drawn[0].get_suptitle()
