"""The event files of runs: merging of attempts, several processes, parts."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from analysis.logs import parts, reading
from analysis.logs.reading import Files, merged, read_all, read_runs
from tests.analysis.logs.event_files import event_file


def one_by_one(files: list[list[int]]) -> list[list[int]]:
    """The merge rule said slowly: when a file begins at step s, everything after s from before it goes."""
    kept: list[list[int]] = []
    for steps in files:
        if steps:
            kept = [[step for step in earlier if step <= min(steps)] for earlier in kept]
        kept.append(steps)
    return kept


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=6))
def test_merging_follows_the_rule_for_any_interruptions(files: list[list[int]]) -> None:
    step = np.array([step for steps in files for step in steps], np.int64)
    file = np.repeat(np.arange(len(files)), [len(steps) for steps in files])
    stay = merged(step, file, step % 2, np.ones(len(files), bool))
    found = [step[stay & (file == index)].tolist() for index in range(len(files))]
    assert found == one_by_one(files)


@given(st.lists(st.integers(0, 100), max_size=5), st.integers(1, 100))
def test_a_run_resumed_from_checkpoints_reads_like_one_that_was_not_stopped(stops: list[int], last: int) -> None:
    """Each attempt logs from its checkpoint to where it is stopped; the merged steps are 0 .. last, only first steps of
    attempts twice.
    """
    rows, begin = [], 0
    for attempt, stop in enumerate([*stops, last]):
        stop = last if attempt == len(stops) else min(stop, last)
        rows += [(attempt, step) for step in range(begin, stop + 1)]
        begin = max(begin, stop // 10 * 10) if stop >= begin else begin
    file, step = np.array(rows, np.int64).T
    number = np.unique(file, return_inverse=True)[1]
    stay = merged(step, number, step % 2, np.ones(number.max() + 1, bool))
    found, times = np.unique(step[stay], return_counts=True)
    assert found.tolist() == list(range(last + 1))
    assert {int(one) for one in found[times > 1]} <= {int(step[file == one].min()) for one in np.unique(file)[1:]}


def test_what_led_to_a_checkpoint_stays_where_the_next_attempt_begins_with_a_measurement(tmp_path: Path) -> None:
    first = [("loss", 4, 0.5), ("Vacc", 4, 90.0), ("est_var", 4, 3.0), ("loss", 5, 0.25), ("loss", 6, 0.75)]
    files = write(tmp_path / "run", [first, [("est_var", 4, 3.0), ("loss", 5, 0.25)]])
    part, *_ = read_runs([files])
    assert told(part) == [
        {("loss", 4): (0, 0.5), ("Vacc", 4): (0, 90.0), ("est_var", 4): (1, 3.0), ("loss", 5): (1, 0.25)}
    ]


Attempts = list[list[tuple[str, int, float]]]
row = st.tuples(st.sampled_from(["a", "b", "cc"]), st.integers(0, 300), st.integers(0, 9).map(float))


def last_word(attempts: Attempts) -> dict[tuple[str, int], tuple[int, float]]:
    """(tag, step) -> (attempt, value): the rule said slowly, for files of several tags."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for attempt, rows in enumerate(attempts):
        first = min((step for _, step, _ in rows), default=1 << 60)
        found = {key: kept for key, kept in found.items() if key[1] <= first}
        found |= {(tag, step): (attempt, value) for tag, step, value in rows}
    return found


def write(folder: Path, attempts: Attempts) -> Files:
    folder.mkdir()
    paths = []
    for attempt, rows in enumerate(attempts):
        paths.append(folder / f"events.out.tfevents.1.a{attempt}")
        paths[-1].write_bytes(event_file(rows))
    return Files([str(path) for path in paths], sum(path.stat().st_size for path in paths), {})


def told(part: parts.Part) -> list[dict[tuple[str, int], tuple[int, float]]]:
    """The content of a part, run by run; its rows must be in order."""
    found: list[dict[tuple[str, int], tuple[int, float]]] = [{} for _ in range(part.num_runs)]
    at, keys = 0, []
    for run, tag, attempt, count in part.spans.tolist():
        for number in range(at, at + count):
            found[run][(part.tags[tag], int(part.step[number]))] = (attempt, float(part.value[number]))
            keys.append((run, part.tags[tag], int(part.step[number])))
        at += count
    assert keys == sorted(set(keys))
    assert at == len(part.step) == len(part.wall_time) == len(part.value)
    return found


@given(st.lists(st.lists(st.lists(row, max_size=12), max_size=4), max_size=4))
@example([[], [[("a", 0, 0.0)], [("b", 0, 0.0)]]])  # as many files as runs, and yet one of them has two
@settings(max_examples=60, deadline=None)
def test_files_of_any_interruptions_merge_by_the_rule(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Attempts]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    files = [write(folder / str(number), attempts) for number, attempts in enumerate(runs)]
    part, damage, _ = read_runs(files)
    assert told(part) == [last_word(attempts) for attempts in runs]
    assert damage == [[] for _ in runs]


def test_other_names_for_tags_of_some_runs(tmp_path: Path) -> None:
    theirs = write(tmp_path / "0", [[("acc/test_top1", 1, 90.0), ("Vacc", 2, 91.0), ("z", 1, 1.0)]])
    ours = write(tmp_path / "1", [[("acc/test_top1", 1, 90.0)]])
    part, *_ = read_runs([theirs._replace(names={"acc/test_top1": "Vacc"}), ours])
    assert told(part) == [
        {("Vacc", 1): (0, 90.0), ("Vacc", 2): (0, 91.0), ("z", 1): (0, 1.0)},
        {("acc/test_top1", 1): (0, 90.0)},
    ]


Logged = list[tuple[str, int, float, float]]


def two_writers(folder: Path, first: Logged, second: Logged, begun: float = 1.0) -> tuple[dict, list[str]]:
    """What is read of a folder into which somebody else's two writers wrote, the second one from ``begun`` on."""
    for name, rows, at in (("events.out.tfevents.1.host", first, 0.0), ("events.out.tfevents.2.host", second, begun)):
        (folder / name).write_bytes(event_file(rows, at))
    part, damage, remarks = read_runs([Files([str(path) for path in sorted(folder.iterdir())], 1, {})])
    assert damage == [[]]
    return {key: value for key, (_, value) in told(part)[0].items()}, remarks[0]


def test_two_writers_of_one_folder_at_the_same_time_both_count(tmp_path: Path) -> None:
    losses = [("loss", step, 1.0, 10.0 + step) for step in range(10)]
    found, remarks = two_writers(tmp_path, losses, [("Vloss", 0, 2.0, 10.5), ("Vloss", 5, 2.0, 15.5)])
    assert found == {("loss", step): 1.0 for step in range(10)} | {("Vloss", 0): 2.0, ("Vloss", 5): 2.0}
    assert remarks == []


def test_of_two_writers_at_the_same_time_the_later_event_counts_and_it_is_said(tmp_path: Path) -> None:
    first = [("loss", 1, 1.0, 10.0), ("loss", 2, 1.0, 30.0), ("loss", 3, 1.0, 31.0)]
    found, remarks = two_writers(tmp_path, first, [("loss", 1, 2.0, 20.0), ("loss", 2, 2.0, 21.0)])
    assert found == {("loss", 1): 2.0, ("loss", 2): 1.0, ("loss", 3): 1.0}
    assert [("loss" in remark and "2" in remark) for remark in remarks] == [True]


def test_a_file_without_events_does_not_part_two_writers_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"")
    losses = [("loss", step, 1.0, 10.0 + step) for step in range(10)]
    found, remarks = two_writers(tmp_path, losses, [("loss", 0, 2.0, 10.5)])
    assert found == {("loss", step): 1.0 for step in range(10)} | {("loss", 0): 2.0}
    assert len(remarks) == 1


def test_a_writer_that_begins_after_the_other_has_ended_is_a_run_that_goes_on(tmp_path: Path) -> None:
    first = [("loss", step, 1.0, 10.0 + step) for step in range(5)]
    found, remarks = two_writers(tmp_path, first, [("loss", 2, 2.0, 21.0)], begun=20.0)
    assert (found, remarks) == ({("loss", 0): 1.0, ("loss", 1): 1.0, ("loss", 2): 2.0}, [])


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host", "events.out.tfevents.1.host.a1"])
def test_writers_of_different_tags_both_count_whenever_they_write(tmp_path: Path, name: str) -> None:
    """Also beside an attempt of ours, whose file is taken to be the later one."""
    (tmp_path / name).write_bytes(event_file([("loss", step, 1.0, 10.0 + step) for step in range(10)], 0.0))
    later = [("Vloss", step, 2.0, 100.0 + step) for step in (0, 5, 9)]
    (tmp_path / "events.out.tfevents.2.host.eval").write_bytes(event_file(later, 99.0))
    files = sorted(tmp_path.iterdir(), key=lambda path: reading.attempt(path.name))
    part, *_ = read_runs([Files([str(path) for path in files], 1, {})])
    found = set(told(part)[0])
    assert found == {("loss", step) for step in range(10)} | {("Vloss", step) for step in (0, 5, 9)}


def test_our_own_attempts_follow_one_another_whatever_their_clocks_say(tmp_path: Path) -> None:
    files = write(tmp_path / "run", [[("loss", 1, 1.0), ("loss", 2, 1.0)], [("loss", 1, 2.0)]])  # all at one time
    part, _, remarks = read_runs([files])
    assert (told(part), remarks) == ([{("loss", 1): (1, 2.0)}], [[]])


def test_values_without_a_step_and_values_that_are_no_scalars_are_told(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    for value in range(3):
        writer.add_scalar("loss", float(value))
    writer.add_text("remark", "hello", 1)
    writer.add_histogram("levels", np.arange(9.0), 1)  # has figures of its own
    writer.close()
    part, _, (remarks,) = read_runs([Files([str(next(tmp_path.iterdir()))], 1, {})])
    assert told(part) == [{("loss", 0): (0, 2.0)}]
    assert len(remarks) == 2 and not any("levels" in each for each in remarks)
    assert any("loss" in each and "3 values" in each for each in remarks) and any("remark" in each for each in remarks)


def test_tags_of_others_that_nothing_reads_are_told(tmp_path: Path) -> None:
    rows = [(tag, 0, 1.0) for tag in ("val/f1", "levels/3", "levels/x", "Vacc", "epoch", "lr_groups")]
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(rows))
    (tmp_path / "events.out.tfevents.1.host.a1").write_bytes(event_file([("bits", 0, 3.0)]))  # ours, for TensorBoard
    _, _, (remarks,) = read_runs([Files([str(path) for path in sorted(tmp_path.iterdir())], 1, {})])
    (remark,) = [each for each in remarks if "reads" in each]
    assert {word for word in re.split("[ ,]+", remark) if "/" in word or "_" in word} == {
        "val/f1",
        "levels/x",
        "lr_groups",
    }


@pytest.mark.parametrize("helpers", ["help", "cannot start", "die"])
def test_several_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helpers: str) -> None:
    rng = np.random.default_rng(0)
    runs: list[Attempts] = [
        [[("a", step, float(rng.integers(9))) for step in range(9)], [("b", 5, 1.0)]] for _ in range(12)
    ]
    files = [write(tmp_path / str(number), attempts) for number, attempts in enumerate(runs)]
    Path(files[3].paths[0]).write_bytes(Path(files[3].paths[0]).read_bytes()[:-1])
    monkeypatch.setattr(reading, "_PORTION_BYTES", 500)
    monkeypatch.setattr(reading, "num_cores", lambda: 3)
    if helpers != "help":
        monkeypatch.setattr(reading.sys, "executable", "/nowhere" if helpers == "cannot start" else "/bin/false")
    work, called = tmp_path / "work", []
    work.mkdir()
    if helpers == "die":  # with portions that they had claimed
        (work / "1.claimed").touch()
        (work / "4.claimed").touch()
    found = read_all(files, work, lambda: called.append(1))
    alone = read_all(files)
    assert told(parts.joined([(one.part, one.run) for one in found])) == told(
        parts.joined([(one.part, one.run) for one in alone])
    )
    assert [one.damage for one in found] == [one.damage for one in alone]
    assert [number for number, one in enumerate(found) if one.damage] == [3]
    assert called == [1]


def test_a_part_comes_back_from_its_files_and_a_damaged_one_does_not(tmp_path: Path) -> None:
    part, *_ = read_runs(
        [write(tmp_path / "r", [[("a", step, 1.0) for step in range(100)]]), write(tmp_path / "q", [[("b", 3, 2.0)]])]
    )
    pieces = [(part, 1), (part, 0), (parts.empty(1), 0)]
    parts.write(tmp_path, "p", pieces)
    back = parts.opened(tmp_path, "p")
    assert back is not None
    assert told(back) == told(parts.joined(pieces)) == [*reversed(told(part)), {}]
    assert parts.joined([(back, 0), (back, 1)]).value.base is not None  # a view
    back.value[0] = 9.0  # stays here
    for path in sorted(tmp_path.glob("p.*")):
        sound = path.read_bytes()
        for bad in (
            b"",
            sound[:-1],
            sound[: len(sound) // 2],
            sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:],
            b"x" + sound[1:],
        ):
            path.unlink()
            path.write_bytes(bad)
            assert parts.opened(tmp_path, "p") is None
        path.unlink()
        assert parts.opened(tmp_path, "p") is None
        path.write_bytes(sound)
        assert parts.opened(tmp_path, "p") is not None
