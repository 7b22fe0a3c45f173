"""The look of figures that somebody chose: a style file, read and checked, and in force while figures are drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from files.plain import parsed_yaml, read_text
from nuq.registry import METHODS
from nuq.settings import named, read, setting, unknown

FORMATS = ("png", "pdf")
LEGAL_FORMATS = ("png", "pdf", "svg", "eps")
# what figures do not take from matplotlib's settings, and what says it instead
_NOT_READ = {
    "figure.figsize": "give width and height",
    "figure.autolayout": "figures are laid out so that nothing overlaps",
    "figure.constrained_layout.use": "figures are laid out so that nothing overlaps",
    "savefig.format": "give formats",
}
LEGENDS = ("below", "right", "none", "best", "upper left", "upper right", "lower left", "lower right", "center right")
SIZES = "1.5 to 100"  # inches


def _size(default: float | None, reason: str) -> Any:
    return setting(default, reason, low=1.5, high=100, must=f"be a number of inches, {SIZES}")


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
_WORDS: ContextVar[set[str]] = ContextVar("words")


def chosen() -> Style:
    """The style in force."""
    return _CHOSEN.get() or OURS


@contextlib.contextmanager
def using(style: Style) -> Iterator[None]:
    """Have a style in force."""
    tokens = _CHOSEN.set(style), _WORDS.set(set())
    try:
        yield
    finally:
        _CHOSEN.reset(tokens[0])
        _WORDS.reset(tokens[1])


def label(words: str) -> str:
    """What the style in force puts in place of words on an axis, above a panel or in the legend."""
    _WORDS.get(set()).add(words)
    return chosen().labels.get(words, words)


def labelled() -> frozenset[str]:
    """The words of which figures have asked for the ``label`` since the style is in force."""
    return frozenset(_WORDS.get(()))


def once(where: str, words: Sequence[str]) -> None:
    """Raise ValueError where one of the words is empty or given twice."""
    for number, word in enumerate(words):
        if not word:
            raise ValueError(f"{where}: a name must not be empty")
        if word in words[:number]:
            raise ValueError(f"{where}: {word!r} is given twice")


def read_style(path: Path, panels: Collection[str]) -> Style:
    """The style of a YAML file; ValueError with the file's name, the line and what is wrong.

    ``panels``: the names of those that there are.
    """
    style, values = OURS, {}
    try:
        text = read_text(path)
        if not isinstance(whole := parsed_yaml(text), dict | None):
            named(whole)  # which is an error
        for line, key, value in _entries(text):
            try:
                values[key] = _joined(values.get(key), value)
                style = read(Style, values)
                _check_look(style, panels)
            except ValueError as error:
                raise ValueError(f"line {line}: {error}") from error
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return style


def _entries(text: str) -> Iterator[tuple[int, Any, Any]]:
    """The line, the key and the value of every entry of a style file; mappings and lists come one item at a time."""
    import yaml

    loader = yaml.SafeLoader(text)
    for line, key, node in _pairs(loader, loader.get_single_node()):
        if isinstance(node, yaml.MappingNode) and node.value:
            for own_line, name, item in _pairs(loader, node):
                yield own_line, key, {name: loader.construct_object(item, deep=True)}
        elif isinstance(node, yaml.SequenceNode) and node.value and isinstance(getattr(OURS, str(key), None), tuple):
            for item in node.value:
                yield item.start_mark.line + 1, key, [loader.construct_object(item, deep=True)]
        else:
            yield line, key, loader.construct_object(node, deep=True)


def _pairs(loader: Any, mapping: Any) -> Iterator[tuple[int, Any, Any]]:
    """The line, the key and the node of each value of a mapping; ValueError for a key that comes twice."""
    keys = []
    for key_node, node in mapping.value if mapping else ():
        line, key = key_node.start_mark.line + 1, loader.construct_object(key_node, deep=True)
        if key in keys:
            raise ValueError(f"line {line}: {key!r} is given twice")
        keys.append(key)
        yield line, key, node


def _joined(before: Any, item: Any) -> Any:
    """What has been read of a mapping or list, and one more item of it."""
    if isinstance(before, dict):
        return {**before, **item}
    return [*before, *item] if isinstance(before, list) else item


def _check_look(style: Style, panels: Collection[str]) -> None:
    """Raise ValueError for a method, panel or format that is not known, or what matplotlib would refuse or not read."""
    import matplotlib
    from matplotlib.colors import is_color_like, to_rgba
    from matplotlib.font_manager import FontProperties, findfont

    for name, methods in (("names", style.names), ("order", style.order), ("colors", style.colors)):
        for method in methods:
            if method not in METHODS:
                raise ValueError(f"{name}: {unknown('method', method, METHODS)}")
    for panel in style.panels:
        if panel not in panels:
            raise ValueError(f"panels: {unknown('panel', panel, list(panels))}")
    for where in ("order", "panels", "formats", "labels"):
        once(where, [*getattr(style, where)])
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
        if name in _NOT_READ:
            raise ValueError(f"rc: {name} has no effect here: {_NOT_READ[name]}")
        try:
            matplotlib.RcParams({name: value})
        except (TypeError, ValueError) as error:
            raise ValueError(f"rc.{name}={value!r}: {error}") from error
    own: dict[Any, Any] = {**style.rc}
    with matplotlib.rc_context(own):
        font, settings = FontProperties(), cast(Mapping[str, Any], matplotlib.rcParams)
        try:
            findfont(font, fallback_to_default=False)
        except ValueError as error:
            fonts = [name for family in font.get_family() for name in settings.get(f"font.{family}", [family])]
            raise ValueError(f"rc: none of the fonts {', '.join(fonts)} is installed") from error
