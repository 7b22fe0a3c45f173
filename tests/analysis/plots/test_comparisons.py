"""Figures across settings: against bits and bucket size, error per bit, time to an accuracy."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from analysis import time_to_accuracy
from analysis.groups.selection import select
from analysis.logs.load import Logs, load
from analysis.plots import style
from analysis.plots.across import along, geometric, trade_offs
from analysis.plots.comparisons import against_setting, error_per_bit, excess
from analysis.plots.finished import styled
from tests.analysis.conftest import Rows, measured
from tests.tiers import few

Write = Callable[..., Path]


def end(accuracy: float) -> Rows:
    return [("Vacc", 0, 10.0), ("Vacc", 50, accuracy)]


def logs(tmp_path: Path) -> Logs:
    return load(tmp_path / "runs", "s")


def drawn(found: Figure | str) -> Figure:
    assert isinstance(found, Figure), found
    return found


def means(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Label -> (x, y) of its points."""
    lines = [line for line in axes.lines if line.get_gid() == "mean"]
    return {str(line.get_label()): [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())] for line in lines}


def labels_beyond(axes: Axes) -> list[Text]:
    """Labels of ticks outside of the axes, which are not drawn."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [
            tick.label1
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            if not low <= tick.get_loc() <= high
        ]
    return found


def assert_nothing_overlaps(figure: Figure) -> None:
    """Texts lie on the page, keep clear of each other and of all panels but their own."""
    figure.draw_without_rendering()
    boxes = []
    beyond = {id(label) for axes in figure.axes for label in labels_beyond(axes)}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in beyond:
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text
            assert "$" not in text.get_text(), "nothing is set as mathematics"
            boxes.append((text.get_text(), box))
    for index, (first, box) in enumerate(boxes):
        for second, other in boxes[:index]:
            shared = Bbox.intersection(box, other)
            assert shared is None or min(shared.width, shared.height) < 1.5, (first, second)


def test_numbers_of_buckets_stand_in_full_and_bars_of_few_seeds_are_whole(write_run: Write, tmp_path: Path) -> None:
    for size, accuracies in ((1024, (70.0, 74.0)), (1 << 20, (79.0, 80.0))):
        for seed, accuracy in enumerate(accuracies):
            write_run("s", {"method": "alq", "method.bucket_size": size, "seed": seed}, end(accuracy))
    (axes,) = drawn(against_setting(logs(tmp_path), 7.0, "method.bucket_size")).axes
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1024", "1048576"]
    low, high = axes.get_ylim()
    assert low < 70 and high > 80  # the means are 72 and 79.5


def test_accuracy_is_taken_by_the_setting_s_value_32_is_not_32768(write_run: Write, tmp_path: Path) -> None:
    for size, accuracy in ((32, 80.0), (32768, 60.0), (1024, 70.0)):
        for seed in (1, 2):
            write_run("s", {"method": "alq", "method.bucket_size": size, "seed": seed}, end(accuracy + seed))
    write_run("s", {"method": "sgd"}, end(85.0))
    figure = drawn(against_setting(logs(tmp_path), 3.4, "method.bucket_size"))
    points = means(figure.axes[0])
    np.testing.assert_allclose(points["ALQ"], [(32, 81.5), (1024, 71.5), (32768, 61.5)])
    assert {y for _, y in points["SGD"]} == {85.0}
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].get_ylabel() == "final validation accuracy (%)"


def test_bits_are_linear_with_a_line_for_each_other_setting(write_run: Write, tmp_path: Path) -> None:
    for bits in (2, 3, 5):
        for fit in ("histogram", "mixture"):
            write_run("s", {"method": "alq", "method.bits": bits, "method.fit": fit}, end(60.0 + bits))
    write_run("s", {"method": "trn"}, end(55.0))
    axes = drawn(against_setting(logs(tmp_path), 3.4, "method.bits")).axes[0]
    assert set(means(axes)) == {"ALQ (histogram fit)", "ALQ (mixture fit)", "TRN"}
    assert axes.get_xscale() == "linear"
    assert list(axes.get_xticks()) == [2, 3, 5]


def test_only_complete_runs_count_and_the_legend_says_how_many(write_run: Write, tmp_path: Path) -> None:
    for bits in (2, 3):
        for seed in (1, 2):
            write_run("s", {"method": "alq", "method.bits": bits, "seed": seed}, end(70.0))
    write_run("s", {"method": "alq", "method.bits": 3, "seed": 3}, end(10.0), state="running")
    points = means(drawn(against_setting(logs(tmp_path), 3.4, "method.bits")).axes[0])
    assert [y for _, y in points["ALQ (4 of 5 runs)"]] == [70.0, 70.0]


def test_on_the_sgd_trajectory_it_is_the_late_variance(write_run: Write, tmp_path: Path) -> None:
    for bits, level in ((2, 8.0), (4, 2.0)):
        write_run(
            "s",
            {"method": "alq", "method.bits": bits, "trajectory": "sgd", "measure.every": 50},
            measured(level, [0, 50, 100]),
        )
    axes = drawn(against_setting(logs(tmp_path), 3.4, "method.bits")).axes[0]
    np.testing.assert_allclose([y for _, y in means(axes)["ALQ"]], [8, 2], rtol=1e-5)
    assert axes.get_ylabel() == "variance relative to SuperSGD"
    assert axes.get_yscale() == "log"


def test_tasks_that_cannot_be_compared_have_panels_of_their_own(write_run: Write, tmp_path: Path) -> None:
    for workers in (2, 4):
        for bits in (2, 3):
            write_run("s", {"method": "alq", "method.bits": bits, "workers": workers}, end(70.0 + bits * workers))
    figure = drawn(against_setting(logs(tmp_path), 7.0, "method.bits"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["(a) workers 2", "(b) workers 4"]
    assert [[y for _, y in means(axes)["ALQ"]] for axes in figure.axes] == [[74, 76], [78, 82]]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ([{"method": "sgd"}], "no run reads method.bits"),
        ([{"method": "alq"}, {"method": "sgd"}], "method.bits has fewer than two values"),
        ([{"method": "alq", "method.bits": 2}, {"method": "alq", "method.bits": 3}], "no complete run has logged Vacc"),
    ],
)
def test_where_there_is_nothing_to_compare_it_says_so(
    write_run: Write, tmp_path: Path, settings: list[dict], says: str
) -> None:
    for one in settings:
        write_run("s", one, [("loss", 1, 1.0), ("Vacc", 3, float("nan"))])
    assert against_setting(logs(tmp_path), 3.4, "method.bits") == says
    assert isinstance(error_per_bit(logs(tmp_path), 3.4), str)
    assert isinstance(time_to_accuracy.time_to_accuracy(logs(tmp_path), 3.4), str)


def test_values_that_are_not_numbers_have_no_axis(write_run: Write, tmp_path: Path) -> None:
    for fit in ("histogram", "mixture"):
        write_run("s", {"method": "alq", "method.fit": fit}, end(60.0))
    assert along(logs(tmp_path), "method.fit") == "method.fit has values that are not numbers"


# --- error per bit ------------------------------------------------------------------------------------------------


def variances(est: list[float], super_: list[float], bits: float) -> Rows:
    pairs = zip(est, super_, strict=True)
    rows = [row for step, (a, b) in enumerate(pairs) for row in (("est_var", step, a), ("super_var", step, b))]
    return [*rows, ("comm/bits_per_coordinate", 0, bits)]


def test_error_is_the_variance_added_over_the_last_quarter(write_run: Write, tmp_path: Path) -> None:
    write_run("s", {"method": "alq"}, variances([9, 9, 9, 9, 9, 9, 3, 6], [1, 1, 1, 1, 1, 1, 2, 2], 3.1))
    read = logs(tmp_path)
    assert excess(read, list(read.settings.index)).to_list() == [pytest.approx((1.5 + 3) / 2 - 1)]


def test_error_against_measured_bits_joins_a_method_s_bits(write_run: Write, tmp_path: Path) -> None:
    for bits, error in ((2, 4.0), (3, 1.0), (4, 0.25)):
        write_run("s", {"method": "alq", "method.bits": bits}, variances([1 + error], [1.0], bits + 0.1))
    write_run("s", {"method": "sgd"}, variances([4.0], [1.0], 32.0))
    write_run("s", {"method": "supersgd"}, variances([1.0], [1.0], 32.0))
    axes = drawn(error_per_bit(logs(tmp_path), 3.4)).axes[0]
    points = means(axes)
    np.testing.assert_allclose(points["ALQ"], [(2.1, 4), (3.1, 1), (4.1, 0.25)], rtol=1e-5)
    assert [y for _, y in points["SGD"]][:1] == pytest.approx([3.0])
    assert "SuperSGD" not in points
    (guide,) = (line for line in axes.lines if "factor of 4" in str(line.get_label()))
    x, y = np.asarray(guide.get_xydata()).T
    assert y[0] / y[-1] == pytest.approx(4 ** (x[-1] - x[0]))


def test_errors_are_those_on_the_common_trajectory_where_there_is_one(write_run: Write, tmp_path: Path) -> None:
    for trajectory, error in (("method", 9.0), ("sgd", 2.0)):
        write_run(
            "s", {"method": "alq", "trajectory": trajectory, "measure.every": 1}, variances([1 + error], [1.0], 3.0)
        )
    (axes,) = drawn(error_per_bit(logs(tmp_path), 3.4)).axes
    assert [y for _, y in means(axes)["ALQ"]] == [pytest.approx(2.0)]


def test_sweeps_over_bucket_sizes_are_joined_along_them(write_run: Write, tmp_path: Path) -> None:
    for method in ("alq", "nuqsgd"):
        for size in (64, 4096):
            settings = {"method": method, "method.bucket_size": size}
            write_run("s", settings, variances([1 + size / 64], [1.0], 3 + 32 / size))
    (panel,) = trade_offs(logs(tmp_path))
    assert panel.setting == "method.bucket_size"
    assert [list(series.points) for series in panel.series] == [[64, 4096], [64, 4096]]


def test_geometric_means_need_positive_values() -> None:
    assert np.isnan(geometric(pd.Series([1.0, 0.0])).mean)
    assert np.isnan(geometric(pd.Series([], dtype=float)).mean)
    assert geometric(pd.Series([1.0, 4.0, np.nan])).mean == pytest.approx(2.0)


# --- time to accuracy ---------------------------------------------------------------------------------------------


def climbing(accuracies: Sequence[float], kilobytes: float = 1.0) -> Rows:
    rows = [
        row
        for k, value in enumerate(accuracies)
        for row in (("Vacc", 10 * k, value), ("comm/bytes", 10 * k, 10_000 * kilobytes * k))
    ]
    return [*rows, *(("time/step_s", 10 * k, 0.5) for k in range(len(accuracies)))]


def test_reach_is_the_first_evaluation_at_or_above_the_target(write_run: Write, tmp_path: Path) -> None:
    names = [write_run("s", {"method": "alq", "seed": seed}, climbing(values)).name for seed, values in (
        (1, [10, 50, 80, 70, 90]), (2, [10, 79.9, 79.9, 79.9, 79.9]), (3, [10, float("nan"), 50, 85, 90]),
    )]  # fmt: skip
    read = logs(tmp_path)
    for axis, expected in (("step", [20, np.nan, 30]), ("bytes", [20_000, np.nan, 30_000]), ("time", [10, np.nan, 15])):
        np.testing.assert_allclose(time_to_accuracy.first_at(read, names, 80.0, axis)[names], expected)


def test_a_mean_stands_only_where_all_runs_get_there(write_run: Write, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run("s", {"method": "supersgd", "seed": seed}, climbing([10, 50, 81, 81], 32))
        write_run("s", {"method": "alq", "seed": seed}, climbing([10, 50, 79 + seed, 81], 3))
        write_run("s", {"method": "nuqsgd", "seed": seed}, climbing([10, 20, 40, 70 + 10 * (seed == 2)], 3))
        write_run("s", {"method": "trn", "seed": seed}, climbing([10, 20, 40, 50], 2))
    figure = drawn(time_to_accuracy.time_to_accuracy(logs(tmp_path), 7.0))
    assert "80.00 %" in figure.get_suptitle()
    assert "1 point below SuperSGD's final mean" in figure.get_suptitle()
    texts = {text.get_text() for text in figure.axes[1].texts}
    assert texts == {"1 of 2", "never"}
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["SuperSGD", "NUQSGD", "TRN", "ALQ"]
    rows = {
        float(np.asarray(line.get_ydata())[0]) for line in figure.axes[0].lines if line.get_marker() not in ("o", "|")
    }
    places = figure.axes[0].get_yticks()
    assert rows == {places[0], places[3]}  # SuperSGD and ALQ


def test_without_supersgd_the_best_method_sets_the_target(write_run: Write, tmp_path: Path) -> None:
    write_run("s", {"method": "alq"}, climbing([10, 60, 80]))
    write_run("s", {"method": "trn"}, climbing([10, 60, 70]))
    assert "79.00 %" in drawn(time_to_accuracy.time_to_accuracy(logs(tmp_path), 3.4)).get_suptitle()
    assert time_to_accuracy.time_to_accuracy(logs(tmp_path), 3.4, 99.0) == "no run reaches 99.00 % validation accuracy"


@pytest.mark.slow
@pytest.mark.parametrize("settings", [18, 60, 90])
def test_many_rows_fit_on_a_page(write_run: Write, tmp_path: Path, settings: int) -> None:
    for number in range(settings):
        write_run(
            "s", {"method": "alq", "method.fit": "histogram", "method.num_samples": 5 + number}, climbing([10, 60, 80])
        )
    figure = time_to_accuracy.time_to_accuracy(logs(tmp_path), 3.4)
    if settings == 90:
        assert figure == "90 rows are too many for one figure: choose fewer runs"
        return
    assert_nothing_overlaps(drawn(figure))
    width, height = drawn(figure).get_size_inches()
    assert (width, height <= 9) == (7.0, True)


def test_long_names_leave_most_of_a_page_to_the_times(write_run: Write, tmp_path: Path) -> None:
    for objective in ("mean", "message"):
        for fit in ("histogram", "mixture"):
            for at in ([0, 20], [0, 30]):
                settings = {"method.objective": objective, "method.fit": fit, "method.update_at": at}
                write_run("s", {"method": "alq", "method.rounding": "correlated", **settings}, climbing([10, 60, 80]))
    figure = drawn(styled(time_to_accuracy.time_to_accuracy, logs(tmp_path), 7.0))
    assert sum(axes.get_position().width for axes in figure.axes) > 0.6
    assert_nothing_overlaps(figure)


# --- what they look like ------------------------------------------------------------------------------------------


@few(1, "width", style.WIDTHS.values())
def test_nothing_overlaps_at_either_width(write_run: Write, tmp_path: Path, width: float) -> None:
    for method in ("alq", "amq", "nuqsgd"):
        for index, size in enumerate((16, *(2**power for power in range(6, 16)))):
            for symmetric in (True, False) if method == "alq" else (None,):
                own = {} if symmetric is None else {"method.symmetric": symmetric}
                settings = {"method": method, "method.bucket_size": size, **own}
                write_run(
                    "s", settings, [*climbing([10, 50, 60 + index]), *variances([2.0 + index], [1.0], 3 + 32 / size)]
                )
    write_run("s", {"method": "sgd"}, [*climbing([10, 50, 80]), *variances([4.0], [1.0], 32.0)])
    read = logs(tmp_path)
    one = select(read, ["bucket_size=64"])
    for figure in (
        against_setting(read, width, "method.bucket_size"),
        error_per_bit(read, width),
        error_per_bit(one, width),
        time_to_accuracy.time_to_accuracy(one, width, 55.0),
    ):
        assert_nothing_overlaps(drawn(figure))
