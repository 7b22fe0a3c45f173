"""The position of a run on an axis at a step, and the steps at which its learning rate really dropped."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.axes import AXES, checked, positions, unit
from analysis.decay import drops
from analysis.logs.load import Logs, load
from analysis.logs.parts import Part
from analysis.logs.rows import rows
from tests.analysis.conftest import Rows


def logs_of(
    runs: Mapping[str, list[tuple[str, int, float, float, int]]], plans: Mapping[str, tuple[int, ...]] | None = None
) -> Logs:
    """Logs of rows (tag, step, value, wall time, attempt), as the loader gives them."""
    tags = sorted({row[0] for of_run in runs.values() for row in of_run})
    numbered = [
        (number, tags.index(row[0]), row[4], *row[1:4]) for number, of_run in enumerate(runs.values()) for row in of_run
    ]
    numbered.sort()
    spans = [(*key, len(list(of_span))) for key, of_span in itertools.groupby(numbered, key=lambda row: row[:3])]
    step, value, wall_time = np.array([row[3:] for row in numbered], float).reshape(-1, 3).T
    part = Part(
        len(runs), tuple(tags), np.array(spans, np.int64).reshape(-1, 4), step.astype(np.int64), wall_time, value
    )
    names = pd.Index(list(runs), name="run", dtype=object)
    settings = pd.DataFrame({"schedule.at": [(plans or {}).get(run) for run in runs]}, index=names, dtype=object)
    return Logs("s", Path(), rows(list(runs), part), settings, pd.DataFrame(index=names), ())


def series(tag: str, values: Mapping[int, float]) -> list[tuple[str, int, float, float, int]]:
    return [(tag, step, value, 0.0, 0) for step, value in values.items()]


def at(logs: Logs, axis: str, *steps: int, run: str = "a") -> list[float]:
    return positions(logs, axis, [run], list(steps))[run].tolist()


def test_a_step_is_where_it_is() -> None:
    found = positions(logs_of({"a": [], "b": []}), "step", ["b", "a"], [0, 7])
    assert found.to_numpy().tolist() == [[0, 0], [7, 7]]
    assert (list(found.columns), list(found.index)) == (["b", "a"], [0, 7])


def test_time_is_the_sum_of_the_steps() -> None:
    logs = logs_of({"a": series("time/step_s", {10: 0.5, 20: 1.0, 40: 2.0})})
    np.testing.assert_allclose(at(logs, "time", 0, 5, 10, 20, 30, 40, 50), [0, 2.5, 5, 15, 35, 55, 75])


def test_time_over_a_link_is_that_of_one_worker_and_of_its_bytes() -> None:
    def run(step_s: float, encode_s: float, decode_s: float, num_bytes: float) -> list[Any]:
        parts = {"step": step_s, "encode": encode_s, "decode": decode_s}
        timed = [row for what, value in parts.items() for row in series(f"time/{what}_s", {10: value, 20: value})]
        return [*timed, *series("comm/bytes", {10: num_bytes, 20: 2 * num_bytes})]

    logs = logs_of(
        {
            "a": run(1.0, 0.2, 0.1, 1e6),
            "b": run(0.8, 0.1, 0.0, 8e6),
            "c": [*run(0.175, 0.0, 0.0, 1e6), *series("comm/network_bytes", {10: 3e6, 20: 6e6})],
            "d": series("comm/bytes", {10: 1}),
        }
    )
    logs.settings["workers"], logs.settings["method.name"] = 4, ["topk", "supersgd", "topk", "topk"]
    # of a step of four workers in turn .7 s compute, .2 s encode and .1 s decode; the others' steps take .7 and .175 s
    assert at(logs, "10M", 0, 10, 20) == pytest.approx([0, 3.25 + 2.4, 6.5 + 4.8])
    assert at(logs, "1G", 20) == pytest.approx([6.5 + 0.048])
    assert at(logs, "10M", 10, run="b") == pytest.approx([10 * (0.175 + 0.025) + 6.4 * 1.5])  # a ring
    assert at(logs, "100M", 10, run="c") == pytest.approx([1.75 + 0.24])  # a process for every worker
    assert np.isnan(at(logs, "10M", 10, run="d")[0])


def test_bytes_are_linear_between_records() -> None:
    logs = logs_of({"a": series("comm/bytes", {10: 100, 20: 300})})
    np.testing.assert_allclose(at(logs, "bytes", 0, 5, 10, 15, 20, 25), [0, 50, 100, 200, 300, 400])


@pytest.mark.parametrize("axis", ["time", "bytes"])
def test_no_run_is_followed_far_beyond_its_last_record(axis: str) -> None:
    logs = logs_of({"a": [*series("comm/bytes", {10: 100, 20: 300}), *series("time/step_s", {10: 1, 20: 1})]})
    assert np.isfinite(at(logs, axis, 30)).all()
    assert np.isnan(at(logs, axis, 31)).all()


def test_what_was_not_logged_is_unknown() -> None:
    logs = logs_of({"a": series("comm/bytes", {10: 100, 20: float("nan")}), "b": series("x", {0: 1})})
    found = positions(logs, "bytes", ["b", "a", "stranger"], [10])
    assert found.isna().to_numpy().tolist() == [[True, False, True]]
    assert positions(logs, "epoch", ["a", "b"], [10]).isna().to_numpy().all()


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_follow_from_any_two_records(first: int) -> None:
    """It does not matter whether the original counts its batches from the step before or after."""
    steps = [20, 40, 100, 230]
    records = series("epoch", {step: (step - first) // 97 for step in steps})
    records += series("batch_idx", {step: (step - first) % 97 for step in steps})
    np.testing.assert_allclose(at(logs_of({"a": records}), "epoch", 0, 97, 230), [0, 1, 230 / 97])


def test_one_record_of_a_later_epoch_tells_too() -> None:
    records = series("epoch", {200: 2}) + series("batch_idx", {200: 199 - 2 * 80})
    np.testing.assert_allclose(at(logs_of({"a": records}), "epoch", 40, 200), [0.5, 2.5])


def test_the_first_epoch_alone_does_not_tell() -> None:
    records = series("epoch", {10: 0, 20: 0}) + series("batch_idx", {10: 9, 20: 19})
    assert np.isnan(at(logs_of({"a": records}), "epoch", 10, 20)).all()


def test_epochs_without_batches_are_linear_between_their_first_records() -> None:
    logs = logs_of({"a": series("epoch", {0: 0, 50: 0, 100: 1, 150: 1, 200: 2, 250: 2})})
    np.testing.assert_allclose(at(logs, "epoch", 0, 50, 125, 250), [0, 0.5, 1.25, 2.5])


def wall(*records: tuple[int, float, int]) -> list[tuple[str, int, float, float, int]]:
    return [("loss", step, 1.0, seconds, attempt) for step, seconds, attempt in records]


def test_wall_time_begins_with_the_first_record() -> None:
    records = [("Vacc", 0, 1.0, 990.0, 0), *wall((10, 1000, 0), (20, 1010, 0), (30, 1030, 0))]
    np.testing.assert_allclose(at(logs_of({"a": records}), "time", 0, 10, 25, 30), [0, 10, 30, 40])


def test_gaps_between_attempts_do_not_count() -> None:
    """Two steps a second throughout; the requeued run waited for an hour."""
    records = wall((10, 5, 0), (20, 10, 0), (30, 3700, 1), (40, 3705, 1))
    np.testing.assert_allclose(at(logs_of({"a": records}), "time", 10, 20, 30, 40), [0, 5, 10, 15])


def test_logs_of_a_requeued_run_give_its_time(write_run: Callable[..., Path], tmp_path: Path) -> None:
    records: Rows = [("loss", step, 1.0) for step in (10, 20, 30)]
    write_run("s", {}, records[:2], records[2:])
    logs = load(tmp_path / "runs", "s")
    (run,) = logs.settings.index
    found = positions(logs, "time", [run], [10, 20, 30])[run]
    assert found.is_monotonic_increasing
    assert found.iloc[-1] < 60


def test_units_fit_the_end_of_the_axis() -> None:
    labels = {
        (axis, end): unit(axis, end)
        for axis, end in (("time", 90), ("time", 7000), ("time", 1e5), ("bytes", 5e4), ("bytes", 3e9))
    }
    assert {key: (size, label[label.index("(") :]) for key, (size, label) in labels.items()} == {
        ("time", 90): (1, "(s)"),
        ("time", 7000): (60, "(min)"),
        ("time", 1e5): (3600, "(h)"),
        ("bytes", 5e4): (1e3, "(kB)"),
        ("bytes", 3e9): (1e9, "(GB)"),
    }
    assert unit("step", 1e6) == (1, "training step")


def test_an_axis_that_does_not_exist_is_named() -> None:
    assert checked(None) == AXES
    assert checked(["bytes", "step"]) == ("step", "bytes")
    with pytest.raises(ValueError, match=r"axis 'wall' does not exist \(there are: step, time, epoch, bytes\)"):
        checked(["wall"])


# --- drops of the learning rate -----------------------------------------------------------------------------------


def test_planned_drops_are_exact_between_two_records() -> None:
    logs = logs_of({"a": series("lr", {100: 1, 200: 1, 300: 0.1, 400: 0.1})}, {"a": (250, 900)})
    assert drops(logs) == [250, 900]  # the records do not reach the second


def test_a_planned_drop_that_came_late_stands_where_it_came() -> None:
    logs = logs_of({"a": series("lr", {100: 1, 200: 1, 300: 1, 400: 0.1, 500: 0.1})}, {"a": (150,)})
    assert drops(logs) == [400]


def test_drops_of_logs_without_a_plan_are_read_from_the_rate() -> None:
    rates = {step: 0.1 ** (step > 300) * 0.1 ** (step > 600) for step in range(100, 1000, 100)}
    assert drops(logs_of({"a": series("lr", rates)})) == [400, 700]


def test_a_plan_without_a_logged_rate_is_believed() -> None:
    assert drops(logs_of({"a": series("x", {0: 1}), "b": []}, {"a": (60,), "b": (60, 80)})) == [60, 80]


def test_corners_of_straight_lines_are_no_drops() -> None:
    logs = logs_of(
        {"a": series("lr", {step: float(np.interp(step, [0, 485, 2328], [0, 0.4, 0])) for step in range(0, 2328, 20)})}
    )
    logs.settings["schedule.at"] = [(0, 485, 2328)]
    assert drops(logs) == [2328]  # which the records do not reach
    logs.settings["schedule.name"] = "piecewise_linear"
    assert drops(logs) == []


@pytest.mark.parametrize(
    "rate", [lambda step: np.cos(step / 1000), lambda step: 0.9**step, lambda step: 1.0, lambda step: step / 1000]
)
def test_smooth_schedules_have_no_drops(rate: Callable[[int], float]) -> None:
    assert drops(logs_of({"a": series("lr", {step: float(rate(step)) for step in range(0, 1000, 50)})})) == []
