"""Plug-ins: packages of users' own that add methods, data sets and models to the tables.  Imports no torch.

A plug-in is a package, or a single module, that adds its entries when it is imported::

    from nuq.registry import METHODS, Method

    METHODS["mine"] = Method("Mine", Mine, "my_package.compressor:MineCompressor")

The code of an entry lies in the package that adds it: by this an experiment knows its plug-ins.  ``start`` imports what
``--import`` names and what is installed with an entry point of the group GROUP, ``load`` what a setting names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GROUP = "nuq.plugins"
OURS = ("nuq", "train", "__main__")  # packages whose entries need no plug-in
# the form of a plug-in's name, and the same in words
NAMED = (r"[A-Za-z_]\w*(==[\w.+!-]+)?", "the name of a package, or name==version, as in my_package or my_package==1.2")
INSTALLED = {"site-packages", "dist-packages"}  # folders of installed copies
OPTION = "--import"
# what an entry is -> the table and the class of its entries; the modules of the tables fill it
TABLES: dict[str, tuple[dict[str, Any], type]] = {}
named_by_option: list[str] = []  # the packages of ``--import``, for commands that name another command


class SettingsOf(Mapping[str, type]):
    """The settings dataclass of each entry of a table, also of those that are added later."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> type:
        return self._table[name].settings

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def start(words: Sequence[str]) -> list[str]:
    """Import the installed plug-ins and those that ``--import`` names; returns the other words of the command line.

    ValueError as ``load``, and where a name is missing.
    """
    others: list[str] = []
    found: list[str] = []
    ahead = iter(words)
    for word in ahead:
        option, equals, name = word.partition("=")
        if option != OPTION:
            others.append(word)
            continue
        name = name if equals else next(ahead, "")
        if not name or name.startswith("-"):
            raise ValueError(f"{OPTION}: needs the name of a package, as in {OPTION} my_package")
        found.append(name)
    _load_installed()
    for name in dict.fromkeys(found):
        load(name)
    named_by_option[:] = dict.fromkeys(found)
    return others


def _load_installed() -> None:
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.value):
        try:
            load(point.value)
        except ValueError as error:
            whose = f" of {point.dist.name}, which is installed here" if point.dist else ""
            raise ValueError(f"{error} (by the entry point {point.name!r}{whose})") from error


@functools.cache
def load(text: str) -> None:
    """Import a plug-in, ``name`` or ``name==version``, once per process.

    ValueError where there is no such package, where importing it fails, where what it adds is no legal entry or has a
    name that is taken, where it adds nothing, and where another version is here.  The tables are then as before.
    """
    if not re.fullmatch(NAMED[0], text):
        raise ValueError(f"plug-in {text!r}: must be {NAMED[1]}")
    name, _, version = text.partition("==")
    with watched(f"plug-in {name}"):
        _import(name)
    if missing([name]):
        raise ValueError(f"plug-in {name}: importing it adds no {' or '.join(TABLES)} whose code lies in {name}")
    if version and version != (here := version_of(name)):
        raise ValueError(
            f"plug-in {name}: version {version} is asked for, and version {here or '(unknown)'} is here; install "
            f"{name}=={version}, or let what was made with it be and start anew with this one"
        )


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise ValueError(
                f"plug-in {name}: there is no package of this name here; install it, or name the folder that it lies "
                "in in PYTHONPATH"
            ) from error
        raise ValueError(f"plug-in {name}: {_told(error)}") from error
    except (Exception, SystemExit) as error:  # anything can be wrong in a file that a person is writing
        raise ValueError(f"plug-in {name}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """The error of an import in one line, with its place."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename][1:]
    place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {' '.join(str(error).split())}"


@contextlib.contextmanager
def watched(what: str) -> Iterator[None]:
    """Hold what the context adds to the tables against their rules; after an error the tables are as before.

    what: the words that an error begins with.  ValueError for a name that is taken and for what is no legal entry.
    """
    before = {kind: dict(table) for kind, (table, _) in TABLES.items()}
    try:
        yield
        for kind, then in before.items():
            table, of = TABLES[kind]
            for name, entry in table.items():
                if name not in then:
                    _check_entry(f"{what}: {kind} {name!r}", name, entry, of)
                elif entry is not then[name]:
                    raise ValueError(
                        f"{what}: {kind} {name!r}: this name is taken by {package_of(then[name])}; choose another"
                    )
    except BaseException:
        for kind, then in before.items():
            table, _ = TABLES[kind]
            table.clear()
            table.update(then)
        raise


def _check_entry(shown: str, name: Any, entry: Any, of: type) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise ValueError(f"{shown}: a name must be letters, digits and '_', as it becomes part of folders' names")
    if not isinstance(entry, of):
        raise ValueError(f"{shown}: must be a {of.__module__}.{of.__name__}, not {entry!r:.99}")
    values = vars(entry)
    if not (isinstance(values["settings"], type) and dataclasses.is_dataclass(values["settings"])):
        raise ValueError(f"{shown}: settings={values['settings']!r:.99}: must be a dataclass")
    if values["settings"].__dataclass_params__.frozen:  # command lines make a class of it that is not
        raise ValueError(f"{shown}: settings={values['settings']!r:.99}: must be a dataclass that is not frozen")
    if not isinstance(values["code"], str) or not re.fullmatch(r"[A-Za-z_][\w.]*:\w+", values["code"]):
        raise ValueError(f"{shown}: code={values['code']!r:.99}: must be 'module:name', as in 'my_package.mine:Mine'")
    package = package_of(entry)
    if package in OURS or importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{shown}: code={values['code']!r}: must lie in the package that adds the entry, which every process of a "
            "run imports"
        )


def package_of(entry: Any) -> str:
    """The package, or single module, that the code of an entry lies in."""
    return entry.code.partition(":")[0].partition(".")[0]


def missing(texts: Iterable[str]) -> list[str]:
    """Those of the plug-ins, ``name`` or ``name==version``, that have no entry in the tables: they are not imported."""
    here = {package_of(entry) for table, _ in TABLES.values() for entry in table.values()}
    return [text for text in texts if text.partition("==")[0] not in here]


def imported(code: str) -> Any:
    """The class or function ``module:name`` of an entry.  ValueError where the module holds none of this name."""
    module, _, name = code.partition(":")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise ValueError(f"code={code!r}: {found.__file__} holds no {name}")
    return getattr(found, name)


def version_of(package: str) -> str:
    """The version of a package: its ``__version__``, else that of the distribution of its name; empty where none is."""
    found = getattr(sys.modules.get(package), "__version__", None)
    if found is None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version(package)
        except PackageNotFoundError:
            return ""
    if not re.fullmatch(NAMED[0], f"{package}=={found}"):
        raise ValueError(f"plug-in {package}: __version__={found!r:.99}: must be text such as '1.2', or left out")
    return str(found)


def own_path(package: str) -> Path | None:
    """The folder, or file, of a package in a folder of its user's own, as of an editable installation.

    None for one that is installed as a copy, and for one that is not here.
    """
    spec = importlib.util.find_spec(package)
    places = [*(spec.submodule_search_locations or [spec.origin])] if spec else []
    path = Path(places[0]).absolute() if places and places[0] else None
    return path if path and INSTALLED.isdisjoint(path.parts) else None


def used(entries: Iterable[Any]) -> list[str]:
    """The plug-ins of these entries, each as ``name==version``, or ``name`` where it has no version."""
    packages = sorted({package for entry in entries if (package := package_of(entry)) not in OURS})
    return [f"{package}=={version}" if (version := version_of(package)) else package for package in packages]
