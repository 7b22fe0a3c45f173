"""Histograms come back as they were logged, whatever happened to the run."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from analysis.logs.events import read as read_scalars
from analysis.logs.histograms import read
from train.logs.run_log import Log

TAG = "stats/coordinates"
EDGES = np.concatenate([-np.geomspace(1, 1e-3, 80), [0.0], np.geomspace(1e-3, 1, 80)])


def masses(step: int) -> np.ndarray:
    counts = np.random.default_rng(abs(step)).random(len(EDGES) - 1)
    counts[:30] = counts[-20:] = 0
    return counts / counts.sum()


def write(folder: Path, attempt: int, steps: list[int], *, every: int = 1, mark: float = 1.0) -> None:
    """One attempt: a scalar at every step, histograms at some."""
    log = Log(folder, attempt)
    for step in steps:
        log.scalars(step, {"loss": 1.0})
        if step % every == 0:
            log.histogram(step, TAG, EDGES, masses(step) * mark)
            log.histogram(step, "stats/fit", EDGES, masses(step + 1))
    log.finished()  # a record without value and step, which is no step 0
    log.close()


def test_edges_and_counts_come_back_bit_for_bit(tmp_path: Path) -> None:
    write(tmp_path, 1, [0, 1, 127, 128, 300_000])
    found = read(tmp_path, TAG)
    assert [histogram.step for histogram in found] == [0, 1, 127, 128, 300_000]
    for histogram in found:
        np.testing.assert_array_equal(histogram.edges, EDGES)
        np.testing.assert_array_equal(histogram.counts, masses(histogram.step))
    assert [h.counts.tolist() for h in read(tmp_path, "stats/fit")] == [masses(h.step + 1).tolist() for h in found]
    assert read(tmp_path, "stats") == [] == read(tmp_path / "nowhere", TAG)


def test_steps_below_zero_are_steps(tmp_path: Path) -> None:
    write(tmp_path, 1, [-3, -1, 2], every=2)
    assert [histogram.step for histogram in read(tmp_path, TAG)] == [2]
    write(tmp_path, 2, [-2], every=2)
    assert [histogram.step for histogram in read(tmp_path, TAG)] == [-2]


def test_scalars_beside_them_are_read_as_ever(tmp_path: Path) -> None:
    write(tmp_path, 1, [0, 5])
    scalars = read_scalars(sorted(tmp_path.glob("events*")))
    assert (scalars.tags, scalars.step.tolist(), scalars.damage) == (["loss"], [0, 5], {})


@pytest.mark.parametrize("first", [0, 3, 12])
def test_a_later_attempt_wins_from_its_first_step_on(tmp_path: Path, first: int) -> None:
    """Its first step is that of whatever it logged first, here mostly a scalar."""
    write(tmp_path, 1, list(range(11)), every=2)
    write(tmp_path, 2, list(range(first, 13)), every=4, mark=2.0)
    expected = [(step, 1.0) for step in range(0, 11, 2) if step < first] + [
        (step, 2.0) for step in range(first, 13) if step % 4 == 0
    ]
    assert [(h.step, round(h.counts.sum(), 9)) for h in read(tmp_path, TAG)] == expected


@pytest.mark.slow
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_of_a_damaged_file_the_beginning_stays(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("run")
    write(folder, 1, list(range(6)))
    (path,) = folder.glob("events*")
    whole = [(h.step, h.counts.tolist()) for h in read(folder, TAG)]
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    kept = [(h.step, h.counts.tolist()) for h in read(folder, TAG)]
    assert kept == whole[: len(kept)]
    assert len(kept) >= int(6 * place / len(content)) - 1 if len(content) > place else True


def test_histograms_of_other_writers(tmp_path: Path) -> None:
    """Buckets with a count below the first limit, and an open last one."""
    writer = SummaryWriter(str(tmp_path))
    writer.add_histogram_raw("a", -2.0, 3.0, 6, 1.0, 1.0, [-1.0, 0.0, 1.0, 1.7e308], [1, 2, 3, 4], 7)
    values = np.linspace(-1, 1, 1001)
    writer.add_histogram("b", values, 8, bins="tensorflow")
    writer.close()
    (a,), (b,) = read(tmp_path, "a"), read(tmp_path, "b")
    assert (a.step, a.edges.tolist(), a.counts.tolist()) == (7, [-2.0, -1.0, 0.0, 1.0, 3.0], [1, 2, 3, 4])
    assert b.counts.sum() == 1001
    assert (np.diff(b.edges) > 0).all()
