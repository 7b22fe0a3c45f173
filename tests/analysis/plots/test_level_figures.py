"""Levels at the end and during training, and over the gradient's histogram."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from tensorboardX import SummaryWriter

from analysis.groups.seed_groups import Group, groups
from analysis.logs.load import load
from analysis.plots import level_figures
from analysis.plots.finished import styled
from analysis.plots.histogram_figure import gradient_histogram
from analysis.plots.style import WIDTHS
from tests.analysis.conftest import Rows
from tests.analysis.plots.test_comparisons import assert_nothing_overlaps, drawn
from tests.tiers import few

Write = Callable[..., Path]
EDGES = np.concatenate([-(2.0 ** np.arange(0, -9, -1)), [0.0], 2.0 ** np.arange(-8, 1)])
LEVELS = (-1.0, -0.1, 0.1, 1.0)


def levels(step: int, values: tuple[float, ...] = LEVELS) -> Rows:
    return [(f"levels/{k}", step, value) for k, value in enumerate(values)]


def log(folder: Path, rows: Rows, histograms: list[tuple[str, int, np.ndarray]]) -> None:
    """One event file; an empty first bucket carries a histogram's first edge, as training logs it."""
    writer = SummaryWriter(str(folder), filename_suffix=".a1")
    for tag, step, value in rows:
        writer.add_scalar(tag, value, step)
    for tag, step, counts in histograms:
        writer.add_histogram_raw(tag, -1.0, 1.0, 1.0, 0.0, 1.0, EDGES.tolist(), [0.0, *counts.tolist()], step)
    writer.close()


def the_group(tmp_path: Path) -> Group:
    (group,) = groups(load(tmp_path / "runs", "s"))
    return group


def with_histograms(
    write_run: Write, method: str, seed: int = 1, steps: tuple[int, ...] = (0, 100), **settings: object
) -> Path:
    rows = [row for step in steps for row in levels(step, (-1.0, -0.1 - step / 1000, 0.1 + step / 1000, 1.0))]
    folder = write_run("s", {"method": method, "seed": seed, **settings})
    histograms = []
    for number, step in enumerate(steps):
        for tag, shape in (("stats/coordinates", 1.0 + number), ("stats/fit", 2.0)):
            counts = np.diff(EDGES) * np.exp(-shape * np.abs(EDGES[1:] + EDGES[:-1]))
            histograms.append((tag, step, counts / counts.sum()))
    log(folder, rows, histograms)
    return folder


def test_histogram_is_a_density_with_fit_and_levels_of_the_last_measurement(write_run: Write, tmp_path: Path) -> None:
    with_histograms(write_run, "alq", seed=2, steps=(0,))
    with_histograms(write_run, "alq", seed=1)
    with_histograms(write_run, "nuqsgd")
    (axes,) = drawn(gradient_histogram(the_group(tmp_path), WIDTHS["column"])).axes  # fixed levels: none of its own
    assert axes.get_title() == "ALQ\nstep 100"
    (filled,) = axes.patches
    values, edges, _ = filled.get_data()  # type: ignore[attr-defined]
    np.testing.assert_allclose(edges, EDGES)
    assert (values * np.diff(edges)).sum() == pytest.approx(1.0)
    by_hand = np.exp(-2.0 * np.abs(EDGES[1:] + EDGES[:-1]))
    np.testing.assert_allclose(values, by_hand / (by_hand * np.diff(EDGES)).sum(), rtol=1e-9)
    (fit,) = (line for line in axes.lines if len(np.asarray(line.get_xdata())) == len(EDGES) - 1)
    distribution = np.exp(-4.0 * np.abs((EDGES[1:] + EDGES[:-1]) / 2))
    np.testing.assert_allclose(
        np.asarray(fit.get_ydata()), distribution / (distribution * np.diff(EDGES)).sum(), rtol=1e-9
    )
    feet = np.asarray(axes.lines[-1].get_xdata(), float)
    np.testing.assert_allclose(feet, [-1, -0.2, 0.2, 1], rtol=1e-6)


def test_a_page_shows_the_first_measurement_beside_the_last(write_run: Write, tmp_path: Path) -> None:
    with_histograms(write_run, "alq")
    figure = drawn(gradient_histogram(the_group(tmp_path), WIDTHS["page"]))
    assert [axes.get_title() for axes in figure.axes] == ["ALQ\nstep 0", "ALQ\nstep 100"]


def test_fixed_levels_are_shown_where_nothing_adapts(write_run: Write, tmp_path: Path) -> None:
    with_histograms(write_run, "nuqsgd")
    assert [axes.get_title() for axes in drawn(gradient_histogram(the_group(tmp_path), 3.4)).axes] == [
        "NUQSGD\nstep 100"
    ]


def test_damaged_histograms_end_in_a_sentence(write_run: Write, tmp_path: Path) -> None:
    bins = len(EDGES) - 1
    damaged = [("stats/coordinates", 3, np.zeros(bins)), ("stats/coordinates", 4, np.full(bins, np.nan))]
    log(write_run("s", {"method": "alq"}), levels(0), damaged)
    assert gradient_histogram(the_group(tmp_path), 3.4) == "no run has logged stats/coordinates"


def test_a_histogram_without_fit_and_levels_is_drawn_alone(write_run: Write, tmp_path: Path) -> None:
    log(write_run("s", {"method": "alq"}), [("loss", 0, 1.0)], [("stats/coordinates", 3, np.ones(len(EDGES) - 1))])
    figure = drawn(gradient_histogram(the_group(tmp_path), 3.4))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured"]
    assert_nothing_overlaps(figure)


# --- levels -------------------------------------------------------------------------------------------------------


def strokes(figure: Figure) -> list[list[float]]:
    lines = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    return [np.asarray(line.get_xdata(), float).tolist() for line in lines]


def test_last_levels_are_means_over_seeds_also_of_requeued_runs(write_run: Write, tmp_path: Path) -> None:
    first = [*levels(0), *levels(50, (-1.0, -0.5, 0.5, 1.0))]
    write_run(
        "s", {"method": "alq", "seed": 1}, first, [*levels(40, (-1.0, -0.2, 0.2, 1.0))]
    )  # requeued: 40 replaces 50
    write_run("s", {"method": "alq", "seed": 2}, levels(50, (-1.0, -0.4, 0.4, 1.0)))
    figure = drawn(level_figures.final(the_group(tmp_path), 3.4))
    np.testing.assert_allclose(strokes(figure), [[-1, -0.3, 0.3, 1]], rtol=1e-6)


def test_the_paper_s_levels_stand_beside_ours_where_it_shows_the_task(write_run: Write, tmp_path: Path) -> None:
    for method in ("alq", "nuqsgd"):
        write_run("s", {"method": method, "data": "cifar10", "model": "resnet32", "method.bits": 3}, levels(0))
    figure = drawn(level_figures.final(the_group(tmp_path), 3.4))
    theirs = [np.asarray(line.get_xdata(), float).tolist() for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert theirs == [[-1.0, -0.13, -0.018, -0.005, 0.005, 0.018, 0.13, 1.0]]
    (diamonds,) = (line for line in figure.axes[0].lines if line.get_marker() == "D")
    assert set(np.asarray(diamonds.get_ydata())) == {figure.axes[0].get_yticks()[1]}  # the row of ALQ
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["paper (bucket 16384)"]


def test_levels_of_another_task_and_equal_ones_stand_alone(write_run: Write, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run("s", {"method": "alq", "method.bits": 3, "seed": seed}, levels(0))
    figure = drawn(level_figures.final(the_group(tmp_path), 3.4))
    assert not figure.legends


@pytest.mark.parametrize("rows", [[], [("levels/0", 0, float("nan")), ("levels/1", 0, 1.0)], [("loss", 0, 1.0)]])
def test_without_whole_levels_there_is_a_sentence(write_run: Write, tmp_path: Path, rows: Rows) -> None:
    write_run("s", {"method": "alq"}, rows)
    write_run("s", {"method": "sgd"}, [("loss", 0, 1.0)])
    assert level_figures.final(the_group(tmp_path), 3.4) == "no run has logged levels"
    assert level_figures.over_steps(the_group(tmp_path), WIDTHS) == "no levels change during these runs"


def test_a_row_of_levels_is_as_high_as_its_own_label_and_labels_leave_half_of_a_page(
    write_run: Write, tmp_path: Path
) -> None:
    for objective, fit in (("mean", "histogram"), ("message", "histogram"), ("message", "mixture")):
        settings = {"method.objective": objective, "method.fit": fit}
        write_run("s", {"method": "alq", "method.rounding": "correlated", **settings}, levels(0))
    for method in ("alq", "amq", "qsgdinf", "nuqsgd"):
        write_run("s", {"method": method, "method.rounding": "stochastic"}, levels(0))
    group = the_group(tmp_path)
    figure = drawn(level_figures.final(group, 3.4))
    lines = [label.get_text().count("\n") + 1 for label in figure.axes[0].get_yticklabels()]
    assert max(lines) >= 3 and lines.count(1) >= 2
    assert figure.get_figheight() < 0.6 + 0.18 * sum(lines)  # inches
    assert_nothing_overlaps(figure)
    page = drawn(styled(level_figures.final, group, 7.0))
    assert page.axes[0].get_position().width > 0.5


@pytest.mark.parametrize(("seeds", "ends"), [(3, (-0.6, -0.2)), (4, (-0.4 - 0.2598, -0.4 + 0.2598))])
def test_bars_of_levels_are_the_range_below_four_seeds_and_then_the_t_interval(
    write_run: Write, tmp_path: Path, seeds: int, ends: tuple[float, float]
) -> None:
    """Of -.6, -.4, -.4, -.2: t(3) = 3.1824, s = .1633, so 3.1824 x .1633 / 2 = .2598."""
    for seed, level in enumerate([-0.6, -0.4, -0.2, -0.4][:seeds]):
        write_run("s", {"method": "alq", "seed": seed}, levels(0, (-1.0, level, -level, 1.0)))
    figure = drawn(level_figures.final(the_group(tmp_path), 3.4))
    (bars,) = (each for each in figure.axes[0].collections if str(each.get_gid()).startswith("bars: "))
    second = np.asarray(bars.get_paths()[1].vertices)[:, 0]
    np.testing.assert_allclose(sorted(second), ends, atol=1e-3)


def test_a_histogram_of_many_methods_is_no_taller_than_a_page(write_run: Write, tmp_path: Path) -> None:
    for number in range(14):
        settings: dict[str, Any] = {"method.num_components": 10 + number}
        with_histograms(write_run, "alq", **settings)
    figure = drawn(gradient_histogram(the_group(tmp_path), WIDTHS["column"]))
    assert (len(figure.axes), figure.get_figwidth()) == (14, 7.0) and figure.get_figheight() < 9


def test_levels_during_training_show_where_the_rate_dropped(write_run: Write, tmp_path: Path) -> None:
    moving = [*levels(0), *levels(50, (-1.0, -0.5, 0.5, 1.0)), ("loss", 100, 1.0)]
    for method in ("alq", "amq"):
        write_run("s", {"method": method, "schedule": "step", "schedule.at": [60, 500]}, moving, step=100)
    figure = drawn(level_figures.over_steps(the_group(tmp_path), WIDTHS))
    for axes in figure.axes:
        assert [np.asarray(line.get_xdata())[0] for line in axes.lines if line.get_gid() == "drop"] == [60]
        assert axes.get_xlim()[1] < 150  # the other lies beyond the last step
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rate drop"]


def test_methods_with_different_numbers_of_levels_share_a_figure(write_run: Write, tmp_path: Path) -> None:
    for bits in (1, 2, 5):
        own = tuple(np.linspace(-1, 1, 2**bits))
        moved = tuple(0.9 * value if abs(value) < 1 else value for value in own)
        write_run("s", {"method": "alq", "method.bits": bits}, [*levels(0, own), *levels(10, moved)])
    write_run("s", {"method": "trn"}, levels(0, (-1.0, 0.0, 1.0)))
    group = the_group(tmp_path)
    assert [len(row) for row in strokes(drawn(level_figures.final(group, 3.4)))] == [3, 2, 4, 32]
    assert [axes.get_title() for axes in drawn(level_figures.over_steps(group, WIDTHS)).axes] == [
        "ALQ (2 bits)",
        "ALQ (5 bits)",
    ]


@few(1, "width", WIDTHS.values())
def test_nothing_overlaps_at_either_width(write_run: Write, tmp_path: Path, width: float) -> None:
    task = {"data": "cifar10", "model": "resnet32", "method.bits": 3}
    for symmetric in (True, False):
        for fit in ("mixture", "histogram"):
            with_histograms(write_run, "alq", **task, **{"method.symmetric": symmetric, "method.fit": fit})
    with_histograms(write_run, "amq_n", **task)
    group = the_group(tmp_path)
    for figure in (
        level_figures.final(group, width),
        level_figures.over_steps(group, WIDTHS),
        gradient_histogram(group, width),
    ):
        assert_nothing_overlaps(drawn(figure))
