"""A sweep as tables: merging of attempts, settings, states, what is reported."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import args
from analysis.load import load, merged
from tests.analysis.conftest import measured, write_events


def one_by_one(files: list[list[int]]) -> list[list[int]]:
    """The merge rule said slowly: when a file begins at step s, everything at or after s from before it goes."""
    kept: list[list[int]] = []
    for steps in files:
        if steps:
            kept = [[step for step in earlier if step < min(steps)] for earlier in kept]
        kept.append(steps)
    return kept


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=6))
def test_merging_follows_the_rule_for_any_interruptions(files: list[list[int]]) -> None:
    step = np.array([step for steps in files for step in steps], np.int64)
    file = np.repeat(np.arange(len(files)), [len(steps) for steps in files])
    stay = merged(step, file)
    found = [step[stay & (file == index)].tolist() for index in range(len(files))]
    assert found == one_by_one(files)


@given(st.lists(st.integers(0, 100), max_size=5), st.integers(1, 100))
def test_a_run_resumed_from_checkpoints_reads_like_one_that_was_not_stopped(stops: list[int], last: int) -> None:
    """Each attempt logs from its checkpoint to where it is stopped; the merged steps are 0 .. last, once each."""
    rows, begin = [], 0
    for attempt, stop in enumerate([*stops, last]):
        stop = last if attempt == len(stops) else min(stop, last)
        rows += [(attempt, step) for step in range(begin, stop + 1)]
        begin = max(begin, stop // 10 * 10) if stop >= begin else begin
    file, step = np.array(rows, np.int64).T
    stay = merged(step, np.unique(file, return_inverse=True)[1])
    assert sorted(step[stay].tolist()) == list(range(last + 1))


def test_attempts_merge_by_number_not_by_name(write_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_run("s", {}, [("loss", step, 1.0) for step in (0, 10, 20, 30)])
    write_events(folder, [("loss", 20, 10.0), ("loss", 40, 10.0)], attempt=10)
    write_events(folder, [("loss", 10, 2.0), ("loss", 20, 2.0)], attempt=9)
    rows = load(tmp_path / "runs", "s").scalars
    assert list(zip(rows["step"], rows["value"], strict=True)) == [(0, 1.0), (10, 2.0), (20, 10.0), (40, 10.0)]


def test_settings_are_flat_and_joined_on_demand(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "method.bits": 2, "seed": 7, "schedule": "step"}, [("loss", 0, 1.0)])
    write_run("s", {"method": "sgd"}, [("loss", 0, 2.0)])
    logs = load(tmp_path / "runs", "s")
    joined = logs.joined("method.name", "method.bits", "schedule.at").set_index("method.name")
    assert joined.loc["alq", "value"] == 1.0
    assert joined.loc["alq", "method.bits"] == 2
    assert joined.loc["alq", "schedule.at"] == (40000, 60000)
    assert np.isnan(joined.loc["sgd", "method.bits"])


def test_runs_older_than_a_setting_had_its_default(write_run: Callable[..., Path], tmp_path: Path) -> None:
    older = write_run("s", {}, [("loss", 0, 1.0)]) / "config.yaml"
    config = yaml.safe_load(older.read_text())
    del config["exchange"]
    older.write_text(yaml.safe_dump(config))
    write_run("s", {"exchange.collective": "two_stage"}, [("loss", 0, 1.0)])
    assert sorted(load(tmp_path / "runs", "s").settings["exchange.collective"]) == ["gather", "two_stage"]


@pytest.mark.parametrize(
    ("state", "last", "complete"),
    [("done", 5, True), ("running", 1000, False), ("failed", 5, False), ("diverged", 5, False), (None, 5, False), (None, 1000, True)],
)
def test_completeness(write_run: Callable[..., Path], tmp_path: Path, state: str | None, last: int, complete: bool) -> None:
    write_run("s", {"steps": 1000}, [("loss", 0, 1.0), ("loss", last, 1.0)], state=state)
    status = load(tmp_path / "runs", "s").status.iloc[0]
    assert bool(status["complete"]) is complete
    assert status["step"] == last
    assert bool(status["seconds"] == 12.5) is (state is not None)


def test_damage_and_missing_parts_are_told_and_not_fatal(write_run: Callable[..., Path], tmp_path: Path) -> None:
    sound = write_run("s", {"seed": 1}, [("loss", step, 1.0) for step in range(4)])
    cut = write_run("s", {"seed": 2}, [("loss", step, 1.0) for step in range(4)])
    silent = write_run("s", {"seed": 3})
    nameless = write_run("s", {"seed": 4}, [("loss", 0, 1.0)])
    (cut / "status.json").write_text("{")
    (nameless / "config.yaml").unlink()
    (events,) = cut.glob("events.*")
    events.write_bytes(events.read_bytes()[:-3])
    logs = load(tmp_path / "runs", "s")
    counts = logs.scalars["run"].value_counts()
    assert (counts[sound.name], counts[cut.name], counts[nameless.name]) == (4, 3, 1)
    text = "\n".join(logs.notes)
    assert f"{cut.name}: {events.name} is cut off or damaged after record 4" in text
    assert f"{cut.name}: status.json cannot be read" in text
    assert f"{nameless.name}: no config.yaml" in text
    assert f"1 of 4 runs have logged nothing: {silent.name}" in text
    assert len(logs.notes) == 4


def test_an_unknown_sweep_names_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no sweep 'dmo' in .*; did you mean 'demo'\? \(found: demo\)"):
        load(tmp_path, "dmo")
    with pytest.raises(FileNotFoundError, match=r"found: none"):
        load(tmp_path / "nothing", "demo")


def test_an_empty_sweep_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    logs = load(tmp_path, "demo")
    assert (len(logs.scalars), len(logs.settings), logs.notes) == (0, 0, ())


def test_thirty_runs_load_in_about_a_second(tmp_path: Path) -> None:
    first = tmp_path / "runs" / "s" / "run0"
    first.mkdir(parents=True)
    events = write_events(first, [(f"tag{k}", step, 0.5) for step in range(100) for k in range(15)]).read_bytes()
    config = yaml.safe_dump(args.resolve({}))
    for index in range(30):
        folder = first.with_name(f"run{index}")
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(config)
        (folder / "events.out.tfevents.1.host.a1").write_bytes(events)
    (first / "events.out.tfevents.1.host.a1").unlink()
    begin = time.perf_counter()
    logs = load(tmp_path / "runs", "s")
    assert time.perf_counter() - begin < 3  # a tenth of that on an idle machine
    assert len(logs.scalars) == 30 * 15 * 100


def test_neither_torch_nor_train_is_imported() -> None:
    code = (
        "import sys, analysis.__main__, analysis.figures, analysis.tables; print({'torch', 'train', 'matplotlib.pyplot'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"


def test_measured_runs_have_every_tag_of_the_figures() -> None:
    assert {tag for tag, *_ in measured(2.0, [0])} >= {"est_var", "super_var", "nb_error", "Vloss", "Tloss", "Vacc"}
