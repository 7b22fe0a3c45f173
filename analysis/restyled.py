"""The look of figures that somebody chose: a style file, read and checked, and in force while figures are drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from files.plain import read_yaml
from nuq.registry import METHODS
from nuq.settings import named, read, setting, unknown

FORMATS = ("png", "pdf")
LEGAL_FORMATS = ("png", "pdf", "svg", "eps")
LEGENDS = ("below", "right", "none", "best", "upper left", "upper right", "lower left", "lower right", "center right")


def _size(default: float | None, reason: str) -> Any:
    return setting(default, reason, low=1.5, high=100, must="be a number of inches, 1.5 to 100")


@dataclass(frozen=True)
class Style:
    """What differs from our own look; the empty style changes nothing."""

    width: float | None = _size(None, "inches of every figure; None: --width")
    height: float | None = _size(None, "inches of every figure; None: as its panels and legend need")
    rc: Mapping[str, Any] = setting({}, "any of matplotlib's rc settings")
    names: Mapping[str, str] = setting({}, "method: what figures call it")
    order: tuple[str, ...] = setting((), "methods, first to last; the others follow")
    colors: Mapping[str, str] = setting({}, "method: its color, as matplotlib knows colors")
    labels: Mapping[str, str] = setting({}, "whole words on an axis, above a panel or in the legend: others")
    panels: tuple[str, ...] = setting((), "the panels of an overview, in this order; none: all that have data")
    legend: str = setting(
        "below", "its place: outside of the panels, within the first one, or nowhere", choices=LEGENDS
    )
    formats: tuple[str, ...] = setting(FORMATS, "of the files", items=1)


OURS = Style()
_CHOSEN: ContextVar[Style | None] = ContextVar("style", default=None)


def chosen() -> Style:
    """The style in force."""
    return _CHOSEN.get() or OURS


@contextlib.contextmanager
def using(style: Style) -> Iterator[None]:
    """Have a style in force."""
    token = _CHOSEN.set(style)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def read_style(path: Path) -> Style:
    """The style of a YAML file; ValueError with the file's name and what is wrong."""
    try:
        style: Style = read(Style, named(read_yaml(path) or {}))
        _check_look(style)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return style


def _check_look(style: Style) -> None:
    """Raise ValueError for a method or format that is not known, or where matplotlib would refuse a value."""
    import matplotlib
    from matplotlib.colors import is_color_like, to_rgba

    for name, methods in (("names", style.names), ("order", style.order), ("colors", style.colors)):
        for method in methods:
            if method not in METHODS:
                raise ValueError(f"{name}: {unknown('method', method, METHODS)}")
    for name in style.names.values():
        if not name or list(style.names.values()).count(name) > 1:
            raise ValueError(f"names: {name!r}: must not be empty, and of one method only, to tell them apart")
    for form in style.formats:
        if form not in LEGAL_FORMATS:
            raise ValueError(f"formats: {unknown('format', form, list(LEGAL_FORMATS))}")
    for method, color in style.colors.items():
        if not is_color_like(color) or to_rgba(color)[3] < 1:
            known = "that matplotlib knows, and opaque (red, '#d55e00', C3)"
            raise ValueError(f"colors.{method}={color!r}: must be a color {known}")
    for name, value in style.rc.items():
        if name not in matplotlib.rcParams:
            family = [one for one in matplotlib.rcParams if one.startswith(f"{name.partition('.')[0]}.")]
            raise ValueError(f"rc: {unknown('setting of matplotlib', name, family or ['axes.*', 'font.*', 'lines.*'])}")
        try:
            matplotlib.RcParams({name: value})
        except (TypeError, ValueError) as error:
            raise ValueError(f"rc.{name}={value!r}: {error}") from error
