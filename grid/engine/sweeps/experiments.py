"""Sweeps and experiments: points of settings, multiplied by seeds; each run is known by its identity.

A sweep is plain Python.  A family (``grid/nuq.py``, or any file of your own) has one function per run name::

    def buckets() -> Sweep:
        \"\"\"QSGDinf against NUQSGD at three bucket sizes.\"\"\"
        methods = union(point("QSGDinf", method="qsgdinf"), point("NUQSGD", method="nuqsgd"))
        task = point(data="cifar10", model="resnet8")
        return Sweep(product(task, methods, axis("method.bucket_size=64,512,4096")), seeds=(1, 2, 3))
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import args
from files.aligned import some
from grid.engine.sweeps.points import Point, Settings, axis, check_resources, kept, product
from nuq.registry import METHODS
from nuq.settings import declared, unknown
from settings import resolving, run_identity
from settings.fork import check_alike

FILLED_IN = "{after}"  # in a text of a point's settings
NOT_IN_POINTS = {
    "seed": "seeds multiply the whole sweep: Sweep(points, seeds=(1, 2, 3)), or --seeds",
    "run_dir": "the run folder follows from sweep and settings",
}


@dataclass(frozen=True)
class Experiment:
    """One resolved run of a sweep."""

    folder: str  # the folder below runs/
    label: str  # the first point that led here
    aliases: tuple[str, ...]  # labels of other points that mean the same run
    settings: Settings  # the settings of the sweep, in dotted names
    config: Settings  # the full configuration
    resources: Settings = field(default_factory=dict)  # the resources of sweep and point, in the names of Resources
    identity: str = ""  # the configuration's, where it is known; empty: it follows from it
    after: Mapping[str, str] = field(default_factory=dict)  # the names of the runs that it waits for, with their labels

    @functools.cached_property
    def name(self) -> str:
        """The run folder's name: a readable part and the identity."""
        return run_identity.run_name(self.config, self.identity)

    @property
    def seed(self) -> int:
        return self.config["seed"]


def plugins_of(experiments: Iterable[Experiment]) -> list[str]:
    """The names of the plug-ins that these experiments need, without their versions."""
    return sorted({text.partition("==")[0] for item in experiments for text in item.config["plugins"]})


def first_seeds(number: int, what: str) -> tuple[int, ...]:
    """The seeds 1, 2, ... of a count; ValueError that names ``what`` where it is no count."""
    if not 1 <= number <= 1000:
        raise ValueError(f"{what}: a count must be 1..1000")
    return tuple(range(1, number + 1))


@dataclass(frozen=True)
class Sweep:
    """A list of points, multiplied by seeds; ``grid`` and what follows are filled in by ``load``."""

    points: Sequence[Point]
    seeds: Sequence[int] | int = (1,)  # or a count, as --seeds takes it: 3 is 1, 2, 3
    folder: str = ""  # the folder below runs/, where it is not to be named by file and function
    # The resources of all runs, or a function from a configuration to them; a point's own win.
    resources: Settings | Callable[[Settings], Settings] = field(default_factory=dict)
    # whether ended runs are kept in results/, from where another machine goes on
    keep: bool = False
    grid: str = ""
    run_name: str = ""
    doc: str = ""
    file: str = ""  # the absolute path of a user's own family

    def __post_init__(self) -> None:
        if isinstance(self.seeds, int) and not isinstance(self.seeds, bool):
            object.__setattr__(self, "seeds", first_seeds(self.seeds, f"seeds={self.seeds}"))

    @property
    def title(self) -> str:
        return f"{self.grid}.{self.run_name}"

    @property
    def home(self) -> str:
        """The folder below runs/: ``folder``, else file and function (of two equal names, as in ``demo.demo``, one)."""
        names = "_".join(dict.fromkeys((self.grid, self.run_name)))
        return self.folder or re.sub(r"[^A-Za-z0-9._-]+", "_", names).lstrip("._-") or "sweep"

    @property
    def summary(self) -> str:
        """The first paragraph of the function's docstring, on one line."""
        return " ".join(self.doc.partition("\n\n")[0].split())

    @property
    def all_seeds(self) -> Sequence[int]:
        """The seeds, where a count was given too."""
        assert not isinstance(self.seeds, int), "a count is replaced when the sweep is made"
        return self.seeds

    @property
    def num_points(self) -> int:
        """Points as listed, before aliases are joined."""
        return len(self.points) * len(self.all_seeds)

    def override(self, settings: Settings) -> Sweep:
        """Every experiment with these settings.

        A method's setting where the method reads it (ValueError if none does).
        """
        for name in settings.keys() & NOT_IN_POINTS.keys():
            raise ValueError(f"{name} cannot be set for a whole sweep: {NOT_IN_POINTS[name]}")
        changed = product(self.points, *(axis(name, [value]) for name, value in settings.items()))
        _check_read(settings, changed, self.title)
        if "method" in settings:  # what the sweep gives for its own methods is not for this one
            changed = [dataclasses.replace(item, settings=kept(item)) for item in changed]
        other = f" method={settings['method']}" if "method" in settings else ""
        labels = [f"{old.label}{other}".strip() for old in self.points]
        labelled = [
            dataclasses.replace(new, label=label, after=tuple(f"{first}{other}" for first in new.after))
            for new, label in zip(changed, labels, strict=True)
        ]
        return dataclasses.replace(self, points=labelled)

    def experiments(self) -> list[Experiment]:
        """The distinct experiments, in order; points of one identity are one experiment with aliases.

        ValueError where a point's settings or resources make no sense.
        """
        return list(self._expanded[0])

    def duplicates(self) -> list[str]:
        """Sentences that a reader of the sweep should know: points that are one run, and labels of several runs."""
        return list(self._expanded[1])

    def check_read(self) -> None:
        """Raise ValueError for a setting of the method that no method of the sweep reads, as on main.py's line.

        For what starts runs; those of a sweep that once was accepted can still be looked at, cancelled and collected.
        """
        given = sorted({name for item in self.points for name in item.optional & item.settings.keys()})
        _check_read(given, self.points, self.title)

    @functools.cached_property
    def _expanded(self) -> tuple[list[Experiment], list[str]]:
        first: dict[str, Experiment] = {}  # the first experiment of each identity
        others: dict[str, list[Point]] = {}  # later points of the same identity
        labels: dict[tuple[str, int], str] = {}  # (label, seed) -> identity
        several: dict[tuple[str, int], dict[str, None]] = {}  # the identities of a label and seed that has several
        sound: dict[str, Settings] = {}  # resources that are checked already, shared by those that ask for the same
        resolver = resolving.Resolver()
        folder = self.home
        if folder == run_identity.ALONE:
            raise ValueError(
                f"{self.title}: runs/{folder} is the folder of runs that main.py starts without a sweep: give the "
                f"sweep another, --name NAME or Sweep(..., folder=...)"
            )
        for number, item in enumerate(self.points, start=1):
            try:
                for name in item.settings.keys() & NOT_IN_POINTS.keys():
                    raise ValueError(f"{name} is no setting of a point: {NOT_IN_POINTS[name]}")
                settings = kept(item)
                if self.keep and (texts := _with_folder(settings)):
                    raise ValueError(
                        f"{next(iter(texts))}: {FILLED_IN} is a run's folder, of which results/ keeps no checkpoint "
                        "(keep=True): leave keep out"
                    )
                item = dataclasses.replace(item, label=item.full_label(_method(item)))
                if item.after:
                    waits = [self._waits(item, seed, first, labels, several) for seed in self.all_seeds]
                    each = [_filled_in(settings, names, folder) for names in waits]
                    found = [resolver.of_seeds(own, [seed])[0] for own, seed in zip(each, self.all_seeds, strict=True)]
                else:
                    waits = [{} for _ in self.all_seeds]
                    each = [_filled_in(settings, {}, folder)] * len(waits)
                    found = resolver.of_seeds(settings, self.all_seeds)
                asked = [self._asked(item, config, sound) for config, _ in found]
                for (config, _), names in zip(found, waits, strict=True):
                    if config["fork"]["run"] and names:
                        _check_fork(config, [one for one in first.values() if one.name in names])
                for (_, key), names in zip(found, waits, strict=True):
                    if key in first and first[key].after != names:
                        raise ValueError(
                            f"is the same run as {first[key].label!r}, which does not wait for the same runs"
                        )
            except ValueError as error:
                which = repr(item.label) if item.label else f"{number} of {len(self.points)}"
                raise ValueError(f"{self.title}, point {which}: {error}") from error
            for seed, (config, key), resources, own, names in zip(
                self.all_seeds, found, asked, each, waits, strict=True
            ):
                if (before := labels.setdefault((item.label, seed), key)) != key:
                    several.setdefault((item.label, seed), {before: None})[key] = None
                if key in first:
                    others.setdefault(key, []).append(dataclasses.replace(item, resources=resources))
                else:
                    given = {**own, "seed": seed}
                    first[key] = Experiment(folder, item.label, (), given, config, resources, key, names)
        for key, points in others.items():
            aliases = dict.fromkeys(item.label for item in points if item.label != first[key].label)
            first[key] = dataclasses.replace(first[key], aliases=tuple(aliases))
        return list(first.values()), list(dict.fromkeys(_reports(first, others, several)))

    def _waits(
        self,
        item: Point,
        seed: int,
        first: Mapping[str, Experiment],
        labels: Mapping[tuple[str, int], str],
        several: Mapping[tuple[str, int], Mapping[str, None]],
    ) -> dict[str, str]:
        """The names of the runs for which a point waits with this seed, with their labels."""
        found = {}
        for label in item.after:
            if (label, seed) not in labels:
                if any(label == other.full_label(_method(other)) for other in self.points):
                    raise ValueError(f"after {label!r}: is no experiment before it: list first what others wait for")
                raise unknown("label to wait for", label, list(dict.fromkeys(name for name, _ in labels)))
            for key in several.get((label, seed)) or [labels[label, seed]]:
                found[first[key].name] = label
        return found

    def _asked(self, item: Point, config: Settings, sound: dict[str, Settings]) -> Settings:
        """The settings that the sweep asks for in this configuration, and then those of the point."""
        shared = self.resources(config) if callable(self.resources) else self.resources
        if not isinstance(shared, Mapping):
            raise ValueError(
                f"resources={shared!r}: must be a dict such as {{'gpus': 2}}, or a function of the configuration that "
                f"gives one"
            )
        asked = {**shared, **item.resources}
        key = repr(asked)
        if key not in sound:
            check_resources(asked)
            sound[key] = asked
        return sound[key]


def _method(item: Point) -> str:
    return kept(item).get("method", args.DEFAULTS["method"])


def _check_read(given: Iterable[str], points: Sequence[Point], title: str) -> None:
    """Raise ValueError for the first of these settings that no point keeps."""
    read = {name for item in points for name in kept(item)}
    for name in given:
        if name not in read:
            methods = list(dict.fromkeys(map(_method, points)))
            own = {f"method.{one}" for method in methods for one in declared(METHODS[method].settings)}
            short = name.removeprefix("method.")
            readers = some([method for method, entry in METHODS.items() if short in declared(entry.settings)])
            raise ValueError(
                f"{name}: no method of {title} reads this setting; others do: {readers} (legal for {some(methods)}: "
                f"{', '.join(sorted(own)) or 'none'}); runs keep their names without it"
            )


def _with_folder(settings: Settings) -> dict[str, str]:
    """The texts among the settings that name the folder of the run that is waited for."""
    return {name: value for name, value in settings.items() if isinstance(value, str) and FILLED_IN in value}


def _check_fork(config: Settings, parents: Sequence[Experiment]) -> None:
    """Raise ValueError where a fork of one of these runs is too different, or finds no checkpoint of its step there."""
    at = config["fork"]["at"]
    for parent in parents:
        if config["fork"]["run"] != f"runs/{parent.folder}/{parent.name}":
            continue
        check_alike(config, parent.config)
        kept = [*parent.config["checkpoint_at"], parent.config["steps"]]
        if at not in kept:
            legal, remedy = ", ".join(map(str, kept)), f"give it checkpoint_at=[{at}]"
            raise ValueError(
                f"fork.at={at}: {parent.label!r} keeps no checkpoint of this step (legal: {legal}); {remedy}"
            )


def _filled_in(settings: Settings, names: Mapping[str, str], folder: str) -> Settings:
    """The settings with the folder of the one run that is waited for in the place of ``{after}``."""
    texts = _with_folder(settings)
    if texts and len(names) != 1:
        (name, value), *_ = texts.items()
        raise ValueError(
            f"{name}={value!r}: {FILLED_IN} is the folder of the run that is waited for, and here that is "
            f"{', '.join(names.values()) or 'none'}: give one label to after()"
        )
    return {
        **settings,
        **{name: value.replace(FILLED_IN, f"runs/{folder}/{next(iter(names))}") for name, value in texts.items()},
    }


def _reports(
    first: Mapping[str, Experiment],
    others: Mapping[str, Sequence[Point]],
    several: Mapping[tuple[str, int], Mapping[str, None]],
) -> list[str]:
    found = []
    for key, points in others.items():
        one = first[key]
        if one.aliases:
            found.append(f"{one.label!r} is the same run as {', '.join(map(repr, one.aliases))}")
        twice = sum(item.label == one.label for item in points)
        if twice:
            found.append(f"{one.label!r} is listed {twice + 1} times with the same settings")
        if any(item.resources != one.resources for item in points):
            found.append(f"{one.label!r} is asked for with different resources; the first point's count")
    for (label, _), keys in several.items():
        found.append(f"label {label!r} names {len(keys)} different runs: {', '.join(first[key].name for key in keys)}")
    return found
