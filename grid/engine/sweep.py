"""The functions for writing a file of sweeps: points, how they combine, and ``Sweep``.

Files of users import from here.
"""

from __future__ import annotations

from grid.engine.sweeps.experiments import Experiment, Sweep
from grid.engine.sweeps.families import families, find, load, parse_seeds
from grid.engine.sweeps.points import (
    Axis,
    Point,
    Settings,
    When,
    after,
    axis,
    needs,
    point,
    product,
    rows,
    union,
    when,
    where_read,
    without,
    zipped,
)

__all__ = [
    "Axis",
    "Experiment",
    "Point",
    "Settings",
    "Sweep",
    "When",
    "after",
    "axis",
    "families",
    "find",
    "load",
    "needs",
    "parse_seeds",
    "point",
    "product",
    "rows",
    "union",
    "when",
    "where_read",
    "without",
    "zipped",
]
