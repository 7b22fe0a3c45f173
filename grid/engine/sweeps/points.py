"""Points of a sweep and how they combine: axes, products, unions, zips, rows, conditions and exclusions.

Everything here is a function from points to points, so that a sweep reads like the table that it stands for::

    product(
        point(data="cifar10", model="resnet8"),
        union(point("QSGD", method="qsgd"), point("ALQ", method="alq")),
        when("method=alq", axis("method.fit=mixture,histogram")),
        zipped(axis("workers=2,4"), axis("batch_size=256,128")),
        when("workers=4", needs(ranks=4)),
    )
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import args
from nuq.registry import METHODS
from nuq.settings import declared, unknown
from settings import command_line
from settings.resources import Resources

Settings = Mapping[str, Any]
# A condition holds for some settings: a text in Hydra's grammar (method=alq,amq), a mapping to one value or a list of
# them, or a function of the settings that are given so far.
Condition = str | Settings | Callable[[Settings], bool]
_UNSET = object()


@dataclass(frozen=True)
class Point:
    """Some settings of an experiment under a label, and the resources it needs.

    The chosen method, data set and model must read every setting, except those named in ``optional``: they are kept
    only where the method reads them (bits mean nothing to TRN), which is how one axis serves methods of different
    kinds.
    """

    label: str = ""
    settings: Settings = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    resources: Settings = field(default_factory=dict)  # the resources, by the names of Resources

    is_nameless: bool = False  # its method was set without a label
    after: tuple[str, ...] = ()  # labels of earlier points: each seed waits until theirs are done

    def __post_init__(self) -> None:
        if not self.label and "method" in self.settings:
            object.__setattr__(self, "is_nameless", True)

    def full_label(self, method: str) -> str:
        """The label, with the method's title before it where nobody named the method."""
        title = METHODS[method].title
        if not self.label:
            return title
        is_named = any(name.casefold() in self.label.casefold() for name in (method, title))
        return f"{title} {self.label}" if self.is_nameless and not is_named else self.label


@dataclass(frozen=True)
class When:
    """Axes for those points of a product that meet a condition; the others go on as they are."""

    condition: Condition
    axes: tuple[Axis | When, ...]


Axis = Point | Sequence[Point]


def point(label: str = "", settings: Settings | None = None, /, **plain: Any) -> Point:
    """A point of settings; those with a dot in their name come as a dict, the others may come as keywords."""
    return Point(label, {**(settings or {}), **plain})


def where_read(settings: Settings, label: str = "") -> Point:
    """Settings of the method, kept only for the methods that read them; ValueError for one that no method knows."""
    for name in settings:
        if not name.startswith("method."):
            raise ValueError(f"where_read: {name!r} is no setting of the method; give it with point()")
        known = frozenset[str]().union(*(_read(entry.settings) for entry in METHODS.values()))
        if name not in known:
            raise unknown("setting of any method", name, list(known))
    return Point(label, dict(settings), frozenset(settings))


def needs(**resources: Any) -> Point:
    """A point that has only resources, such as ``needs(gpus=2, time="4:00:00")``; see Resources for the names."""
    check_resources(resources)
    return Point(resources=resources)


def after(*labels: str) -> Point:
    """A point that waits: each seed starts when that of the experiments with these labels is done.

    They stand before it in the sweep.  Where there is one label, ``{after}`` in a text of the point's settings is that
    run's folder: ``point("fine", {"model.weights_file": "{after}/checkpoint.pt"})``.
    """
    for label in labels or ("",):
        if not isinstance(label, str) or not label.strip():
            raise ValueError(f"after({', '.join(map(repr, labels))}): give the labels of the experiments to wait for")
    return Point(after=labels)


def check_resources(resources: Settings) -> None:
    """Raise ValueError where a name or a value makes no sense by itself; ranks may still come from elsewhere."""
    if not isinstance(resources, Mapping):
        raise ValueError(f"resources={resources!r}: must be a dict such as {{'gpus': 2}}")
    ranks = {"ranks": resources["nodes"]} if "nodes" in resources and "ranks" not in resources else {}
    Resources().merged({**resources, **ranks})


def axis(name: str, values: Iterable[Any] | None = None) -> list[Point]:
    """An axis: one point per value of a setting, labelled ``bits=3``.

    A setting of the method is kept where the method reads it.

    ``axis("method.bits", [2, 3])``, or both in Hydra's override grammar: ``axis("method.bits=2,3")``,
    ``axis("method.bits=range(2,8)")``, ``axis("schedule.at=[100,200],[300]")``.
    """
    if values is None:
        name, values = parsed(name)
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"axis {name!r}: values={values!r} must be a list; as one text: axis('{name}=1,2,3')")
    make = where_read if name.startswith("method.") else lambda settings, label: point(label, settings)
    points = [make({name: value}, f"{name.rpartition('.')[2]}={value}") for value in values]
    if not points:
        raise ValueError(f"axis {name!r} holds no value")
    return points


def union(*axes: Axis) -> list[Point]:
    """All points of all axes, in order."""
    return [item for part in axes for item in _points(part, "union")]


def product(*axes: Axis | When) -> list[Point]:
    """Every combination of one point from each axis; the first axis varies slowest, later settings win."""
    groups = [[Point()]]
    for part in axes:
        groups = _extended(groups, part)
    return groups[0]


def zipped(*axes: Axis) -> list[Point]:
    """The first points of all axes together, then the second ones, and so on.

    ValueError unless all are equally long.
    """
    columns = [_points(part, "zipped") for part in axes]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{len(column)} ({column[0].label} ..)" if column else "0" for column in columns)
        raise ValueError(f"zipped: the axes must be equally long, but hold {lengths} points")
    return [functools.reduce(_merge, row) for row in zip(*columns, strict=True)]


def rows(*table: Settings | Sequence[str] | Point) -> list[Point]:
    """Explicit rows of settings, each ``{"method": "alq", "method.bits": 3}`` or ``["method=alq", "method.bits=3"]``.

    A row's ``label`` and ``resources`` are not settings; without a label it is made of the settings.
    """
    return [row if isinstance(row, Point) else _row(row, number) for number, row in enumerate(table, start=1)]


def when(condition: Condition, *axes: Axis | When) -> When:
    """Axes of ``product`` that apply only to the points before it that meet the condition."""
    return When(condition, axes)


def without(points: Axis, *conditions: Condition) -> list[Point]:
    """The points that meet none of the conditions; ValueError where one excludes nothing, or all of them everything."""
    rest = list(_points(points, "without"))
    for condition in conditions:
        matches = _matcher(condition, rest, "without")
        left = [item for item in rest if not matches(item)]
        if len(left) == len(rest):
            raise ValueError(f"without({_shown(condition)}): excludes nothing of {len(rest)} points")
        rest = left
    if not rest:
        raise ValueError(f"without({', '.join(map(_shown, conditions))}): excludes every point")
    return rest


# --- Hydra's grammar ----------------------------------------------------------------------------------------------


def parsed(text: str) -> tuple[str, list[Any]]:
    """The name and the values of ``method.bits=range(2,8)``; ValueError for what Hydra or a sweep cannot take."""
    from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, RangeSweep

    override = command_line.parsed(text)
    found, reason = override._value, ""  # value() leaves out the quotes
    if not override.key_or_group:
        reason = "is not of the form name=value: the name is missing"
    elif override.package is not None:
        reason = "packages (@) are not used"
    elif isinstance(found, Glob):
        reason = "glob has no values by itself; list them"
    elif isinstance(found, IntervalSweep):
        reason = "an interval has no values of its own; range(start, stop, step) or a list has"
    elif isinstance(found, ChoiceSweep | RangeSweep) and (found.shuffle or found.tags):
        reason = "shuffle and tag mean nothing in a sweep"
    if reason:
        raise ValueError(f"{text!r}: {reason}; write name=a,b,c, name=choice(..) or name=range(..)")
    values = list(override.sweep_iterator()) if isinstance(found, ChoiceSweep | RangeSweep) else [found]
    return override.key_or_group, [_plain(value, text) for value in values]


def _plain(value: Any, text: str) -> Any:
    """A parsed value without its quotes."""
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(item, text) for item in value]
    if isinstance(value, str) and "${" in value:
        raise ValueError(
            f"{text!r}: {value} is not filled in; give the value itself, in quotes where it is meant as text"
        )
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{text!r}: {value!r} must be a number, a text, a truth value or a list of these")


# --- combining ----------------------------------------------------------------------------------------------------


def kept(item: Point) -> dict[str, Any]:
    """The point's settings, less the optional ones that its method does not read."""
    method = item.settings.get("method", args.DEFAULTS["method"])
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if not item.optional:
        return dict(item.settings)
    read = _read(METHODS[method].settings)
    return {name: value for name, value in item.settings.items() if name in read or name not in item.optional}


@functools.cache
def _read(settings: type) -> frozenset[str]:
    return frozenset(f"method.{name}" for name in declared(settings))


def _points(part: Axis | When, function: str) -> Sequence[Point]:
    if isinstance(part, Point):
        return [part]
    if isinstance(part, When):
        raise ValueError(f"{function}: when() looks at the points before it, so it stands in product() only")
    if isinstance(part, str) or not isinstance(part, Sequence) or not all(isinstance(item, Point) for item in part):
        raise ValueError(f"{function}: {part!r} must be a point or a list of points, as point() and axis() make them")
    return part


def _merge(left: Point, right: Point) -> Point:
    return Point(
        " ".join(part for part in (left.label, right.label) if part),
        {**left.settings, **right.settings},
        (left.optional - right.settings.keys()) | right.optional,
        {**left.resources, **right.resources} if right.resources else left.resources,
        right.is_nameless if "method" in right.settings else left.is_nameless,
        tuple(dict.fromkeys((*left.after, *right.after))),
    )


def _extended(groups: Sequence[Sequence[Point]], part: Axis | When) -> list[list[Point]]:
    """Every group with each of its points multiplied by ``part``.

    Groups keep apart the results of each point under when().
    """
    if not isinstance(part, When):
        right = _points(part, "product")
        return [[_merge(left, item) for left in group for item in right] for group in groups]
    points = [item for group in groups for item in group]
    matches = _matcher(part.condition, points, "when")
    met = [matches(item) for item in points]
    if not any(met):
        raise ValueError(f"when({_shown(part.condition)}): no point before it meets the condition")
    inner = [[item] for item, yes in zip(points, met, strict=True) if yes]
    for inner_part in part.axes:
        inner = _extended(inner, inner_part)
    answers, made = iter(met), iter(inner)
    return [[new for item in group for new in (next(made) if next(answers) else [item])] for group in groups]


def _row(row: Settings | Sequence[str], number: int) -> Point:
    settings: dict[str, Any] = {}
    if isinstance(row, Mapping):
        settings.update(row)
    elif isinstance(row, str) or not isinstance(row, Sequence):
        raise ValueError(
            f"rows: row {number}, {row!r}, must be a dict of settings or a list of texts such as 'method=alq'"
        )
    else:
        for text in row:
            name, values = parsed(text)
            if len(values) > 1:
                raise ValueError(
                    f"rows: row {number}: {text!r} holds {len(values)} values; a row has one of each, an axis has "
                    f"several"
                )
            settings[name] = values[0]
    resources = settings.pop("resources", {})
    check_resources(resources)
    label = settings.pop("label", None) or " ".join(
        f"{name.rpartition('.')[2]}={value}" for name, value in settings.items()
    )
    return Point(label, settings, resources=resources)


def _matcher(condition: Condition, points: Sequence[Point], function: str) -> Callable[[Point], bool]:
    """A predicate on points for the condition; ValueError where it names a setting that none of the points gives."""
    if not isinstance(condition, str | Mapping):
        return lambda item: bool(condition(_given(item)))
    wanted = dict([parsed(condition)]) if isinstance(condition, str) else condition
    lists = {
        name: list(value) if isinstance(value, list | tuple | range | set) else [value]
        for name, value in wanted.items()
    }
    names = {*args.DEFAULTS, *(name for item in points for name in item.settings)}
    for name in lists:
        if name not in names:
            raise ValueError(
                f"{function}({_shown(condition)}): " + str(unknown("setting among these points", name, list(names)))
            )

    def matches(item: Point) -> bool:
        given = _given(item)
        return all(given.get(name, _UNSET) in values for name, values in lists.items())

    return matches


def _given(item: Point) -> dict[str, Any]:
    """The settings that a point has so far, with the default choices.

    An optional setting is absent where the method does not read it.
    """
    return {**args.DEFAULTS, **(kept(item) if "method" in item.settings else item.settings)}


def _shown(condition: Condition) -> str:
    return repr(condition) if isinstance(condition, str | Mapping) else getattr(condition, "__name__", "condition")
