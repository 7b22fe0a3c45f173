"""Sweeps and experiments: points of settings, their products and unions, expansion, identity.

A sweep is plain Python.  A family (``grid/nuq.py``, or any file of your own) has one function per run name::

    def buckets() -> Sweep:
        \"\"\"QSGDinf against NUQSGD at three bucket sizes.\"\"\"
        methods = union(point("QSGDinf", method="qsgdinf"), point("NUQSGD", method="nuqsgd"))
        return Sweep(product(point(data="cifar10", model="resnet8"), methods, axis("method.bucket_size", [64, 512, 4096])))
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import args
import grid
from nuq.registry import METHODS, unknown

Settings = Mapping[str, Any]
Made = TypeVar("Made")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Point:
    """Some settings of an experiment under a label.

    The chosen method, data set and model must read every setting, except those named in ``optional``: they are kept only
    where the method reads them (bits mean nothing to TRN), which is how one axis serves methods of different kinds.
    """

    label: str = ""
    settings: Settings = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


Axis = Point | Sequence[Point]


def point(label: str = "", settings: Settings | None = None, /, **plain: Any) -> Point:
    """One point; settings with a dot in their name come as a dict, the others may come as keywords."""
    return Point(label, {**(settings or {}), **plain})


def where_read(settings: Settings, label: str = "") -> Point:
    """Settings of the method, kept only for the methods that read them."""
    for name in settings:
        if not name.startswith("method."):
            raise ValueError(f"where_read: {name!r} is no setting of the method; give it with point()")
    return Point(label, dict(settings), frozenset(settings))


def axis(name: str, values: Iterable[Any]) -> list[Point]:
    """One point per value of a setting, labelled ``bits=3``; a setting of the method is kept where the method reads it."""
    make = where_read if name.startswith("method.") else lambda settings, label: point(label, settings)
    return [make({name: value}, f"{name.rpartition('.')[2]}={value}") for value in values]


def union(*axes: Axis) -> list[Point]:
    """All points of all axes, in order."""
    return [item for part in axes for item in ([part] if isinstance(part, Point) else part)]


def product(*axes: Axis) -> list[Point]:
    """Every combination of one point from each axis; the first axis varies slowest, later settings win."""
    points = [Point()]
    for part in axes:
        points = [_merge(left, right) for left in points for right in union(part)]
    return points


def _merge(left: Point, right: Point) -> Point:
    label = " ".join(part for part in (left.label, right.label) if part)
    return Point(label, {**left.settings, **right.settings}, (left.optional - right.settings.keys()) | right.optional)


@dataclass(frozen=True)
class Experiment:
    """One resolved run of a sweep."""

    folder: str  # below runs/
    label: str  # the first point that led here
    aliases: tuple[str, ...]  # labels of other points that mean the same run
    settings: Settings  # what the sweep sets, in dotted names
    config: Settings  # the full configuration

    @functools.cached_property
    def name(self) -> str:
        """The run folder's name: a readable part and the identity."""
        return args.run_name(self.config)

    @property
    def seed(self) -> int:
        return self.config["seed"]


@dataclass(frozen=True)
class Sweep:
    """A list of points, multiplied by seeds."""

    points: Sequence[Point]
    seeds: Sequence[int] = (1,)
    folder: str = ""  # below runs/; the run name unless another sweep has it already
    grid: str = ""  # filled in by load
    run_name: str = ""
    doc: str = ""

    @property
    def title(self) -> str:
        return f"{self.grid}.{self.run_name}"

    @property
    def num_points(self) -> int:
        """Points as listed, before aliases are joined."""
        return len(self.points) * len(self.seeds)

    def override(self, settings: Settings) -> Sweep:
        """Every experiment with these settings; a method's setting where the method reads it (ValueError if none does)."""
        for name, use in (("seed", "--seeds gives the seeds"), ("run_dir", "the run folder follows from sweep and settings")):
            if name in settings:
                raise ValueError(f"{name} cannot be set for a whole sweep: {use}")
        changed = self.points
        for name, value in settings.items():
            changed = product(changed, axis(name, [value]))
            if not any(name in _kept(item) for item in changed):
                raise ValueError(f"{name}={value!r}: no method of {self.title} reads this setting")
        labelled = [dataclasses.replace(new, label=old.label) for new, old in zip(changed, self.points, strict=True)]
        return dataclasses.replace(self, points=labelled)

    def experiments(self) -> list[Experiment]:
        """The distinct experiments, in order; points of one identity are one experiment with aliases."""
        found: dict[str, Experiment] = {}
        for item in self.points:
            for seed in self.seeds:
                try:
                    settings = {**_kept(item), "seed": seed}
                    config = args.resolve(settings)
                except ValueError as error:
                    raise ValueError(f"{self.title}, point {item.label!r}: {error}") from error
                key = args.identity(config)
                if key in found:
                    earlier = found[key]
                    if item.label not in (earlier.label, *earlier.aliases):
                        found[key] = dataclasses.replace(earlier, aliases=(*earlier.aliases, item.label))
                else:
                    found[key] = Experiment(self.folder or self.run_name, item.label, (), settings, config)
        return list(found.values())


def _kept(item: Point) -> dict[str, Any]:
    """The point's settings, less the optional ones that its method does not read."""
    method = item.settings.get("method", args.DEFAULTS["method"])
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    read = {f"method.{part.name}" for part in dataclasses.fields(METHODS[method].settings)}
    return {name: value for name, value in item.settings.items() if name in read or name not in item.optional}


# --- finding sweeps -----------------------------------------------------------------------------------------------


def families() -> list[str]:
    """The names of the files of ``grid/``."""
    return sorted(item.name for item in pkgutil.iter_modules(grid.__path__) if not item.ispkg and not item.name.startswith("_"))


def load_family(name: str) -> dict[str, Callable[[], Sweep]]:
    """run name -> sweep function, of ``grid/<name>.py`` or of the file at path ``name``."""
    module = _load_file(Path(name)) if name.endswith(".py") else _load_module(name)
    return {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and value.__annotations__.get("return") in (Sweep, "Sweep", "sweep.Sweep")
    }


def _load_module(name: str) -> ModuleType:
    if name not in families():
        raise unknown("grid", name, [*families(), "path/to/your_file.py"])
    return _call(name, lambda: importlib.import_module(f"grid.{name}"))


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"--grid {path}: no such file; give a Python file with sweep functions, or one of {', '.join(families())}")
    spec = importlib.util.spec_from_file_location(f"user_sweeps_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--grid {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    _call(str(path), lambda: loader.exec_module(module))
    return module


def _call(family: str, function: Callable[[], Made]) -> Made:
    """The result of a family's own code; what it raises becomes a ValueError that names the line."""
    try:
        return function()
    except Exception as error:  # anything can be wrong in a file that a person is writing
        if isinstance(error, SyntaxError):
            file, line, message = error.filename, error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            stem = Path(family).stem
            own = [frame for frame in frames if Path(frame.filename).stem == stem] or frames
            file, line, message = own[-1].filename, own[-1].lineno, " ".join(f"{type(error).__name__}: {error}".split())
        where = "" if Path(file or family).stem == Path(family).stem else f" (in {file})"
        raise ValueError(f"--grid {family}, line {line}{where}: {message}") from error


def load(family: str, run_name: str, seeds: Sequence[int] | None = None) -> Sweep:
    """The sweep that function ``run_name`` of ``family`` makes, with these seeds where they are given."""
    functions = load_family(family)
    if not functions:
        raise ValueError(f"--grid {family}: holds no sweep; a sweep is a function whose return is annotated '-> Sweep'")
    if run_name not in functions:
        raise unknown(f"run name of grid {family}", run_name, functions)
    function = functions[run_name]
    needed = [
        part.name for part in inspect.signature(function).parameters.values() if part.default is part.empty and part.kind not in VARIADIC
    ]
    if needed:
        raise ValueError(f"--grid {family}: {run_name}({', '.join(needed)}) needs arguments; a sweep is a function without any")
    made = _call(family, function)
    _check(f"--grid {family}: {run_name}()", made)
    grid_name = Path(family).stem if family.endswith(".py") else family
    made = dataclasses.replace(made, grid=grid_name, run_name=run_name, doc=inspect.getdoc(function) or "")
    return made if seeds is None else dataclasses.replace(made, seeds=tuple(seeds))


def _check(what: str, made: object) -> None:
    """ValueError where a family's function gave no usable sweep."""
    if not isinstance(made, Sweep):
        raise ValueError(f"{what} returned a {type(made).__name__}; it must return a Sweep")
    if not isinstance(made.points, Sequence) or not all(isinstance(item, Point) for item in made.points):
        raise ValueError(f"{what}: points must be a list of points, as product() and union() give it")
    if not isinstance(made.seeds, Sequence):
        raise ValueError(f"{what}: seeds={made.seeds!r} must be a list of whole numbers")
    if not made.points or not made.seeds:
        raise ValueError(f"{what} holds no experiment: it has {len(made.points)} points and {len(made.seeds)} seeds")
    if made.folder and not FOLDER.fullmatch(made.folder):
        raise ValueError(f"{what}: folder={made.folder!r} must be one name of letters, digits, '.', '_' and '-'; it is a folder of runs/")


def parse_seeds(text: str) -> tuple[int, ...]:
    """``3`` is the seeds 1, 2, 3; ``1,2,5`` or ``4,`` are those seeds."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds {text}: give a count (3) or a list of whole numbers (1,2,5; one seed alone: 7,)")
    numbers = [int(part) for part in parts]
    if "," in text:
        return tuple(dict.fromkeys(numbers))
    if not 1 <= numbers[0] <= 1000:
        raise ValueError(f"--seeds {text}: a count must be 1..1000")
    return tuple(range(1, numbers[0] + 1))


def find(experiments: Sequence[Experiment], name: str) -> Experiment:
    """The experiment of this number (from 1), label, run name, or start of an identity."""
    if name.isdecimal() and len(name) < 5 and 1 <= int(name) <= len(experiments):
        return experiments[int(name) - 1]
    for item in experiments:
        labels = {label.casefold() for label in (item.label, *item.aliases)}
        if name.casefold() in labels or name == item.name or (len(name) >= 5 and item.name.rpartition("-")[2].startswith(name)):
            return item
    near = difflib.get_close_matches(name, [item.label for item in experiments], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"unknown experiment {name!r}{hint} (legal: 1..{len(experiments)}, a label or a run name; grid_run.py show lists them)"
    )
