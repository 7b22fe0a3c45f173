"""Curves to explore: means over seeds as data, which the page's script fills into the plots of ``plots``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis import axes
from analysis.groups.seed_groups import Group, SeedGroup
from analysis.logs.load import Logs
from analysis.plots.curves import PLOTS, Means, Plot
from analysis.plots.style import look
from analysis.report.plots import MOST_DROPS

MOST_POINTS = 120_000  # points of all curves together
MOST_PER_CURVE, FEWEST_PER_CURVE = 300, 12
MOST_SLOTS = 40
_DIGITS = 5
_MARKERS = {"o": "circle", "s": "square", "^": "triangle", "v": "inverted_triangle", "<": "triangle_pin",
            ">": "triangle_dot", "D": "diamond", "d": "plus", "p": "hex", "h": "square_pin", "8": "y", "H": "dash",
            "*": "star", "X": "x", "P": "cross"}  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """Curves: data for the page's script (see curves.js), the slots that a plot needs, and notes, a sentence each."""

    data: dict[str, Any]
    slots: int
    notes: tuple[str, ...]


def curves(of_groups: Sequence[Means]) -> Curves | None:
    """The means (of ``figures.means_of``) of every quantity and seed group, thinned; None where there are none."""
    found, notes = [], []
    pool: dict[tuple[float | None, ...], int] = {}  # x values, each kept once: most curves share their steps
    of_sweep = [(means, _quantities(means)) for means in of_groups]
    count = sum(len(drawn) for _, quantities in of_sweep for _, drawn in quantities)
    most = int(min(MOST_PER_CURVE, max(FEWEST_PER_CURVE, MOST_POINTS // max(1, count))))
    thinned = False
    for means, quantities in of_sweep:
        if not quantities:
            continue
        seed_groups = means.group.seed_groups[:MOST_SLOTS]
        if len(means.group.seed_groups) > MOST_SLOTS:
            notes.append(
                f"{group_title(means.group)}: the first {MOST_SLOTS} of {len(means.group.seed_groups)} curves are shown"
            )
        slots = {seed_group.label: slot for slot, seed_group in enumerate(seed_groups)}
        shown = [(plot, [each for each in drawn if each.seed_group.label in slots]) for plot, drawn in quantities]
        everything = [each for _, drawn in shown for each in drawn]
        thinned |= any(len(each.step) > most for each in everything)
        places = _Places.of(means.group.logs, everything, most)
        made = [_quantity(plot, drawn, slots, places, most, pool) for plot, drawn in shown]
        drops = [int(step) for step in means.drops[:MOST_DROPS]]
        looks = [_drawn_as(seed_group) for seed_group in seed_groups]
        title = group_title(means.group)
        found.append({"title": title, "seed_groups": looks, "quantities": made, "drops": drops})
    if not found:
        return None
    if thinned:
        notes.append(f"curves are thinned to {most} points each")
    largest = max(len(group["seed_groups"]) for group in found)
    return Curves({"groups": found, "xs": list(map(list, pool))}, largest, tuple(notes))


def group_title(group: Group) -> str:
    """The title of a group of runs: ``bits=3, trained with the quantized gradient``."""
    where = "measured on the SGD trajectory" if group.trajectory == "sgd" else "trained with the quantized gradient"
    differs = group.name.removeprefix("sgd_trajectory").strip("-").replace("-", ", ") if group.differs else ""
    return f"{differs}, {where}" if differs else where


def _quantities(means: Means) -> list[tuple[Plot, list[Any]]]:
    """The quantities that the group's runs have logged, each with the means over seeds that the figures show."""
    plots = [plot for plot in PLOTS if means.group.trajectory in plot.trajectories]
    return [(plot, drawn) for plot in plots if not isinstance(drawn := means.of(plot), str)]


@dataclass(frozen=True)
class _Places:
    """The positions (steps x runs, in the unit of ``labels``) of a group's runs on each axis at the steps drawn."""

    steps: np.ndarray
    column: dict[str, int]
    of_axis: dict[str, np.ndarray]
    labels: dict[str, str]

    @classmethod
    def of(cls, logs: Logs, curves: Sequence[Any], most: int) -> _Places:
        steps = np.unique(np.concatenate([each.step[_spread(len(each.step), most)] for each in curves]))
        runs = list(dict.fromkeys(run for each in curves for run in each.runs))
        of_axis, labels = {}, {}
        for axis in axes.AXES:
            found = axes.positions(logs, axis, runs, steps).to_numpy(float)
            largest = np.nanmax(found, initial=-np.inf)
            if np.isfinite(largest):
                size, labels[axis] = axes.unit(axis, float(largest))
                of_axis[axis] = found / size
        return cls(steps, {run: number for number, run in enumerate(runs)}, of_axis, labels)

    def mean(self, curve: Any, kept: np.ndarray) -> dict[str, np.ndarray]:
        """The mean position on each axis over the runs of a curve, at some of its steps."""
        rows = np.searchsorted(self.steps, curve.step[kept])[:, None]
        columns = [self.column[run] for run in curve.runs]
        return {axis: where[rows, columns].mean(axis=1) for axis, where in self.of_axis.items()}


def _quantity(
    plot: Plot, drawn: Sequence[Any], slots: Mapping[str, int], places: _Places, most: int, pool: dict[tuple, int]
) -> dict[str, Any]:
    """One quantity of a group: its curves, and the labels of its x axes."""
    made, there = [], set()
    for each in drawn:
        kept = _spread(len(each.step), most)
        xs = {axis: tuple(_short(x)) for axis, x in places.mean(each, kept).items() if np.isfinite(x).any()}
        xs = {axis: pool.setdefault(x, len(pool)) for axis, x in xs.items()}
        there |= set(xs)
        names = ("mean", "low", "high") if np.isfinite(each.low).any() else ("mean",)
        curve = {"seed_group": slots[each.seed_group.label], "label": each.label, "n": len(each.runs), "x": xs}
        made.append({**curve, **{name: _short(getattr(each, name)[kept]) for name in names}})
    labels = {axis: label for axis, label in places.labels.items() if axis in there}
    return {"title": plot.title, "label": plot.label, "log": plot.log, "axes": labels, "curves": made}


def _spread(length: int, most: int) -> np.ndarray:
    """Evenly spread positions, at most so many, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))


def _short(values: np.ndarray) -> list[float | None]:
    """The numbers in five digits; None where there is none."""
    return [_number(value) if np.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def _number(value: float) -> float:
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _drawn_as(seed_group: SeedGroup) -> dict[str, Any]:
    style = look(seed_group)
    dash = [] if style.dash == "-" else [round(2 * part, 1) for part in style.dash[1]]
    marker = _MARKERS.get(style.marker, "circle") if isinstance(style.marker, str) else "asterisk"
    return {"label": seed_group.label, "colour": style.colour, "dash": dash, "marker": marker, "hollow": style.hollow}
