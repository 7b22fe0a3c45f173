"""Every figure of many settings and odd sweeps: nothing is cut, covered or too small to read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from analysis import figures, restyled
from analysis.axes import AXES
from analysis.groups.seed_groups import Group, groups, seed_groups
from analysis.logs.load import Logs, load
from analysis.plots import curves, style
from nuq.registry import METHODS
from tests.analysis.conftest import everything
from tests.tiers import few

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


def check(figure: Figure, name: str) -> None:
    """Check that nothing is cut, nothing lies on something else, and nothing is too small to read."""
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


@pytest.mark.slow
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


LONG = ("relative_var", "norm_var", "nb_error", "validation_loss", "accuracy")  # titles of panels, or numbers of ticks


@pytest.mark.parametrize(
    ("kind", "panels"), [("overview-bytes", LONG), pytest.param("overview", (), marks=pytest.mark.slow)]
)
def test_an_overview_of_one_column_fits_on_a_page_and_keeps_clear_of_its_labels(
    one: Callable[..., tuple[Logs, Group]], kind: str, panels: tuple[str, ...]
) -> None:
    """Five panels below each other would be 13 inches high."""
    logs, _ = one(["supersgd", "alq"], seeds=1)
    with restyled.using(restyled.Style(width=3.4, panels=panels)):
        figure = next(named for named in figures.named(logs, 3.4) if named.kind == kind).make()
    assert isinstance(figure, Figure), figure
    check(figure, kind)
    labels = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
    assert all(Bbox.intersection(one, other) is None for one, other in itertools.combinations(labels, 2))
    assert figure.get_figwidth() == 3.4 and figure.get_figheight() <= 9


@pytest.mark.slow
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
    for axis, plot in zip(itertools.cycle(AXES), curves.PLOTS, strict=False):
        figure = figures._single(
            style.WIDTHS["column"], lambda axes, plot=plot, axis=axis: curves.curves(axes, means, plot, axis)
        )
        assert isinstance(figure, Figure)
        check(figure, f"{plot.name}-{axis}")
    overview = figures._overview(means, "time")
    assert isinstance(overview, Figure)
    check(overview, "overview")


@pytest.mark.slow
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
        {"levels"},  # no curve
    ),
    "one point with bytes": ([("Vacc", 10, 10.0), ("comm/bytes", 10, 100.0)], set()),
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


@few(2, "kind", ODD)
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


def test_axes_select_and_are_checked(one: Callable[..., tuple[Logs, Group]]) -> None:
    logs, _ = one(["sgd", "alq"])
    names = {named.name for named in figures.named(logs, 3.4, axes=["time"])}
    assert names & set(AGAINST) == {name for name in AGAINST if name.endswith("-time")}
    assert names >= MEASURED
    with pytest.raises(ValueError, match="axis 'wall' does not exist"):
        next(figures.named(logs, 3.4, axes=["wall"]))
