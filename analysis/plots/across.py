"""Runs along one setting: for each method and its remaining settings, which runs have which value of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.groups.aggregate import estimate
from analysis.groups.seed_groups import Group, SeedGroup, groups, seed_groups, without_chosen_rate
from analysis.logs.load import Logs, number
from settings.conditions import short_name, shown


class Mean(NamedTuple):
    """The mean of one number over several runs, and its spread as ``Estimate`` has it (NaN for one run)."""

    mean: float
    low: float
    high: float
    spread: str = ""


@dataclass(frozen=True)
class Series:
    """The seed groups of one method that differ in nothing but the setting, by its value in ascending order.

    ``points`` is empty for a method that does not read the setting: ``seed_group`` is a reference for all values.
    """

    seed_group: SeedGroup
    points: Mapping[float, SeedGroup]


@dataclass(frozen=True)
class Panel:
    """The series that can be compared with each other: all of one task and trained alike."""

    group: Group
    series: tuple[Series, ...]
    setting: str = ""  # the setting that the series run along

    @property
    def values(self) -> list[float]:
        """Every value of the setting, ascending."""
        return sorted({value for series in self.series for value in series.points})

    @property
    def title(self) -> str:
        """The settings that tell this panel from the others; empty where nothing does."""
        return ", ".join(f"{short_name(name)} {shown(value)}" for name, value in self.group.differs.items())


def without(logs: Logs, names: Sequence[str]) -> Logs:
    """The sweep without these settings, and a rate chosen for each method: runs that differ in them fall together."""
    return replace(logs, settings=without_chosen_rate(logs.settings).drop(columns=list(names), errors="ignore"))


def along(logs: Logs, setting: str) -> list[Panel] | str:
    """The series along a setting (dotted name), by its values in the settings; a sentence where it has under two."""
    if setting not in logs.settings:
        return f"no run reads {setting}"
    there = logs.settings[setting].dropna()
    numbers = pd.Series({run: number(value) for run, value in there.items()}, dtype=float)
    if np.isnan(numbers.to_numpy()).any():
        return f"{setting} has values that are not numbers"
    if numbers.nunique() < 2:
        return f"{setting} has fewer than two values"
    panels = [
        Panel(group, tuple(_series(seed_group, numbers) for seed_group in group.seed_groups), setting)
        for group in groups(without(logs, [setting]))
    ]
    panels = [panel for panel in panels if len(panel.values) > 1]
    return panels or f"{setting} has fewer than two values among runs that can be compared"


def _series(seed_group: SeedGroup, numbers: pd.Series) -> Series:
    own = numbers.reindex(list(seed_group.runs)).dropna()
    points = {
        float(value): replace(seed_group, runs=tuple(map(str, rows.index)))  # type: ignore[arg-type]
        for value, rows in own.groupby(own)
    }
    return Series(seed_group, points)


def trade_offs(logs: Logs) -> list[Panel]:
    """The seed groups of each method, joined along what trades bits against error: the bits, or else the bucket size.

    Every seed group has a place in a series (at infinity if its method reads neither); sweeps over both have one series
    for each bucket size.
    """
    settings = without_chosen_rate(logs.settings)
    several = [
        name
        for name in ("method.bits", "method.bucket_size")
        if name in settings and len(set(settings[name].map(shown))) > 1
    ]
    along_name = next((name for name in several if varies_within_a_method(settings, name)), None)
    panels = []
    for group in groups(without(logs, several)):
        own = settings.loc[group.logs.settings.index]
        joined = seed_groups(own.drop(columns=[along_name]) if along_name else own)
        numbers = own[along_name].map(number).fillna(np.inf) if along_name else pd.Series(np.inf, own.index)
        series = tuple(_series(seed_group, numbers) for seed_group in joined)
        panels.append(Panel(replace(group, seed_groups=joined), series, along_name or ""))
    return panels


def varies_within_a_method(settings: pd.DataFrame, name: str) -> bool:
    """Whether runs of one method differ in a setting."""
    return any(len({shown(value) for value in rows[name].dropna()}) > 1 for _, rows in settings.groupby("method.name"))


def geometric(values: pd.Series) -> Mean:
    """The mean of the finite values by their logarithms, for a logarithmic axis; NaN where one is not positive."""
    finite = values.to_numpy(float)
    finite = finite[np.isfinite(finite)]
    if not len(finite) or finite.min() <= 0:
        return Mean(np.nan, np.nan, np.nan)
    found = arithmetic(pd.Series(np.log(finite)))
    mean, low, high = (float(np.exp(value)) for value in found[:3])
    return Mean(mean, low, high, found.spread)


def arithmetic(values: pd.Series) -> Mean:
    """The arithmetic mean of the finite values."""
    found = estimate(values)
    return Mean(found.mean, found.low, found.high, found.spread)
