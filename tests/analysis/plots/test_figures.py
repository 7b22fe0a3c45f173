"""Figures: what they show, what is marked, other axes, and bytes that do not depend on processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import figures, results, run_costs
from analysis.axes import AXES
from analysis.groups.seed_groups import Group, groups
from analysis.logs.load import Logs, load
from analysis.logs.reading import READ
from analysis.logs.rows import Rows
from analysis.plots import curves, legends
from nuq.registry import METHODS
from tests.analysis.conftest import everything


def panel(group: Group, name: str, axis: str = "step") -> tuple[Figure, str | None]:
    figure = Figure()
    (plot,) = (plot for plot in curves.PLOTS if plot.name == name)
    return figure, curves.curves(figure.add_subplot(), curves.Means(group), plot, axis)


def test_curves_are_means_with_drops_and_bands(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"], **{"schedule": "step", "schedule.at": [60, 200]})
    figure, problem = panel(group, "validation_loss")
    assert problem is None
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    waves = [[1 + 0.1 * ((step * 7 + seed * 3) % 5) for seed in (1, 2)] for step in (0, 51, 102)]
    by_hand = [
        2 / (1 + step / 100) * (first * second) ** 0.5
        for step, (first, second) in zip((0, 51, 102), waves, strict=True)
    ]
    np.testing.assert_allclose(np.asarray(lines["ALQ"].get_xydata())[:, 1], by_hand, rtol=1e-6)
    assert [np.asarray(line.get_xydata())[0, 0] for line in axes.lines if line.get_gid() == "drop"] == [
        60
    ]  # 200 lies beyond the last step
    assert len(axes.collections) == 2
    assert axes.get_yscale() == "log"


def test_the_tags_that_are_asked_for_are_known_to_be_read(
    one: Callable[..., tuple[Logs, Group]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the reader of the logs would say that nothing reads them."""
    logs, _ = one(["sgd", "alq"], seeds=1)
    asked = {part for plot in curves.PLOTS for tag in plot.tags for part in tag.split(" / ")}
    only, of_tag = Rows.only, Rows.of_tag
    monkeypatch.setattr(Rows, "only", lambda self, tags: asked.update(tags) or only(self, tags))
    monkeypatch.setattr(Rows, "of_tag", lambda self, tag: asked.add(tag) or of_tag(self, tag))
    results.of_runs(logs)
    run_costs.costs(logs)
    for figure in figures.named(logs, 3.4):
        figure.missing()
    assert {"Vacc", "time/step_s", "lr", "levels/0"} <= asked
    assert {tag for tag in asked if not READ.fullmatch(tag)} == set()


@pytest.mark.parametrize("methods", [6, 8])
def test_all_bands_are_drawn_or_none_and_the_figure_says_so(
    write_run: Callable[..., Path], tmp_path: Path, methods: int
) -> None:
    """Each over two seeds that differ by 20, the first by .1, on an axis of 70 to 100 %."""
    for level, method in enumerate(list(METHODS)[:methods]):
        for seed in (0, 1):
            spread = (20.0 if level else 0.1) * seed
            write_run(
                "s",
                {"method": method, "seed": 1 + seed},
                [("Vacc", step, 70.0 + 3 * level + spread) for step in (10, 20, 30)],
            )
    (group,) = groups(load(tmp_path / "runs", "s"))
    figure, problem = panel(group, "accuracy")
    assert problem is None
    assert len(figure.axes[0].collections) == (6 if methods == 6 else 0)
    legends.legend_below(figure, 7.0)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == methods  # the sentence is no entry
    assert ("No bands" in legend.get_title().get_text()) == (methods == 8)


@pytest.mark.parametrize(("seeds", "ends"), [(3, (10.0, 16.0)), (4, (13 - 4.108, 13 + 4.108))])
def test_the_band_is_the_range_below_four_seeds_and_then_the_t_interval(
    write_run: Callable[..., Path], tmp_path: Path, seeds: int, ends: tuple[float, float]
) -> None:
    """Values 10, 12, 14, 16: t(3) = 3.182, s = 2.582, so 3.182 x 2.582 / 2 = 4.108."""
    for seed, value in enumerate([10.0, 12.0, 14.0, 16.0] if seeds == 4 else [10.0, 12.0, 16.0]):
        write_run("s", {"method": "alq", "seed": seed}, [("Vacc", step, value) for step in (10, 20)])
    (group,) = groups(load(tmp_path / "runs", "s"))
    figure, _ = panel(group, "accuracy")
    (band,) = figure.axes[0].collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose((heights.min(), heights.max()), ends, atol=1e-3)
    assert ("range" in legends.spread_sentence(figure)) == (seeds == 3)


def test_the_panels_of_an_overview_have_one_x_axis(write_run: Callable[..., Path], tmp_path: Path) -> None:
    rows = [("Vacc", step, 5.0 + step) for step in (50, 100)] + [("est_var", step, 1e-3) for step in (0, 40)]
    write_run("s", {"method": "alq"}, rows)
    (overview,) = (each for each in figures.named(load(tmp_path / "runs", "s"), 3.4) if each.name == "overview")
    figure = overview.make()
    assert isinstance(figure, Figure) and len(figure.axes) == 2
    (low, high), other = (axes.get_xlim() for axes in figure.axes)
    assert (low, high) == other and low <= 0 and high >= 100


def test_linear_axes_show_arithmetic_means(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"])
    figure, _ = panel(group, "accuracy")
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in figure.axes[0].lines}
    np.testing.assert_allclose(
        lines["ALQ"][:, 1], [90 - 2 - 50 / (1 + step / 50) + 1.5 for step in (0, 51, 102)], rtol=1e-6
    )


def test_references_stand_in_for_methods_that_were_not_run(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"])
    figure, _ = panel(group, "est_var")
    labels = {line.get_label(): line for line in figure.axes[0].lines}
    assert "SuperSGD (reference)" in labels
    assert "SGD (reference)" not in labels
    waves = [
        np.exp(np.mean([np.log(1e-5 * (1 + 0.1 * ((step * 7 + seed * 3) % 5))) for seed in (1, 2)]))
        for step in (0, 51, 102)
    ]
    np.testing.assert_allclose(np.asarray(labels["SuperSGD (reference)"].get_xydata())[:, 1], waves, rtol=1e-6)


def test_a_sweep_without_runs_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "runs" / "s").mkdir(parents=True)
    drawn = figures.draw(list(figures.named(load(tmp_path / "runs", "s"), 3.4)), tmp_path / "f")
    assert drawn.paths == ()


# --- incomplete seed groups ---------------------------------------------------------------------------------------


def labels(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines}


def test_incomplete_seed_groups_are_marked(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for method, states in {
        "alq": ("done", "failed", "done"),
        "amq": ("running", "failed"),
        "qsgd": ("done", "done"),
    }.items():
        for seed, state in enumerate(states, 1):
            rows = everything(2, (0, 51, 102) if state == "done" else (0, 51), seed)
            write_run("s", {"method": method, "seed": seed}, rows, state=state)
    (group,) = groups(load(tmp_path / "runs", "s"))
    figure, problem = panel(group, "accuracy")
    assert problem is None
    lines = labels(figure)
    assert {"ALQ (2 of 3 seeds)", "AMQ (unfinished)", "QSGD"} <= set(lines)
    assert lines["QSGD"].get_alpha() is None
    assert lines["ALQ (2 of 3 seeds)"].get_alpha() == 0.6
    assert lines["AMQ (unfinished)"].get_linestyle() == ":"
    np.testing.assert_allclose(
        np.asarray(lines["ALQ (2 of 3 seeds)"].get_ydata()), [90 - 2 - 50 / (1 + s / 50) + 2 for s in (0, 51, 102)]
    )
    assert np.asarray(lines["AMQ (unfinished)"].get_xdata()).tolist() == [0, 51]
    ends = {
        line.get_marker(): np.asarray(line.get_xdata()).tolist()
        for line in figure.axes[0].lines
        if line.get_gid() == "end"
    }
    assert ends == {"o": [102], "x": [51]}


def test_a_tag_that_half_of_the_seeds_lack_is_marked(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(
            "s",
            {"method": "alq", "method.bits": 3, "seed": seed},
            [(tag, step, 5.0) for step in (0, 10) for tag in ("Vloss", *(["Vacc"] if seed == 1 else []))],
        )
        both = [(tag, step, 5.0) for step in (0, 10) for tag in ("Vloss", "Vacc")]
        write_run("s", {"method": "alq", "method.bits": 4, "seed": seed}, both)
    (group,) = groups(load(tmp_path / "runs", "s"))
    assert {"ALQ (3 bits, 1 of 2 seeds)", "ALQ (4 bits)"} <= set(labels(panel(group, "accuracy")[0]))
    assert {"ALQ (3 bits)", "ALQ (4 bits)"} <= set(labels(panel(group, "validation_loss")[0]))


def test_seeds_without_a_common_step_show_the_longest(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "seed": 1}, [("Vacc", step, 5.0) for step in (0, 10)])
    write_run("s", {"method": "alq", "seed": 2}, [("Vacc", step, 7.0) for step in (5, 15, 25)])
    (group,) = groups(load(tmp_path / "runs", "s"))
    line = labels(panel(group, "accuracy")[0])["ALQ (1 of 2 seeds)"]
    assert np.asarray(line.get_xydata()).tolist() == [[5, 7], [15, 7], [25, 7]]


# --- other axes ---------------------------------------------------------------------------------------------------


def test_curves_stand_where_their_runs_were(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"], **{"schedule": "step", "schedule.at": [60]})
    places = {axis: labels(panel(group, "accuracy", axis)[0]) for axis in AXES}
    np.testing.assert_allclose(np.asarray(places["time"]["ALQ"].get_xdata()), [0, 51 * 0.04, 102 * 0.04], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(places["epoch"]["ALQ"].get_xdata()), [0, 51 / 25, 102 / 25])
    np.testing.assert_allclose(np.asarray(places["bytes"]["ALQ"].get_xdata()), [0, 102, 204])  # kB
    assert (
        np.asarray(places["bytes"]["ALQ"].get_ydata()).tolist()
        == np.asarray(places["step"]["ALQ"].get_ydata()).tolist()
    )


def test_drops_stand_where_each_curve_reached_them(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"], **{"schedule": "step", "schedule.at": [51]})

    def drops(axis: str, gid: str) -> list[float]:
        return sorted(
            float(np.asarray(line.get_xdata())[0])
            for line in panel(group, "accuracy", axis)[0].axes[0].lines
            if line.get_gid() == gid
        )

    assert (drops("step", "drop"), drops("step", "drops")) == ([51], [])
    np.testing.assert_allclose(drops("epoch", "drop"), [51 / 25])
    np.testing.assert_allclose(drops("time", "drops"), [51 * 0.02, 51 * 0.04], rtol=1e-6)
    assert drops("time", "drop") == []


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_bytes_that_differ_much_take_a_logarithmic_axis(one: Callable[..., tuple[Logs, Group]], scale: str) -> None:
    """The fifth method of ``one`` sends five times as much as the first; step 0 has no place on a logarithmic axis."""
    _, group = one(["sgd", "supersgd", "qsgd", "alq", *(["amq"] if scale == "log" else [])])
    figure, _ = panel(group, "accuracy", "bytes")
    assert figure.axes[0].get_xscale() == scale
    assert len(np.asarray(labels(figure)["ALQ"].get_xdata())) == (2 if scale == "log" else 3)


def test_on_the_sgd_trajectory_nothing_is_sent(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "trajectory": "sgd", "measure.every": 10}, everything(1, (0, 51)))
    found = list(figures.named(load(tmp_path / "runs", "s"), 3.4))
    of_group = {named.name for named in found if named.section == "on the SGD trajectory"}
    assert {"est_var-sgd_trajectory", "norm_var-time-sgd_trajectory", "overview-epoch-sgd_trajectory"} <= of_group
    assert not [name for name in of_group if "-bytes" in name or name.startswith("accuracy")]


@pytest.mark.slow
def test_figures_are_the_same_from_several_processes(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run(
        "s", {"method": "alq"}, [(tag, step, 1.0 + step) for tag in ("Vacc", "epoch", "comm/bytes") for step in (0, 10)]
    )
    logs = load(tmp_path / "runs", "s")
    wanted = list(figures.named(logs, 3.4, axes=["epoch", "bytes"]))
    drawn = [figures.draw(wanted, tmp_path / str(count), processes=count) for count in (1, 2)]
    assert drawn[0].notes == drawn[1].notes
    assert [path.name for path in drawn[0].paths] == [path.name for path in drawn[1].paths]
    assert {path.name for path in drawn[0].paths} >= {"accuracy-epoch.pdf", "accuracy-bytes.png"}
    for first, second in zip(*(of_count.paths for of_count in drawn), strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


# --- which figures ------------------------------------------------------------------------------------------------


def test_a_few_figures_are_looked_at_first(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for method in ("alq", "qsgd"):
        for bits in (2, 3):
            write_run("s", {"method": method, "method.bits": bits}, everything(1, (0, 51)))
    write_run("s", {"method": "amq", "method.bits": 3}, everything(1, (0, 51)))
    every = list(figures.named(load(tmp_path / "runs", "s"), 3.4))
    first = figures.first(every)
    assert [figure.name for figure in first[:5]] == [
        "overview-bits=3", "accuracy-bytes-bits=3", "levels-bits=3", "relative_var-bits=3", "accuracy_per_bit",
    ]  # fmt: skip
    assert [figure.name for figure in first[5:]] == ["overview-bits=2", "accuracy-bytes-bits=2", "levels-bits=2"]
    assert len(every) > 8 * len(first)
    against_time = [figure.name for figure in figures.first(every, ["time"])]
    assert against_time[:2] == ["overview-time-bits=3", "accuracy-time-bits=3"]


def test_figures_are_chosen_by_name_or_kind(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for bits in (2, 3):
        for method in ("alq", "qsgd"):
            write_run("s", {"method": method, "method.bits": bits}, everything(1, (0, 51)))
    every = list(figures.named(load(tmp_path / "runs", "s"), 3.4))
    patterns = ["levels", "accuracy-bits=2", "overview-*", "levels-bits=3"]
    names = [figure.name for figure in figures.only(every, patterns)]
    assert names[:3] == ["levels-bits=2", "levels-bits=3", "accuracy-bits=2"]
    assert {"overview-bits=2", "overview-time-bits=3"} < set(names)
    with pytest.raises(ValueError, match="unknown figure of the chosen runs 'levelz'; did you mean 'levels'"):
        figures.only(every, ["levelz"])


# What an axis says it shows -> the tag whose values must lie on the curve.  Written from the list of scalar names.
SAYS = {
    "validation_loss": ("validation loss", "Vloss"),
    "training_loss": ("training loss", "Tloss"),
    "accuracy": ("validation accuracy (%)", "Vacc"),
    "correlation": ("validation correlation", "Vpearson"),
    "est_var": ("variance of the gradient", "est_var"),
    "est_nvar": ("variance / second moment", "est_nvar"),
    "est_snr": ("log signal-to-noise ratio", "est_snr"),
    "norm_var": ("var. of normalised coordinates", "norm_var"),
    "nb_error": ("error of the levels Ψ", "nb_error"),
    "relative_var": ("variance relative to SuperSGD", "est_var / super_var"),
}
# The largest position on an axis -> its label there, and what its unit is worth.
UNITS = {
    "bytes": [(2e3, "kB", 1e3), (3e6, "MB", 1e6), (4e9, "GB", 1e9), (5e12, "TB", 1e12)],
    "time": [(200.0, "(s)", 1.0), (1200.0, "(min)", 60.0), (36000.0, "(h)", 3600.0)],
    "step": [(200.0, "training step", 1.0)],
}


def test_labels_say_what_is_drawn(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """Each tag has values of its own, so that a curve of another one, or a label of another one, is seen."""
    tags = ["Vloss", "Tloss", "loss", "Vacc", "Tacc", "Vpearson", "est_var", "super_var", "est_nvar", "est_snr"]
    tags += ["norm_var", "nb_error", "sgd_var"]
    values: dict[str, tuple[float, ...]] = {tag: (2.0 + number, 30.0 + number) for number, tag in enumerate(tags)}
    pair = zip(values["est_var"], values["super_var"], strict=True)
    values["est_var / super_var"] = tuple(above / below for above, below in pair)
    write_run("s", {"method": "alq"}, [(tag, 10 * at, values[tag][at]) for tag in tags for at in (0, 1)])
    (group,) = groups(load(tmp_path / "runs", "s"))
    assert {plot.name for plot in curves.PLOTS} == set(SAYS)
    for name, (label, tag) in SAYS.items():
        figure, problem = panel(group, name)
        assert problem is None
        axes = figure.axes[0]
        assert axes.get_ylabel() == label
        (line,) = (line for line in axes.lines if line.get_label() == "ALQ")
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float), values[tag], rtol=1e-6)
        if "%" in label:
            low, high = axes.get_ylim()
            assert low < values[tag][1] < high  # in per cent, as logged


@pytest.mark.parametrize("axis", UNITS)
def test_units_of_x_axes_are_those_of_their_labels(write_run: Callable[..., Path], tmp_path: Path, axis: str) -> None:
    for number, (largest, words, worth) in enumerate(UNITS[axis]):
        rows = [("Vacc", step, 50.0) for step in (100, 200)]
        rows += [("comm/bytes", step, largest * step / 200) for step in (100, 200)]
        rows += [("time/step_s", step, largest / 200) for step in (100, 200)]
        write_run(f"s{number}", {"method": "alq"}, rows)
        (group,) = groups(load(tmp_path / "runs", f"s{number}"))
        figure, problem = panel(group, "accuracy", axis)
        assert problem is None and words in figure.axes[0].get_xlabel()
        (line,) = (line for line in figure.axes[0].lines if line.get_label() == "ALQ")
        np.testing.assert_allclose(np.asarray(line.get_xdata(), float)[-1] * worth, largest, rtol=1e-5)
