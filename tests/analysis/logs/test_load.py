"""A sweep as tables: merging of attempts, settings, states, what is reported."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from analysis.groups.aggregate import incomplete
from analysis.groups.seed_groups import seed_groups
from analysis.logs import events as events_module
from analysis.logs.load import load
from files import plain
from tests.analysis.conftest import measured, write_events
from tests.analysis.logs.event_files import event_file, scalar


def test_attempts_merge_by_number_not_by_name(write_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_run("s", {}, [("loss", step, 1.0) for step in (0, 10, 20, 30)])
    write_events(folder, [("loss", 20, 10.0), ("loss", 40, 10.0)], attempt=10)
    write_events(folder, [("loss", 10, 2.0), ("loss", 20, 2.0)], attempt=9)
    rows = load(tmp_path / "runs", "s").scalars
    assert list(zip(rows["step"], rows["value"], strict=True)) == [(0, 1.0), (10, 2.0), (20, 10.0), (40, 10.0)]


def test_settings_are_flat(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "method.bits": 2, "seed": 7, "schedule": "step"}, [("loss", 0, 1.0)])
    write_run("s", {"method": "sgd"}, [("loss", 0, 2.0)])
    logs = load(tmp_path / "runs", "s")
    found = logs.settings.set_index("method.name")
    assert found.loc["alq", "method.bits"] == 2
    assert found.loc["alq", "schedule.at"] == (40000, 60000)
    assert np.isnan(found.loc["sgd", "method.bits"])


def test_runs_older_than_a_setting_had_its_default(write_run: Callable[..., Path], tmp_path: Path) -> None:
    older = write_run("s", {}, [("loss", 0, 1.0)]) / "config.yaml"
    config = yaml.safe_load(older.read_text())
    del config["exchange"]
    older.write_text(yaml.safe_dump(config))
    write_run("s", {"exchange.collective": "two_stage"}, [("loss", 0, 1.0)])
    assert sorted(load(tmp_path / "runs", "s").settings["exchange.collective"]) == ["gather", "two_stage"]


def test_runs_older_than_a_setting_of_their_method_had_what_it_then_was(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    """The default has moved since; of another method's runs nothing is said."""
    older = write_run("s", {"method": "qsgdinf"}, [("loss", 0, 1.0)]) / "config.yaml"
    config = yaml.safe_load(older.read_text())
    del config["method"]["rounding"]
    older.write_text(yaml.safe_dump(config))
    write_run("s", {"method": "qsgdinf", "seed": 2}, [("loss", 0, 1.0)])
    write_run("s", {"method": "topk"}, [("loss", 0, 1.0)])
    found = load(tmp_path / "runs", "s").settings.set_index(["method.name", "seed"])["method.rounding"]
    assert (found["qsgdinf", 1], found["qsgdinf", 2]) == ("stochastic", "correlated")
    assert np.isnan(found["topk", 1])


@pytest.mark.parametrize(
    ("state", "last", "complete"),
    [
        ("done", 5, True),
        ("running", 1000, False),
        ("failed", 5, False),
        ("diverged", 5, False),
        (None, 5, False),
        (None, 1000, True),
    ],
)
def test_completeness(
    write_run: Callable[..., Path], tmp_path: Path, state: str | None, last: int, complete: bool
) -> None:
    write_run("s", {"steps": 1000}, [("loss", 0, 1.0), ("loss", last, 1.0)], state=state)
    status = load(tmp_path / "runs", "s").status.iloc[0]
    assert bool(status["complete"]) is complete
    assert status["step"] == last
    assert bool(status["seconds"] == 12.5) is (state is not None)


def test_a_damaged_log_that_ends_early_is_not_complete(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """Its last value is not the final one, whatever the run says of itself."""
    rows = [("Vacc", step, float(step)) for step in (25, 50, 75, 100)]
    cut, whole = (write_run("s", {"steps": 100, "seed": seed}, rows) for seed in (1, 2))
    (path,) = cut.glob("events.*")
    path.write_bytes(path.read_bytes()[:-30])
    logs = load(tmp_path / "runs", "s")
    assert logs.status["complete"].to_dict() == {cut.name: False, whole.name: True}
    assert incomplete(logs) == "1 of 2 runs are incomplete (1 with a damaged log)"


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
    assert f"1 of 4 runs has no config.yaml, so its settings are unknown: {nameless.name}" in text
    assert f"1 of 4 runs has logged nothing: {silent.name}" in text
    assert len(logs.notes) == 4


def test_copies_of_a_run_are_no_further_seeds(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """The newest complete one counts.  Logs of unknown seeds are no copies, however alike they are."""
    rows = [("Vacc", step, float(step)) for step in (50, 100)]
    first, other = (write_run("s", {"steps": 100, "seed": seed}, rows) for seed in (1, 2))
    unfinished = shutil.copytree(first, first.with_name("a"))
    (next(unfinished.glob("events.*"))).write_bytes(event_file([("Vacc", 50, 1.0, 2e9)]))
    (unfinished / "status.json").unlink()
    newest = shutil.copytree(first, first.parent / "moved" / "z")
    (next(newest.glob("events.*"))).write_bytes(event_file([("Vacc", 100, 9.0, 1.9e9)]))
    foreign = first.with_name("f1"), first.with_name("f2")
    for folder in foreign:
        folder.mkdir()
        (folder / "events.out.tfevents.1").write_bytes(event_file([("loss", 1, 1.0)]))
    logs = load(tmp_path / "runs", "s")
    assert set(logs.settings.index) == {other.name, "moved/z", "f1", "f2"}
    assert len([note for note in logs.notes if first.name in note and "moved/z" in note]) == 1
    (group,) = seed_groups(logs.settings)
    assert len(group.runs) == 2
    for folder in foreign:
        shutil.rmtree(folder)
    shutil.rmtree(newest)
    assert set(load(tmp_path / "runs", "s").settings.index) == {first.name, other.name}


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


def test_runs_are_found_in_folders_below_folders(tmp_path: Path) -> None:
    sweep = tmp_path / "s"
    for name in ("b", "a/x", "a/y/z", "a/y/z/too_deep", "own", "own/samples", ".hidden", "nothing"):
        (sweep / name).mkdir(parents=True, exist_ok=True)
        if name != "nothing":
            (sweep / name / "events.out.tfevents.1").write_bytes(event_file([("loss", 1, 2.0)]))
    (sweep / "own" / "status.json").write_text("{}")
    logs = load(tmp_path, "s")
    assert list(logs.settings.index) == ["a/x", "a/y/z", "b", "own"]
    assert logs.folder == sweep
    assert list(logs.of_tag("loss").columns) == ["a/x", "a/y/z", "b", "own"]


def test_a_selection_and_a_tag_are_those_of_the_whole_table(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """``keep``, ``of_tag`` and ``of_tags`` look rows up by run and tag.

    The answers are those of a look at every row.
    """
    nan = float("nan")
    write_run("s", {"seed": 1}, [("a", 0, 1.0), ("b", 0, 2.0), ("a", 5, 3.0)], [("a", 3, 4.0), ("c", 4, nan)])
    write_run("s", {"seed": 2}, [("a", 2, nan), ("a", 5, 6.0), ("b", 7, float("inf"))])
    write_run("s", {"seed": 3}, [("c", 1, 7.0)])
    write_run("s", {"seed": 4})
    logs = load(tmp_path / "runs", "s")
    names = list(logs.settings.index)
    for kept in ([], names, names[:1], names[1:3], [names[2], names[0]], ["nobody"]):
        some = logs.keep(kept)
        rows = logs.scalars.loc[logs.scalars["run"].isin(kept)]
        pd.testing.assert_frame_equal(texts(some.scalars), texts(rows))
        assert list(some.settings.index) == [name for name in names if name in kept]
        assert set(some.tags) == set(rows["tag"])
        for tag in ("a", "b", "c", "d"):
            own = rows.loc[(rows["tag"] == tag) & np.isfinite(rows["value"])]
            expected = texts(own).pivot(index="step", columns="run", values="value")
            pd.testing.assert_frame_equal(some.of_tag(tag), expected, check_column_type=False)
            pd.testing.assert_frame_equal(texts(some.of_tags("c", tag)), texts(rows.loc[rows["tag"].isin(["c", tag])]))


def texts(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype({"run": object, "tag": object}).reset_index(drop=True)


def test_time_between_attempts_is_not_time_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "r"
    folder.mkdir(parents=True)
    for attempt, (begin, steps) in enumerate([(1000.0, range(4)), (9000.0, range(3, 6))], 1):
        content = b"".join(scalar("loss", step, 1.0, begin + step) for step in steps)
        (folder / f"events.out.tfevents.1.a{attempt}").write_bytes(content)
    logs = load(tmp_path, "s")
    assert logs.scalars["attempt"].tolist() == [0, 0, 0, 1, 1, 1]
    assert logs.status.loc["r", "seconds"] == 2 + 2


def test_what_cannot_be_read_is_a_sentence(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run("s", {}, [("loss", 0, 1.0)])
    (events,) = folder.glob("events.*")
    (folder / "events.out.tfevents.9").symlink_to(tmp_path / "nowhere")
    read_bytes, denied = plain.read_bytes, []

    def may(path: Path, most_bytes: int | None) -> bytes:
        if path.name == events.name and not denied:
            denied.append(path)
            raise PermissionError(13, "Permission denied")
        return read_bytes(path, most_bytes)

    monkeypatch.setattr(events_module, "read_bytes", may)
    logs = load(tmp_path / "runs", "s")
    assert logs.notes == (
        f"{folder.name}: {events.name} cannot be read (PermissionError)",
        f"1 of 1 runs has logged nothing: {folder.name}",
    )
    assert load(tmp_path / "runs", "s").notes == ()  # it can be now, and its time is as it was


@pytest.mark.slow
def test_neither_torch_nor_train_is_imported() -> None:
    code = (
        "import sys, analysis.__main__, analysis.figures, analysis.tables.result_table; print({'torch', 'train', "
        "'matplotlib.pyplot'} & {*sys.modules})"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )


def test_measured_runs_have_every_tag_of_the_figures() -> None:
    assert {tag for tag, *_ in measured(2.0, [0])} >= {"est_var", "super_var", "nb_error", "Vloss", "Tloss", "Vacc"}
