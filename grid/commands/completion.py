"""Completion of the words of grid_run.py in a shell: subcommands, families, sweeps, experiments, sites, settings.

A file of a user's own is read and never executed: a key was pressed, no command was given.
"""

from __future__ import annotations

import argparse
import ast
import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import grid
from files import completion
from files.completion import Completer


def families(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The families of ``grid/``, and files where none of them begins so."""
    del parsed
    from grid.engine.sweeps.families import families

    return {name: _first_line(name) for name in _beginning(prefix, families())} or _files(prefix, "py")


def run_names(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The sweeps of the family, with the first lines of their docstrings."""
    sweeps = sweeps_in(_path(parsed.grid))
    return {name: sweeps[name] for name in _beginning(prefix, sweeps)}


def sweeps_in(path: Path) -> dict[str, str]:
    """The sweep functions of a file, by their syntax alone; empty where it cannot be read as Python."""
    return {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0]
        for node in _syntax(path).body
        if isinstance(node, ast.FunctionDef)
        and node.returns
        and ast.unparse(node.returns).strip("'\"") in ("Sweep", "sweep.Sweep")
    }


def labels(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The labels of a sweep's experiments; none for a file of one's own, which would have to be executed."""
    if parsed.grid.endswith(".py"):
        return {}
    from args import DEFAULTS
    from grid.engine.sweep import load
    from grid.engine.sweeps.points import kept

    points = load(parsed.grid, parsed.run_name).points
    return _beginning(prefix, [item.full_label(kept(item).get("method", DEFAULTS["method"])) for item in points])


def sites(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The examples in ``grid/sites``, and files where none of them begins so."""
    del parsed
    examples = sorted(path.stem for path in Path(grid.__path__[0], "sites").glob("*.yaml"))
    return _beginning(prefix, examples) or _files(prefix, "yaml")


def folders(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """Folders, of which some hold runs."""
    del parsed
    from argcomplete.completers import DirectoriesCompleter

    return dict.fromkeys(DirectoriesCompleter()(prefix), "")


def overrides(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The settings for ``--set``, as main.py takes them."""
    from settings.completion import settings

    return settings(prefix, parsed.overrides or ())


def sweep_words(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    """The settings for ``--sweep``, and after a comma the next value of one."""
    from settings.completion import settings

    del parsed  # argcomplete keeps no words of an option that takes several
    return settings(prefix, completion.words_before())


def _listed(module: str, name: str) -> Completer:
    """A completer that offers a tuple of a module, which is imported when it is asked for."""
    return lambda prefix, _: _beginning(prefix, getattr(importlib.import_module(module), name))


COMPLETERS: Mapping[str, Completer] = {  # by the ``dest`` of the argument
    "grid": families,
    "run_name": run_names,
    "name": labels,
    "names": labels,
    "runs": folders,
    "site": sites,
    "overrides": overrides,
    "sweep": sweep_words,
    "where": sweep_words,
    "ignore": _listed("grid.engine.submission.preflight", "CHECKS"),
    "kind": _listed("grid.engine.states.triage", "KINDS"),
    "cluster": _listed("grid.commands.legacy_cli", "CLUSTERS"),
}


def answer(parser: argparse.ArgumentParser) -> NoReturn:
    """Tell the shell what may follow in the line of a subcommand, and end the process."""
    positional = ("grid", "run_name", "name", "names")
    for action in parser._actions:
        if action.dest in positional[:2]:
            action.nargs = None  # not both at once
    written = dict.fromkeys(positional, _nothing) if "--sweep" in completion.words_before() else {}
    completion.answer(parser, {**COMPLETERS, **written}, skip=1)


def _nothing(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
    del prefix, parsed
    return {}


def answer_first(parser: argparse.ArgumentParser, subcommands: Mapping[str, str]) -> NoReturn:
    """Tell the shell what may follow where no subcommand is given yet: one of these, or an option of the parser.

    subcommands: what each does.
    """
    parser.add_argument("subcommand", nargs="?")

    def first(prefix: str, parsed: argparse.Namespace) -> Mapping[str, str]:
        del parsed
        return {name: subcommands[name] for name in _beginning(prefix, subcommands)}

    completion.answer(parser, {**COMPLETERS, "subcommand": first})


def _beginning(prefix: str, names: Iterable[str]) -> dict[str, str]:
    return {name: "" for name in names if name.startswith(prefix)}


def _files(prefix: str, ending: str) -> dict[str, str]:
    from argcomplete.completers import FilesCompleter

    return dict.fromkeys(FilesCompleter((ending,))(prefix), "")


def _path(family: str) -> Path:
    return Path(family) if family.endswith(".py") else Path(grid.__path__[0], f"{family}.py")


def _first_line(family: str) -> str:
    """The first line of a family's docstring; parsing all of them would take a tenth of a second."""
    with _path(family).open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def _syntax(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # nobody wants to read of it while typing
        return ast.Module([], [])
