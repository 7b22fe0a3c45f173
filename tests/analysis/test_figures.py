"""Figures: what they show, that nothing covers anything, and that odd sweeps end in a sentence."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from analysis import figures
from analysis.axes import AXES
from analysis.logs.load import Logs, load
from analysis.plots import curves, legends, style
from analysis.seed_groups import Group, groups, seed_groups
from nuq.registry import METHODS
from tests.analysis.conftest import Rows, measured

CURVES = (
    "est_var",
    "relative_var",
    "est_nvar",
    "est_snr",
    "norm_var",
    "nb_error",
    "validation_loss",
    "training_loss",
    "accuracy",
    "correlation",
)
AGAINST = [f"{name}{end}" for end in ("", "-time", "-epoch", "-bytes") for name in ("overview", *CURVES)]
MEASURED = {"levels", "levels_steps", "bits_accuracy"}  # of those not against an axis, what ``everything`` has data for


def everything(level: float, steps: Sequence[int], seed: int = 1) -> Rows:
    """``measured``, and what else a curve or an axis needs; an epoch has 25 steps."""
    rows = list(measured(level, steps, seed))
    for step in steps:
        wave = 1 + 0.1 * ((step * 7 + seed * 3) % 5)
        rows += [
            ("est_nvar", step, 0.01 * level * wave),
            ("est_snr", step, wave),
            ("norm_var", step, 1e-3 * level * wave),
        ]
        rows += [("time/step_s", step, 0.02 * level), ("Vpearson", step, 1 - 0.01 * level - 5 / (step + 10))]
        rows += [("epoch", step, (step - 1) // 25), ("batch_idx", step, (step - 1) % 25)] if step else []
    return rows


@pytest.fixture
def one(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[Logs, Group]]:
    """A sweep of some methods and seeds, and its only group."""

    def made(
        methods: list[str], seeds: int = 2, steps: tuple[int, ...] = (0, 51, 102), **settings: object
    ) -> tuple[Logs, Group]:
        for level, method in enumerate(methods, 1):
            for seed in range(1, seeds + 1):
                write_run("s", {"method": method, "seed": seed, **settings}, everything(level, steps, seed))
        logs = load(tmp_path / "runs", "s")
        (group,) = groups(logs)
        return logs, group

    return made


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


@pytest.mark.parametrize("methods", [6, 8])
def test_of_many_bands_the_wide_ones_are_left_out(write_run: Callable[..., Path], tmp_path: Path, methods: int) -> None:
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
    assert len(figure.axes[0].collections) == (6 if methods == 6 else 1)
    with matplotlib.rc_context(style.RC):
        legends.legend_below(figure, 7.0)
    assert (legends.NO_BANDS in [text.get_text() for text in figure.legends[0].get_texts()]) == (methods == 8)


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


@matplotlib.rc_context(style.RC)
def check(figure: Figure, name: str) -> None:
    """Nothing is cut, nothing lies on something else, nothing is too small to read."""
    figure.draw_without_rendering()
    page = figure.bbox
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert all(Bbox.intersection(box, axes.bbox) is None for axes in figure.axes), name
        assert within(box, page), name
    shown = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]
    assert min(float(text.get_fontsize()) for text in shown) >= 7, name
    assert not any("$" in text.get_text() for text in shown), (
        name,
        "a name may hold dollars, so nothing is set as mathematics",
    )
    for axes in figure.axes:
        assert within(axes.get_tightbbox(), page), (name, "a label is cut")
    for (first, one), (second, other) in itertools.combinations(ticks_and_labels(figure), 2):
        overlap = Bbox.intersection(one, other)
        assert overlap is None or min(overlap.width, overlap.height) < 2, (name, first, second)


def ticks_and_labels(figure: Figure) -> list[tuple[str, Bbox]]:
    found = []
    for axes in figure.axes:
        for line, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = [tick.label1 for tick in line.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [
                (text.get_text(), text.get_window_extent())
                for text in [*ticks, line.label]
                if text.get_text() and text.get_visible()
            ]
    return found


def within(box: BboxBase | None, page: BboxBase) -> bool:
    return box is not None and box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1


@pytest.mark.parametrize("width", style.WIDTHS)
def test_all_figures_of_all_methods_keep_clear_of_their_labels(
    one: Callable[..., tuple[Logs, Group]], width: str
) -> None:
    logs, _ = one(list(METHODS), seeds=1, steps=(0, 61, 122), **{"schedule": "step", "schedule.at": [60]})
    drawn = {}
    axes = AXES if width == "column" else ("step",)  # the widest numbers fit on a page where they fit in a column
    for named in figures.named(logs, style.WIDTHS[width], axes=axes):
        if width == "page" and named.name == "overview":  # it has the width of the page anyway
            continue
        figure = named.make()
        if isinstance(figure, Figure):
            check(figure, named.name)
            drawn[named.name] = figure
    assert set(drawn) >= {*(AGAINST if width == "column" else CURVES), *MEASURED}
    assert all(drawn[name].get_figwidth() == style.WIDTHS[width] for name in CURVES)


def test_twenty_settings_with_long_names_keep_clear_of_their_labels(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    steps = (0, 30000, 80000)
    for number, (bucket, fit) in enumerate(itertools.product((64, 128, 1024, 8192, 16384), ("normal", "mixture"))):
        for method in ("alq", "amq"):
            settings = {"method": method, "method.bucket_size": bucket, "method.fit": fit}
            write_run("s", settings, everything(1 + number / 4, steps), state="running" if number % 2 else "done")
    logs = load(tmp_path / "runs", "s")
    group = replace(
        groups(logs)[0], logs=logs, seed_groups=seed_groups(logs.settings)
    )  # in one figure, not one for each bucket size
    assert len(group.seed_groups) == 20
    means = curves.Means(group)
    with matplotlib.rc_context(style.RC):
        for axis, plot in zip(itertools.cycle(AXES), curves.PLOTS, strict=False):
            figure = figures._single(
                style.WIDTHS["column"], lambda axes, plot=plot, axis=axis: curves.curves(axes, means, plot, axis)
            )
            assert isinstance(figure, Figure)
            check(figure, f"{plot.name}-{axis}")
        overview = figures._overview(means, "time")
        assert isinstance(overview, Figure)
        check(overview, "overview")


def test_too_many_curves_end_in_a_sentence(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for bucket, samples, fit in itertools.product(
        (64, 128, 1024, 8192, 16384), range(5, 10), ("normal", "mixture", "histogram")
    ):
        settings = {"method": "amq", "method.bucket_size": bucket, "method.fit": fit, "method.num_samples": samples}
        write_run("s", settings, [("Vacc", step, 50.0 + step) for step in (0, 10)])
    logs = load(tmp_path / "runs", "s")
    (accuracy,) = (named for named in figures.named(logs, style.WIDTHS["column"]) if named.name == "accuracy")
    assert accuracy.make() == "75 curves are too many for one figure: choose fewer runs"


ODD = {
    "one point": (
        [("Vacc", 0, 10.0), ("est_var", 0, 1e-5), ("levels/0", 0, -1.0), ("levels/1", 0, 1.0)],
        {"accuracy", "est_var", "levels", "overview", "accuracy-time", "est_var-time", "overview-time"},
    ),
    "one point with bytes": (
        [("Vacc", 10, 10.0), ("comm/bytes", 10, 100.0)],
        {"accuracy", "accuracy-time", "accuracy-bytes"},
    ),
    "non-finite": ([("Vacc", 0, float("nan")), ("Vloss", 0, float("inf")), ("est_var", 0, float("-inf"))], set()),
    "non-finite bytes": (
        [("Vacc", 0, 1.0), ("Vacc", 5, 2.0), ("comm/bytes", 5, float("nan"))],
        {"accuracy", "accuracy-time"},
    ),
    "zero on a log axis": ([("Vloss", 0, 0.0), ("est_var", 0, 0.0), ("est_var", 10, -1.0)], set()),
    "minibatch loss only": (
        [("loss", step, 1.0 + step) for step in range(0, 100, 20)],
        {"training_loss", "training_loss-time"},
    ),
    "constant": (
        [("Vacc", step, 50.0) for step in (0, 10)] + [("Vloss", step, 1.0) for step in (0, 10)],
        {f"{name}{end}" for name in ("accuracy", "validation_loss", "overview") for end in ("", "-time")},
    ),
    "unknown tags": ([("something/else", 3, 1.0)], set()),
    "nothing": ([], set()),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_sweeps_give_figures_or_sentences(write_run: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    rows, expected = ODD[kind]
    write_run("s", {"method": "alq"}, rows)
    found = {named.name: named.make() for named in figures.named(load(tmp_path / "runs", "s"), 3.4)}
    assert {name for name, made in found.items() if isinstance(made, Figure)} & {*AGAINST, *MEASURED} == expected
    for name, made in found.items():
        if isinstance(made, Figure):
            check(made, name)
        else:
            assert made, name


def test_a_sweep_without_runs_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "runs" / "s").mkdir(parents=True)
    drawn = figures.draw(load(tmp_path / "runs", "s"), tmp_path / "f")
    assert drawn.paths == ()


# --- incomplete cells ---------------------------------------------------------------------------------------------


def labels(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines}


def test_incomplete_cells_are_marked(write_run: Callable[..., Path], tmp_path: Path) -> None:
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
            [("Vloss", 0, 1.0), *([("Vacc", 0, 5.0)] if seed == 1 else [])],
        )
        write_run("s", {"method": "alq", "method.bits": 4, "seed": seed}, [("Vloss", 0, 1.0), ("Vacc", 0, 5.0)])
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


def test_axes_select_and_are_checked(one: Callable[..., tuple[Logs, Group]]) -> None:
    logs, _ = one(["sgd", "alq"])
    names = {named.name for named in figures.named(logs, 3.4, axes=["time"])}
    assert names & set(AGAINST) == {name for name in AGAINST if name.endswith("-time")}
    assert names >= MEASURED
    with pytest.raises(ValueError, match="axis 'wall' does not exist"):
        next(figures.named(logs, 3.4, axes=["wall"]))


def test_on_the_sgd_trajectory_nothing_is_sent(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "trajectory": "sgd", "measure.every": 10}, everything(1, (0, 51)))
    found = list(figures.named(load(tmp_path / "runs", "s"), 3.4))
    of_group = {named.name for named in found if named.section == "on the SGD trajectory"}
    assert {"est_var-sgd_trajectory", "norm_var-time-sgd_trajectory", "overview-epoch-sgd_trajectory"} <= of_group
    assert not [name for name in of_group if "-bytes" in name or name.startswith("accuracy")]


def test_figures_are_the_same_from_several_processes(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run(
        "s", {"method": "alq"}, [(tag, step, 1.0 + step) for tag in ("Vacc", "epoch", "comm/bytes") for step in (0, 10)]
    )
    logs = load(tmp_path / "runs", "s")
    drawn = [figures.draw(logs, tmp_path / str(count), axes=["epoch", "bytes"], processes=count) for count in (1, 2)]
    assert drawn[0].notes == drawn[1].notes
    assert [path.name for path in drawn[0].paths] == [path.name for path in drawn[1].paths]
    assert {path.name for path in drawn[0].paths} >= {"accuracy-epoch.pdf", "accuracy-bytes.png"}
    for first, second in zip(*(of_count.paths for of_count in drawn), strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name
