"""The cache between loads: a cached load gives what an uncached one gives, whatever changed in between, and whatever
became of the cache.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.logs import cache, events, load, parts, reading
from analysis.logs.load import Logs
from files import plain
from tests.analysis.logs.event_files import event_file, scalar

CHANGES = (
    "append",
    "cut",
    "attempt",
    "new run",
    "delete run",
    "touch",
    "config",
    "status",
    "rewrite",
    "remove file",
    "nested",
)


def same(one: Logs, other: Logs) -> None:
    pd.testing.assert_frame_equal(one.scalars, other.scalars)
    pd.testing.assert_frame_equal(one.settings, other.settings)
    pd.testing.assert_frame_equal(one.status, other.status)
    assert one.notes == other.notes
    assert one.tags == other.tags


class Changing:
    """A sweep that changes; every change has a time of its own, long ago, so that the cache is believed."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.sweep, self.clock = folder, folder / "s", 1_000_000_000
        self.sweep.mkdir(parents=True)

    def put(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.clock += 10
        os.utime(path, (self.clock, self.clock))

    def change(self, kind: str, pick: Callable[[int], int]) -> None:
        folders = sorted(path for path in self.sweep.rglob("*") if path.is_dir())
        new = self.sweep / f"r{pick(6)}"
        folder = folders[pick(len(folders))] if folders else new
        files = sorted(folder.glob("events.*"))
        path = files[pick(len(files))] if files else folder / "events.out.tfevents.1.a1"
        before = path.read_bytes() if path.exists() else b""
        tag, step = "abcd"[pick(4)], pick(300)
        if kind == "append":
            self.put(path, before + scalar(tag, step, float(pick(9))))
        elif kind == "cut" and before:
            self.put(path, before[: pick(len(before))])
        elif kind == "attempt":
            self.put(
                folder / f"events.out.tfevents.1.a{pick(4)}", event_file([(tag, step + k, 1.0) for k in range(pick(3))])
            )
        elif kind in ("new run", "nested"):
            deeper = new / "x" if kind == "nested" else new
            self.put(deeper / "events.out.tfevents.1.a1", event_file([("a", k, float(k)) for k in range(pick(5))]))
        elif kind == "delete run" and folders:
            shutil.rmtree(folder)
        elif kind == "touch" and files:
            self.put(path, before)
        elif kind == "config":
            seed = [1, 0.5, [1, [2]], None, "x", float("nan")][pick(6)]
            self.put(
                folder / "config.yaml",
                yaml.safe_dump({"seed": seed, "method": {"name": "alq"}, "steps": pick(300)}).encode(),
            )
        elif kind == "status":
            self.put(
                folder / "status.json",
                [b'{"state": "done", "seconds": 3}', b'{"state": "running"}', b"{", b"[]"][pick(4)],
            )
        elif kind == "rewrite" and before:
            self.put(path, before[:-16] + bytes(16))
        elif kind == "remove file" and files:
            path.unlink()


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.booleans()), min_size=1, max_size=25),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_a_cached_load_is_the_uncached_one_after_any_changes(tmp_path_factory, changes, random) -> None:
    sweep = Changing(tmp_path_factory.mktemp("c"))
    for kind, look in [*changes, ("touch", True)]:
        sweep.change(kind, random.randrange)
        if look:
            same(load.load(sweep.runs, "s"), load.load(sweep.runs, "s", cache=False))


@pytest.fixture
def sweep(tmp_path: Path) -> Changing:
    """Three runs that were loaded once."""
    made = Changing(tmp_path / "runs")
    for number in range(3):
        folder = made.sweep / f"r{number}"
        made.put(folder / "events.out.tfevents.1.a1", event_file([("a", k, float(k)) for k in range(20)]))
        made.put(folder / "config.yaml", f"seed: {number}".encode())
        made.put(folder / "status.json", b'{"state": "done", "seconds": 2.5}')
    load.load(made.runs, "s")
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The run files that are read from now on."""
    names: list[str] = []

    def noted(call):
        def read(path, *rest, **more):
            if ".cache" not in path.parts:
                names.append(f"{path.parent.name}/{path.name}")
            return call(path, *rest, **more)

        return read

    monkeypatch.setattr(plain, "opened", noted(plain.opened))
    return names


def test_only_what_changed_is_read_again(sweep: Changing, opened: list[str]) -> None:
    before = (sweep.runs / ".cache" / "s.sweep" / "index.json").stat()
    load.load(sweep.runs, "s")
    assert opened == []
    assert (sweep.runs / ".cache" / "s.sweep" / "index.json").stat().st_ino == before.st_ino  # not written either
    path = sweep.sweep / "r1" / "events.out.tfevents.1.a1"
    content = path.read_bytes()
    opened.clear()
    sweep.put(path, content + scalar("a", 20, 1.0))
    assert load.load(sweep.runs, "s").status.loc["r1", "step"] == 20
    assert opened == ["r1/events.out.tfevents.1.a1"]
    opened.clear()
    sweep.put(sweep.sweep / "r2" / "status.json", b'{"state": "failed"}')
    assert load.load(sweep.runs, "s").status.loc["r2", "state"] == "failed"
    assert opened == ["r2/status.json"]


def test_a_file_that_changed_just_now_is_read_again(sweep: Changing) -> None:
    """Two changes within a tick of the clock of the file system leave neither another time nor another size."""
    path = sweep.sweep / "r0" / "status.json"
    path.write_text('{"state": "done", "seconds": 3.5}')
    assert load.load(sweep.runs, "s").status.loc["r0", "seconds"] == 3.5
    about = path.stat()
    path.write_text('{"state": "done", "seconds": 4.5}')
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert load.load(sweep.runs, "s").status.loc["r0", "seconds"] == 4.5


def test_a_file_that_grows_while_it_is_read_is_complete_the_next_time(
    sweep: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = sweep.sweep / "r0" / "events.out.tfevents.1.a1", events.read
    sweep.put(path, path.read_bytes() + scalar("a", 20, 1.0)[:-5])

    def grows(paths):
        found = read(paths)
        sweep.put(path, path.read_bytes() + scalar("a", 20, 1.0)[-5:])
        return found

    monkeypatch.setattr(events, "read", grows)
    logs = load.load(sweep.runs, "s")
    assert logs.status.loc["r0", "step"] == 19
    assert "cut off" in logs.notes[0]
    monkeypatch.setattr(events, "read", read)
    logs = load.load(sweep.runs, "s")
    assert (logs.status.loc["r0", "step"], logs.notes) == (20, ())


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_cache_is_made_anew(tmp_path_factory, data) -> None:
    sweep = Changing(tmp_path_factory.mktemp("c"))
    for number in range(3):
        sweep.put(
            sweep.sweep / f"r{number}" / "events.out.tfevents.1", event_file([("a", k, float(k)) for k in range(9)])
        )
    before = load.load(sweep.runs, "s")
    path = data.draw(st.sampled_from(sorted((sweep.runs / ".cache" / "s.sweep").iterdir())))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    other = bytes([data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))])
    bad = {
        "cut": content[:at],
        "flip": content[:at] + other + content[at + 1 :],
        "gone": None,
        "zeros": bytes(len(content)),
    }
    now = bad[data.draw(st.sampled_from(sorted(bad)))]
    path.unlink()
    if now is not None:
        path.write_bytes(now)
    if (
        path.name != "index.json" or now is None or not _is_json(now)
    ):  # what still reads as an index may say other things
        same(load.load(sweep.runs, "s"), before)
    else:
        load.load(sweep.runs, "s")


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "index", ["[]", "{}", '{"version": 1}', '{"version": 1, "reader": "", "runs": {"r0": {"part": "../x"}}}', "null"]
)
def test_an_index_of_another_make_is_as_none(sweep: Changing, index: str) -> None:
    before = load.load(sweep.runs, "s")
    path = sweep.runs / ".cache" / "s.sweep" / "index.json"
    reader = json.loads(path.read_text())["reader"]
    path.write_text(index.replace('"reader": ""', f'"reader": "{reader}"'))
    same(load.load(sweep.runs, "s"), before)


def test_a_cache_holds_nothing_that_could_run(sweep: Changing) -> None:
    for path in (sweep.runs / ".cache" / "s.sweep").iterdir():
        assert path.suffix in (".json", ".npy")
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)
            array = np.array([print], dtype=object)
            np.save(path, array, allow_pickle=True)
    assert len(load.load(sweep.runs, "s").scalars) == 60


def test_parts_do_not_pile_up(sweep: Changing) -> None:
    folder = sweep.runs / ".cache" / "s.sweep"
    path = sweep.sweep / "r1" / "events.out.tfevents.1.a1"
    for step in range(20, 60):
        sweep.put(path, path.read_bytes() + scalar("a", step, 1.0))
        load.load(sweep.runs, "s")
    names = {item.name.partition(".")[0] for item in folder.glob("*.npy")}
    assert len(names) <= 8
    kept = sum(len(np.load(item)) for item in folder.glob("*.value.npy"))
    assert kept <= 2 * len(load.load(sweep.runs, "s").scalars)
    old, young = folder / "reading-x", folder / "0123456789abcdef.json"
    old.mkdir()
    young.touch()
    os.utime(old, (1, 1))
    sweep.put(path, path.read_bytes() + scalar("a", 99, 1.0))
    load.load(sweep.runs, "s")
    assert (old.exists(), young.exists()) == (False, True)


def test_where_runs_cannot_be_written_the_cache_is_elsewhere_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    made = Changing(tmp_path / "runs")
    made.put(made.sweep / "r" / "events.out.tfevents.1", event_file([("a", 0, 1.0)]))
    (made.runs / ".cache").touch()  # a file where the folder should be
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert load.load(made.runs, "s").notes == load.load(made.runs, "s").notes
    assert [name for name in opened if "events" in name] == ["r/events.out.tfevents.1"]
    (tmp_path / "other").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    logs = load.load(made.runs, "s")
    assert len(logs.scalars) == 1
    assert (
        logs.notes[0]
        == f"no cache: neither {made.runs} nor a folder for caches can be written, so all logs are read each time"
    )


def test_a_full_disk_is_a_sentence(sweep: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep.put(sweep.sweep / "r9" / "events.out.tfevents.1", event_file([("a", k, 1.0) for k in range(50)]))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts.np, "save", full)
    monkeypatch.setattr(reading, "_ALONE_BYTES", 0)  # through files too
    logs = load.load(sweep.runs, "s")
    assert len(logs.scalars) == 110
    assert any("cannot be written (OSError)" in note for note in logs.notes)


@pytest.mark.slow
def test_loads_at_the_same_time_do_not_disturb_each_other(sweep: Changing) -> None:
    path, done = sweep.sweep / "r1" / "events.out.tfevents.1.a1", threading.Event()

    def load_often() -> int:
        count = 0
        while not done.is_set():
            assert len(load.load(sweep.runs, "s").scalars) >= 60
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(load_often) for _ in range(2)]
        for step in range(20, 35):
            with path.open("ab") as file:
                file.write(scalar("a", step, 1.0))
            load.load(sweep.runs, "s")
        done.set()
        assert min(other.result() for other in others) > 0
    same(load.load(sweep.runs, "s"), load.load(sweep.runs, "s", cache=False))


def test_a_sweep_and_its_cache_are_not_taken_for_each_other(sweep: Changing) -> None:
    assert load.sweeps(sweep.runs) == ["s"]
    places = {cache.place(sweep.runs, name) for name in ("s", "s/r0", "..", ".", "S")}
    assert len(places) == 5
    assert {place.parent for place in places if place} == {sweep.runs / ".cache"}


def test_large_loads_go_through_files_and_leave_none(
    sweep: Changing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reading, "_ALONE_BYTES", 0)
    monkeypatch.setattr(reading, "_PORTION_BYTES", 10)
    before = load.load(sweep.runs, "s")
    shutil.rmtree(sweep.runs / ".cache")
    same(load.load(sweep.runs, "s"), before)
    monkeypatch.setattr(load.tempfile, "tempdir", str(tmp_path))
    same(load.load(sweep.runs, "s", cache=False), before)
    assert not [*tmp_path.glob("reading-*"), *sweep.runs.rglob("reading-*")]
