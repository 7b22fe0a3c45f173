"""The search for sweeps: the families of ``grid/`` or a user's own file, their functions, and experiments by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

import grid
from grid.engine.sweeps import written
from grid.engine.sweeps.experiments import Experiment, Sweep, first_seeds
from grid.engine.sweeps.points import Point
from nuq.settings import plugins, unknown

Made = TypeVar("Made")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def families() -> list[str]:
    """The names of the files of ``grid/``."""
    return sorted(
        item.name for item in pkgutil.iter_modules(grid.__path__) if not item.ispkg and not item.name.startswith("_")
    )


def _functions(
    family: str, module: ModuleType, run_name: str = "", *, may_be_empty: bool = False
) -> dict[str, Callable[[], Sweep]]:
    """The sweep functions of a family by run name; ValueError where there is none, or ``run_name`` is no such one."""
    own = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    sweeps = (Sweep, "Sweep", "sweep.Sweep")
    found = {name: value for name, value in own.items() if value.__annotations__.get("return") in sweeps}
    if run_name in own and run_name not in found:
        raise ValueError(
            f"grid {family}: {run_name}() does not say that it makes a sweep: write `def {run_name}() -> Sweep:`"
        )
    if not found and not may_be_empty:
        others = ", ".join(f"{name}()" for name in own) or "no function at all"
        raise ValueError(
            f"grid {family}: holds no sweep; a sweep is a function whose return is annotated '-> Sweep' (seen: "
            f"{others})"
        )
    return found


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        return _load_file(Path(name))
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        return _load_module(name)
    if name not in families():
        raise unknown("grid", name, [*families(), "path/to/your_file.py"])
    return _call(name, lambda: importlib.import_module(f"grid.{name}"))


def _load_module(name: str) -> ModuleType:
    """A module of a package of a user's own, ``my_package.sweeps``."""
    is_there = importlib.util.find_spec(name.partition(".")[0]) is not None
    if not is_there or _call(name, lambda: importlib.util.find_spec(name)) is None:
        raise ValueError(
            f"grid {name}: there is no module of this name here; install its package, or name the folder that the "
            f"package lies in in PYTHONPATH"
        )
    with plugins.watched(f"grid {name}"):
        return _call(name, lambda: importlib.import_module(name))


class _FromSource(importlib.machinery.SourceFileLoader):
    """Compiles the source each time: Python takes a file of equal size and second for the one it compiled before."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(
            f"grid {path}: no such file; give a Python file with sweep functions, or one of {', '.join(families())}"
        )
    name = f"user_sweeps_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise ValueError(f"grid {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    with plugins.watched(f"grid {path}"):  # which imports packages of its own
        _call(str(path), lambda: loader.exec_module(module))
    return module


def _call(family: str, function: Callable[[], Made]) -> Made:
    """The result of a family's own code; what it raises becomes a ValueError that names the line."""
    try:
        return function()
    except (Exception, SystemExit) as error:  # anything can be wrong in a file that a person is writing
        place = (Path(family) if family.endswith(".py") else Path(grid.__path__[0], f"{family}.py")).absolute()
        if isinstance(error, SyntaxError):
            file, line, message = error.filename, error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            own = [frame for frame in frames if Path(frame.filename).absolute() == place] or frames
            file, line, message = own[-1].filename, own[-1].lineno, " ".join(f"{kind}{error}".split())
            if isinstance(error, SystemExit):
                message = f"sys.exit({error.code!r}) is called here; a file of sweeps must only make sweeps"
        where = "" if Path(file or family).absolute() == place else f" (in {file})"
        raise ValueError(f"grid {family}, line {line}{where}: {message}") from error


def load(family: str, run_name: str, seeds: Sequence[int] | None = None) -> Sweep:
    """The sweep that function ``run_name`` of ``family`` makes, with these seeds where they are given.

    Of the family ``--sweep``, ``run_name`` is the sweep itself (see ``written``).
    """
    made = written.load(run_name) if family == written.GRID else _made(family, _module(family), run_name)
    return made if seeds is None else dataclasses.replace(made, seeds=tuple(seeds))


def makers(family: str, *, may_be_empty: bool = False) -> dict[str, Callable[[], Sweep]]:
    """The run names of ``family``, each with a function that gives its sweep as ``load`` does.

    ValueError where there is none, unless that ``may_be``.
    """
    module = _module(family)
    found = _functions(family, module, may_be_empty=may_be_empty)
    return {run_name: functools.partial(_made, family, module, run_name) for run_name in found}


def _made(family: str, module: ModuleType, run_name: str) -> Sweep:
    functions = _functions(family, module, run_name)
    if run_name not in functions:
        raise unknown(f"run name of grid {family}", run_name, functions)
    function = functions[run_name]
    needed = [
        part.name
        for part in inspect.signature(function).parameters.values()
        if part.default is part.empty and part.kind not in VARIADIC
    ]
    if needed:
        raise ValueError(
            f"grid {family}: {run_name}({', '.join(needed)}) needs arguments; a sweep is a function without any"
        )
    made = _call(family, function)
    _check(f"grid {family}: {run_name}()", made)
    own = Path(family) if family.endswith(".py") else None
    known = {"grid": own.stem, "file": str(own.resolve())} if own else {"grid": family}
    made = dataclasses.replace(made, run_name=run_name, doc=inspect.getdoc(function) or "", **known)
    asked = made.resources
    if callable(asked):
        made = dataclasses.replace(made, resources=lambda config: _call(family, lambda: asked(config)))
    return made


def _check(what: str, made: object) -> None:
    """Raise ValueError where a family's function gave no usable sweep."""
    if not isinstance(made, Sweep):
        raise ValueError(f"{what} returned {made!r:.60}; it must return a Sweep")
    if not isinstance(made.points, Sequence) or not all(isinstance(item, Point) for item in made.points):
        raise ValueError(f"{what}: points must be a list of points, as product() and union() give it")
    if not isinstance(made.seeds, Sequence) or isinstance(made.seeds, str):
        raise ValueError(f"{what}: seeds={made.seeds!r} must be a list of whole numbers, or a count")
    if not isinstance(made.resources, Mapping) and not callable(made.resources):
        raise ValueError(
            f"{what}: resources={made.resources!r} must be a dict such as {{'gpus': 2}}, or a function of the "
            f"configuration"
        )
    if not made.points or not made.seeds:
        raise ValueError(f"{what} holds no experiment: it has {len(made.points)} points and {len(made.seeds)} seeds")
    if made.folder and not written.FOLDER.fullmatch(made.folder):
        raise ValueError(
            f"{what}: folder={made.folder!r} must be one name of letters, digits, '.', '_' and '-'; it is a folder of "
            f"runs/"
        )


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds in a text: ``3`` means the seeds 1, 2, 3; ``1,2,5`` or ``4,`` means those seeds."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds {text}: give a count (3) or a list of whole numbers (1,2,5; one seed alone: 7,)")
    numbers = [int(part) for part in parts]
    if "," in text:
        return tuple(dict.fromkeys(numbers))
    return first_seeds(numbers[0], f"--seeds {text}")


def seeds_text(seeds: Iterable[int]) -> str:
    """The seeds as ``parse_seeds`` reads them."""
    found = sorted(set(seeds))
    if found == list(range(1, len(found) + 1)):
        return str(len(found))
    return ",".join(map(str, found)) + "," * (len(found) == 1)


def find(experiments: Sequence[Experiment], name: str) -> list[Experiment]:
    """The experiment of this number (from 1), run name, or start of an identity; for a label those of all seeds.

    A pattern (``ALQ*``) is that of labels; of run names where it fits no label.
    """
    if name.isdecimal() and len(name) < 5 and 1 <= int(name) <= len(experiments):
        return [experiments[int(name) - 1]]
    folded = name.casefold()
    if found := [item for item in experiments if folded in {label.casefold() for label in (item.label, *item.aliases)}]:
        return found
    for item in experiments:
        if name == item.name or (len(name) >= 5 and item.name.rpartition("-")[2].startswith(name)):
            return [item]
    labelled = [(item, (item.label, *item.aliases)) for item in experiments]
    for words in (labelled, [(item, (item.name,)) for item in experiments]):
        if found := [item for item, each in words if any(fnmatchcase(word.casefold(), folded) for word in each)]:
            return found
    near = difflib.get_close_matches(name, [item.label for item in experiments], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"unknown experiment {name!r}{hint} (legal: 1..{len(experiments)}, a label, a run name or a pattern of these; "
        f"grid_run.py show lists them)"
    )
