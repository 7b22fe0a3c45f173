"""Legends: what they say of bands and bars, how their labels are broken, and the room that they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis import figures
from analysis.groups.seed_groups import groups
from analysis.logs.load import load
from analysis.plots import legends, level_figures
from analysis.plots.accuracy_per_bit import accuracy_per_bit
from analysis.plots.style import new_figure
from analysis.time_to_accuracy import time_to_accuracy
from tests.analysis.conftest import everything

Write = Callable[..., Path]
RANGE, INTERVAL = "the range of two or three seeds", "95 % intervals of the mean of four or more seeds"
SETTINGS = "histogram fit, levels for the mean, correlated rounding, updates at 0, 20, 100"


def sentence(figure: Figure | str) -> str:
    assert isinstance(figure, Figure), figure
    return "".join(legend.get_title().get_text() for legend in figure.legends).replace("\n", " ")


@pytest.mark.parametrize(
    ("seeds", "said"), [((3, 2), RANGE), ((4, 5), INTERVAL), ((2, 4), f"{RANGE}; {INTERVAL}"), ((1, 1), "")]
)
def test_a_figure_says_of_its_bars_what_is_drawn_and_no_more(
    write_run: Write, tmp_path: Path, seeds: tuple[int, int], said: str
) -> None:
    for method, number in zip(("supersgd", "alq"), seeds, strict=True):
        for seed in range(number):
            for bits in (2, 3) if method == "alq" else (32,):
                settings = {"method": method, "seed": seed} | ({"method.bits": bits} if bits < 32 else {})
                write_run("s", settings, everything(bits, (0, 51, 102), seed))
    logs = load(tmp_path / "runs", "s")
    assert sentence(accuracy_per_bit(logs, 7.0)) == (f"Bars and stripes: {said}" if said else "")
    (group,) = groups(logs)
    assert sentence(time_to_accuracy(logs, 7.0, 30.0)) == (f"Bars: {said}" if said else "")
    assert sentence(level_figures.final(group, 7.0)) == (f"Bars: {said}" if said else "")


@pytest.mark.parametrize(
    ("label", "letters", "lines"),
    [
        ("ALQ (mixture fit, updates at 0, 20, 100)", 25, ["ALQ (mixture fit,", "updates at 0, 20, 100)"]),
        ("QSGDinf (correlated rounding)", 25, ["QSGDinf", "(correlated rounding)"]),
        ("TRN", 25, ["TRN"]),
        ("a name of nine words without a comma in it", 20, ["a name of nine words", "without a comma in", "it"]),
    ],
)  # fmt: skip
def test_labels_are_broken_between_their_settings(label: str, letters: int, lines: list[str]) -> None:
    assert legends.broken(label, letters).split("\n") == lines


@pytest.mark.parametrize(("width", "lines"), [(7.0, 1), (3.4, 2)])
def test_labels_stay_whole_where_that_makes_no_higher_legend(width: float, lines: int) -> None:
    figure = new_figure(width, 2)
    axes = figure.add_subplot()
    for number in range(7):
        axes.plot([0, 1], label=f"ALQ ({SETTINGS.replace('20', str(20 + number))})")
    for number in range(7):
        axes.plot([0, 1], label=f"TopK {number}")
    rows = legends.legend_rows(figure, width)
    assert rows == {1: 7, 2: 21}[lines]
    legends.legend_below(figure, width)
    found = {text.get_text().count("\n") + 1 for text in figure.legends[0].get_texts()}
    assert found == {1, lines}


def test_a_long_legend_makes_a_figure_across_settings_as_wide_as_the_page(write_run: Write, tmp_path: Path) -> None:
    for number in range(25):
        for bits in (2, 3):
            settings = {"method": "amq", "method.bits": bits, "method.num_samples": 10_000_000 + number}
            write_run("s", settings, [("Vacc", 9, 50.0), ("comm/bits_per_coordinate", 9, float(bits))])
    named = {figure.name: figure for figure in figures.named(load(tmp_path / "runs", "s"), 3.4, axes=["step"])}
    figure = named["accuracy_per_bit"].make()
    assert isinstance(figure, Figure) and figure.get_figwidth() == 7.0
