"""The grouping of runs, never by their names: seed groups (equal but for the seed), and groups that share a figure."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

import args
from analysis import restyled
from analysis.groups.tensor_formats import FULL_PRECISION, PREFIX, compressor, keeps, label, said, spoken_of, uneven
from analysis.logs.load import Logs
from analysis.logs.parents import AT, OF, no_result_names
from nuq.registry import METHODS
from nuq.settings import declared
from settings.conditions import absent, short_name, shown


@dataclass(frozen=True)
class SeedGroup:
    """The runs of one setting that differ in nothing but the seed."""

    method: str
    variant: int  # counts the settings of a method within a figure or table
    label: str
    runs: tuple[str, ...]
    differs: Mapping[str, Any]  # the settings that tell it from the method's other seed groups


@dataclass(frozen=True)
class Group:
    """The seed groups that share one figure."""

    trajectory: str  # "method" or "sgd"
    differs: Mapping[str, Any]  # the settings that tell it from the other groups
    logs: Logs
    seed_groups: tuple[SeedGroup, ...]

    @property
    def name(self) -> str:
        """The group's part of a file name: empty for a sweep that needs one group only."""
        parts = ["sgd_trajectory"] if self.trajectory == "sgd" else []
        return "-".join(parts + [f"{short_name(key)}={shown(value)}" for key, value in self.differs.items()])


_TELLING = ("method.fit", "method.bits", "method.bucket_size", "method.table")


# --- seed groups ---------------------------------------------------------------------------------------------------


def _varying(settings: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The settings with two or more values; absent ones do not count as a value."""
    columns = {name: _distinct(settings[name].to_list()) for name in names}
    return [name for name, values in columns.items() if len({shown(each) for each in values if not absent(each)}) > 1]


def _distinct(values: Sequence[Any]) -> Iterable[Any]:
    """The values that differ, few of thousands, so that the slow look at each comes after."""
    try:
        return {(type(value), value): value for value in values}.values()  # True is not 1
    except TypeError:  # a list inside, which has no hash
        return values


_WORDS = {
    ("trajectory", "sgd"): "on the SGD trajectory",
    ("trajectory", "method"): "trained",
    ("method.scope", "model"): "entire model",
    ("method.scope", "tensor"): "layer-wise",
    ("feedback.kind", "auto"): "its paper's feedback",
    ("feedback.kind", "none"): "no feedback",
    ("feedback.kind", "error"): "error feedback",
    ("feedback.kind", "momentum"): "momentum correction",
    ("feedback.kind", "ef21"): "EF21",
    ("method.scale", "none"): "unscaled",
    ("method.fit", "normal"): "normal fit",
    ("method.fit", "mixture"): "mixture fit",
    ("method.fit", "histogram"): "histogram fit",
    ("method.solver", "paper"): "original's solver",
    ("method.solver", "exact"): "exact solver",
    ("method.rounding", "stochastic"): "independent rounding",
    ("method.rounding", "correlated"): "correlated rounding",
    ("method.objective", "mean"): "levels for the mean",
    ("method.objective", "message"): "levels for a message",
    ("method.dither", "subtractive"): "subtractive dither",
    ("method.norm", "l2"): "L2 norm",
    ("method.norm", "linf"): "Linf norm",
}


_SPEAKING = ("method.table", "method.coding", "method.values")  # settings whose values say what they are of


def of_the_method(name: str) -> bool:
    """Whether a setting says how tensors are compressed and exchanged, and not what is trained.

    Methods are compared across it.
    """
    return name.startswith(("method.", "feedback.", "exchange.", "fork.", PREFIX)) or name in ("layers", "plugins")


RATE = "optim.lr"


def without_chosen_rate(settings: pd.DataFrame) -> pd.DataFrame:
    """The settings without the learning rate, where it was chosen for each method and so belongs to it.

    That is where methods of one task have several rates, and no runs differ in the rate alone.
    """
    if RATE not in settings:
        return settings
    names = _varying(settings, [name for name in settings if name not in no_result_names() and name != RATE])

    def most_rates(names: Sequence[str]) -> int:
        rates: dict[tuple[str, ...], set[str]] = {}
        for rate, row in zip(settings[RATE], settings[list(names)].itertuples(index=False), strict=True):
            if not absent(rate):
                rates.setdefault(tuple(map(shown, row)), set()).add(shown(rate))
        return max(map(len, rates.values()), default=0)

    chosen = most_rates(names) == 1 < most_rates([name for name in names if not of_the_method(name)])
    return settings.drop(columns=[RATE]) if chosen else settings


def _phrase(name: str, value: Any) -> str:
    """A setting in words: ``mixture``, ``4 bits``, ``bucket 64``, ``p 0.5``, ``symmetric=false``, ``layer-wise``."""
    if name in (AT, OF):
        return (f"from step {shown(value)}" if name == AT else f"of {value}") if value else "from the start"
    if isinstance(value, str) and (name, value) in _WORDS:
        return _WORDS[name, value]
    if isinstance(value, bool):
        return f"{short_name(name).replace('_', ' ')}={shown(value)}"
    if isinstance(value, str) and name in _SPEAKING:
        return value
    if isinstance(value, str):
        return f"no {short_name(name)}" if value == "none" else f"{short_name(name).replace('_', ' ')} {value}"
    if name in ("method.update_at", "method.update_every"):
        steps = shown(value).strip("[]").replace(",", ", ")
        return f"updates at {steps}" if name == "method.update_at" else f"updates every {steps} steps"
    if name == "method.bits":
        return f"{shown(value)} bits"
    if name == "exchange.local_steps":
        return f"{shown(value)} local step{'s' * (value != 1)}"
    if name == "plugins":
        return ", ".join(value) or "no plug-in"
    return said(short_name(name), shown(value))


def title(method: str) -> str:
    """The name of a method in figures: the style's, else the paper's, else its own where METHODS does not know it."""
    return restyled.chosen().names.get(method, METHODS[method].title if method in METHODS else method)


def check_titles(methods: Iterable[str]) -> None:
    """Raise ValueError where two of the methods have one name in figures: nobody could tell their lines apart."""
    labels, found = restyled.chosen().labels, {}
    for method in methods:
        shown = labels.get(title(method), title(method))
        if (other := found.setdefault(shown, method)) != method:
            raise ValueError(
                f"{shown!r} would be the name of two methods in these figures, {other} and {method}: give each its own "
                "(names and labels of a --style file)"
            )


def method_order(name: str) -> tuple[int, str]:
    """The sort key of methods: first as the style in force lists them, then as METHODS does, strangers last."""
    order = list(dict.fromkeys([*restyled.chosen().order, *METHODS]))
    return (order.index(name) if name in order else len(order), name)


def seed_groups(settings: pd.DataFrame) -> tuple[SeedGroup, ...]:
    """The runs of a table of settings, grouped by method and by every setting but the seed.

    Where gradients are in full precision and other tensors are not, the method is the format of those tensors.
    """
    kept = settings.loc[settings["method.name"].notna()]
    methods, with_tensors = kept["method.name"], _keeping(kept)
    if with_tensors:
        methods = pd.Series([compressor(row) for row in kept.to_dict("records")], kept.index, dtype=object)
    names = [name for name in kept.columns if name not in no_result_names() and (with_tensors or name != "method.name")]
    found = []
    for method, of_method in sorted(kept.groupby(methods), key=lambda item: method_order(str(item[0]))):
        varying = sorted(_varying(of_method, names))
        points: dict[tuple[Any, ...], list[str]] = {}
        for run, row in zip(of_method.index, of_method[varying].to_numpy(object), strict=True):
            points.setdefault(tuple(map(_sortable, row)), []).append(run)
        wholes = {key: of_method.loc[runs[0]].to_dict() for key, runs in points.items()}
        alone = any(map(spoken_of, varying))
        heads = {key: _head(str(method), whole, with_tensors, alone=alone) for key, whole in wholes.items()}
        telling = _telling(varying, heads)
        for variant, key in enumerate(sorted(points)):
            whole = wholes[key]
            row = {name: whole[name] for name in varying}
            differs = {name: value for name, value in row.items() if not absent(value)}
            in_head = {f"method.{name}" for name in uneven(whole)} if with_tensors else ()
            told = [name for name in differs if name in telling and name not in in_head and _is_read(name, whole)]
            text = ", ".join(_phrase(name, differs[name]) for name in told)
            words = f"{heads[key]} ({text})" if text else heads[key]
            found.append(SeedGroup(str(method), variant, restyled.label(words), tuple(points[key]), differs))
    return _told_apart(found, kept) if with_tensors else tuple(found)


def _keeping(settings: pd.DataFrame) -> bool:
    """Whether any run keeps other tensors than gradients in a format."""
    own = settings.loc[:, [spoken_of(str(name)) for name in settings.columns]]
    return any(keeps(row) for row in own.drop_duplicates().to_dict("records"))


def _head(method: str, row: Mapping[str, Any], with_tensors: bool, *, alone: bool) -> str:
    """A label's first words; ``with_tensors``: other runs keep tensors in formats, ``alone``: some of the method."""
    if keeps(row) or (alone and method not in FULL_PRECISION):
        return label(row)
    return f"{title(method)}, FP32" if with_tensors and method in FULL_PRECISION else title(method)


def _told_apart(found: Sequence[SeedGroup], settings: pd.DataFrame) -> tuple[SeedGroup, ...]:
    """The seed groups, where those whose labels are equal say what is set of their formats."""
    counts = Counter(seed_group.label for seed_group in found)
    made = []
    for seed_group in found:
        if counts[seed_group.label] > 1:
            row = settings.loc[seed_group.runs[0]].to_dict()
            exact = seed_group.label.replace(label(row), label(row, exact=True), 1)
            seed_group = dataclasses.replace(seed_group, label=exact)
        made.append(seed_group)
    return tuple(made)


def _telling(varying: Sequence[str], heads: Mapping[tuple[Any, ...], str]) -> set[str]:
    """The settings that tell all points apart beside their heads: ``_TELLING``, and the fewest of the others that vary.

    A label need not repeat what follows from the rest.  heads: of each point, its values of ``varying``, the label's
    first words.
    """
    worded = [name for name in varying if not spoken_of(name)]
    kept = [*(name for name in _TELLING if name in worded), *(name for name in worded if name not in _TELLING)]
    most = len(_apart(varying, worded, heads))
    for name in reversed([name for name in kept if name not in _TELLING]):
        if len(_apart(varying, [other for other in kept if other != name], heads)) == most:
            kept.remove(name)
    return set(kept)


def _apart(varying: Sequence[str], kept: Sequence[str], heads: Mapping[tuple[Any, ...], str]) -> set[tuple[Any, ...]]:
    places = [varying.index(name) for name in kept]
    return {(head, *(point[place] for place in places)) for point, head in heads.items()}


def _is_read(name: str, row: Mapping[str, Any]) -> bool:
    """Whether a run reads a setting: not a default without effect, as that of masking is under error feedback."""
    section, _, short = name.rpartition(".")
    known = METHODS.get(str(row["method.name"]))
    schema = known.settings if known and section == "method" else args.SECTIONS.get(section)
    setting = declared(schema).get(short) if schema else None
    rule = setting.rule["read_if"] if setting else None
    if setting is None or rule is None or f"{section}.{rule[0]}" not in row or row[name] != setting.default:
        return True
    value, needed = row[f"{section}.{rule[0]}"], rule[1]
    if isinstance(needed, range):
        return absent(value) or needed.start <= value < needed.stop
    if (section, rule[0], value) == ("feedback", "kind", "auto") and known:
        value = known.feedback
    return value in (needed if isinstance(needed, tuple) else (needed,))


def _sortable(value: Any) -> tuple[int, float, str]:
    """A sort key that puts numbers in numeric order and everything else by its text."""
    if absent(value):
        return (-1, 0.0, "")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), shown(value)) if number else (1, 0.0, shown(value))


def begun(logs: Logs) -> Logs:
    """The runs without those that failed before they logged anything, in settings that no other run has.

    Nothing is known of such settings, and figures, labels and file names must not be called by them.
    """
    dead = ~logs.status["logged"].to_numpy(bool) & logs.status["state"].isin(["failed", "diverged"]).to_numpy(bool)
    if not dead.any() or dead.all():
        return logs
    names = [name for name in logs.settings if name not in no_result_names()]
    keys = [tuple(map(shown, row)) for row in logs.settings[names].itertuples(index=False)]
    living = {key for key, is_dead in zip(keys, dead, strict=True) if not is_dead}
    return logs.keep(
        run for run, key, is_dead in zip(logs.settings.index, keys, dead, strict=True) if not is_dead or key in living
    )


def groups(logs: Logs) -> list[Group]:
    """The sweep cut into figures: by trajectory, then by the settings that make curves incomparable.

    Those are the settings outside the method and its memory (data, model, workers ...) that vary within a method,
    unless it is a rate chosen for each method, and bits and bucket size where two or more methods have several.  Runs
    that do not read such a setting (SGD has no bits) stand in every figure, as references; where no figure has their
    other settings, they have one of their own.
    """
    logs = begun(logs)
    found = []
    trajectories = logs.settings["trajectory"].where(logs.settings["trajectory"] == "sgd", "method")
    for trajectory in ("method", "sgd"):
        settings = logs.settings.loc[(trajectories == trajectory) & logs.settings["method.name"].notna()]
        if not len(settings):
            continue
        cuts = _cuts(settings)
        points: dict[tuple[str | None, ...], dict[str, Any]] = {}
        rows: dict[tuple[str | None, ...], list[int]] = {}
        for number, row in enumerate(settings[cuts].to_numpy(object)):
            text = tuple(None if absent(value) else shown(value) for value in row)
            rows.setdefault(text, []).append(number)
            if None not in text:
                points.setdefault(text, dict(zip(cuts, row, strict=True)))
        for text in [text for text in rows if not any(_stands_in(text, other) for other in points)]:  # by themselves
            row = settings[cuts].iloc[rows[text][0]]
            points[text] = {str(name): value for name, value in row.items() if not absent(value)}
        order = {text: (-len(point), list(map(_sortable, point.values()))) for text, point in points.items()}
        for text, point in sorted(points.items(), key=lambda item: order[item[0]]):
            alike = [own for key, own in rows.items() if _stands_in(key, text)]
            chosen = settings.iloc[sorted(itertools.chain(*alike))]
            found.append(Group(trajectory, point, logs.keep(chosen.index), seed_groups(chosen)))
    return found


def _stands_in(key: Sequence[str | None], point: Sequence[str | None]) -> bool:
    """Whether runs with these settings belong to the figure of this point: an absent setting fits all."""
    return all(part is None or part == wanted for part, wanted in zip(key, point, strict=True))


def _cuts(settings: pd.DataFrame) -> list[str]:
    settings = without_chosen_rate(settings)
    names = [name for name in settings.columns if name not in no_result_names() and name != "method.name"]
    counts: dict[str, int] = {}
    for _, of_method in settings.groupby("method.name"):
        for name in _varying(of_method, names):
            counts[name] = counts.get(name, 0) + 1
    own = ("method.bits", "method.bucket_size")
    return sorted(name for name, count in counts.items() if not of_the_method(name) or (name in own and count > 1))
