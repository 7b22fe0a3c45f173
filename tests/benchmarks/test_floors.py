"""``python -m benchmarks.floors`` with made-up figures: what falls, what is measured again, what is said."""

import json

import pytest

from benchmarks import floor_cases, floors
from benchmarks.floors import Floor, count, measured, sentences

FLOORS = {"speed": Floor(10.0), "calls": count(100)}


def test_a_floor_is_60_percent_of_a_speed_and_125_of_a_count():
    assert FLOORS["speed"].holds(6.0) and not FLOORS["speed"].holds(5.99)
    assert FLOORS["calls"].holds(125) and not FLOORS["calls"].holds(126)


@pytest.mark.parametrize(
    "name, values, expected, runs",
    [
        ("speed", [9.0, 1.0], 9.0, 1),  # holds: not measured again
        ("speed", [3.0, 8.0], 8.0, 2),
        ("speed", [3.0, 2.0], 3.0, 2),
        ("calls", [200, 110], 110, 2),
        ("calls", [200, 300], 200, 2),
    ],
)
def test_what_has_fallen_is_measured_once_more_and_the_better_one_counts(name, values, expected, runs):
    left = iter(values)
    seen = []
    figures = measured([lambda: seen.append(1) or {name: next(left)}], FLOORS)
    assert figures == {name: expected}
    assert len(seen) == runs


def test_a_sentence_names_each_figure_that_has_fallen():
    (slow,) = sentences({"speed": 3.3, "calls": 100}, FLOORS)
    (many,) = sentences({"speed": 10, "calls": 300}, FLOORS)
    assert all(word in slow for word in ("speed", "3.3", "6", "10"))
    assert all(word in many for word in ("calls", "300", "125", "100"))


@pytest.mark.parametrize("factor, code", [(1.0, 0), (1 / 3, 1)])
def test_a_kernel_three_times_slower_ends_with_1(factor, code, monkeypatch, capsys):
    """All figures as they were measured, but for one."""
    figures = {name: floor.measured for name, floor in floors.FLOORS.items()}
    figures["ALQ encode over eager PyTorch"] *= factor
    monkeypatch.setattr(floor_cases, "GROUPS", (lambda: figures,))
    assert floors.main([]) == code
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]).keys() == floors.FLOORS.keys()
    assert len(err.splitlines()) == code
