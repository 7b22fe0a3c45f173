"""The commands of ``python -m analysis``; each takes the parsed options and returns the exit code."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import fresh, restyled
from analysis.axes import AXES
from analysis.groups.aggregate import UNMEASURED, incomplete
from analysis.groups.seed_groups import check_titles
from analysis.groups.selection import select
from analysis.logs.load import Logs, load
from analysis.tables.paired import without_partner
from files.aligned import aligned
from files.escaped import plain
from files.tables import as_json, check_formats

if TYPE_CHECKING:
    from analysis import figures

RUNS, FIGURES = Path("runs"), Path("figures")
_LONG = 100  # characters of a folder's name


def folder_of(options: argparse.Namespace) -> Path:
    """The folder for a sweep's figures, with a folder inside it for the runs that conditions select."""
    out = options.out or _figures_of(options.runs)
    return out / options.sweep / _folder_name(" ".join(_conditions(options)))


def _figures_of(runs: Path) -> Path:
    """The folder for the figures of a folder of runs: one with the path of the runs in its name, unless it is RUNS."""
    if runs.resolve() == RUNS.resolve():
        return FIGURES
    place, here = Path(os.path.abspath(runs)), Path.cwd()
    return FIGURES / _folder_name(str(place.relative_to(here) if here in place.parents else place))


def _folder_name(text: str) -> str:
    name = re.sub(r"[^\w.=,-]+", "_", text)
    if len(name) > _LONG:  # file systems do not like longer names
        name = f"{name[:_LONG]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def loaded(options: argparse.Namespace) -> Logs:
    """The chosen runs of a sweep; FileNotFoundError for a sweep, ValueError for a condition that does not exist."""
    every, conditions = load(options.runs, options.sweep, cache=not options.no_cache), _conditions(options)
    chosen = select(every, conditions)
    lost = without_partner(every.settings, chosen.settings, options.where, _methods(options)) if conditions else []
    return dataclasses.replace(chosen, notes=(*chosen.notes, *lost))


def _conditions(options: argparse.Namespace) -> list[str]:
    """The conditions of --where, and that of --methods."""
    methods = _methods(options)
    return [*options.where, *([f"method={','.join(methods)}"] if methods else [])]


def _methods(options: argparse.Namespace) -> list[str]:
    return _words(options, "methods") if "methods" in options else []


def _words(options: argparse.Namespace, name: str) -> list[str]:
    """The words of an option, set apart by blanks or commas; ValueError for an empty one or one that comes twice."""
    words = [word.strip() for given in getattr(options, name) or () for word in given.split(",")]
    restyled.once(f"--{name}", words)
    return words


def note(texts: Sequence[str]) -> None:
    """Print sentences beside the output, on standard error."""
    for text in texts:
        print(f"note: {text}", file=sys.stderr)


def _is_empty(logs: Logs) -> bool:
    """Whether there is nothing to draw or tabulate, which is printed."""
    if logs.tags and list(logs.settings["method.name"].dropna()):
        return False
    num_runs = len(logs.settings)
    have = f"sweep {logs.sweep!r} has {num_runs} run{'s' * (num_runs != 1)}"
    print(f"nothing to show: {have}, none with both settings and logs", file=sys.stderr)
    return True


# --- figures and table --------------------------------------------------------------------------------------------


def _figures_and_table(options: argparse.Namespace) -> int:
    wants_figures, wants_table = options.command in ("figures", "all"), options.command in ("table", "all")
    if wants_table:
        restyled.once("--format", options.format)
        check_formats(options.format)
    if wants_figures:
        restyled.once("--x", options.x or [])
    style = _style(options) if wants_figures else restyled.OURS
    folder, of = folder_of(options), fresh.digest(options.runs / options.sweep) if wants_figures else ""
    drawn_with = _drawn_with(options, style) if wants_figures else []
    if getattr(options, "list", False):
        with restyled.using(style):
            return _listed(loaded(options), options)
    if options.command == "figures" and not options.redraw and (before := fresh.drawn_before(folder, of, drawn_with)):
        _print_figures(*before)
        print("drawn before, and nothing has changed since (--redraw draws anew)", file=sys.stderr)
        return 0
    logs = loaded(options)
    note(logs.notes)
    if _is_empty(logs):
        return 1
    shown = _table(logs, folder, options) if wants_table else 0
    if wants_figures:
        with restyled.using(style):
            paths, notes = _figures(logs, folder, options)
        _print_figures(paths, notes)
        if paths:
            fresh.remember(folder, of, drawn_with, paths, notes)
        shown += len(paths)
    return 0 if shown else 1


def _drawn_with(options: argparse.Namespace, style: restyled.Style) -> list[str]:
    which = ["all"] if options.all else options.only or ["first"]
    x = ",".join(options.x or ["all"])
    return [str(options.runs), options.width, x, str(options.target), *which, repr(style), *_conditions(options)]


def _style(options: argparse.Namespace) -> restyled.Style:
    """The style of the options: the file's, with the panels and the order of methods that they name."""
    style = restyled.OURS
    if options.style:
        from analysis.plots.curves import PLOTS

        style = restyled.read_style(options.style, [plot.name for plot in PLOTS])
    panels, methods = _words(options, "panels"), _methods(options)
    return dataclasses.replace(style, panels=tuple(panels) or style.panels, order=tuple(methods) or style.order)


def _named(logs: Logs, options: argparse.Namespace) -> tuple[list[figures.Named], list[figures.Named]]:
    """The figures that are asked for, and all that the sweep has."""
    from analysis import figures  # matplotlib takes a second to import; a table does not need it
    from analysis.plots.style import WIDTHS

    every = list(figures.named(logs, WIDTHS[options.width], axes=options.x, target=options.target))
    if only := _words(options, "only"):
        return figures.only(every, only), every
    return every if options.all else figures.first(every, options.x), every


def _listed(logs: Logs, options: argparse.Namespace) -> int:
    """List the figures that the sweep has data for, those that are drawn marked; a line for all axes of a curve."""
    note(logs.notes)
    wanted, every = ([], []) if _is_empty(logs) else _named(logs, options)
    names = {figure.name for figure in wanted}
    missing = {one.name: one.missing() for one in every}
    if options.json:
        fields = ("name", "kind", "title", "section")
        rows = [{**{key: getattr(one, key) for key in fields}, "missing": missing[one.name]} for one in every]
        print(as_json([{**row, "drawn": row["name"] in names and not row["missing"]} for row in rows]))
        return 0 if every else 1
    lines: dict[tuple[str, str], list[figures.Named]] = {}
    for one in every:
        if not missing[one.name]:
            kind, _, axis = one.kind.rpartition("-")
            lines.setdefault((one.section, kind if axis in AXES else one.kind), []).append(one)
    table = []
    for several in lines.values():
        first, *others = sorted(several, key=lambda one: one.name not in names)  # what is drawn leads
        also = f"  Also: {', '.join(other.name for other in others)}." if others else ""
        drawn = names.intersection(each.name for each in (first, *others))
        table.append(["*" if drawn else "", first.name, first.title + also])
    print(aligned(table, words=3))
    kinds = {one.kind for one in every if one.kind.partition("-")[2] not in AXES}
    if lacking := sorted(kinds - {one.kind for one in every if not missing[one.name]}):
        why = f" {UNMEASURED}" if "est_var" in lacking else ""
        note([f"these runs have no data for {', '.join(lacking)}{why}"])
    return 0 if lines else 1


def _print_figures(paths: Sequence[str], notes: Sequence[str]) -> None:
    note(notes)
    for path in paths:
        print(path)


def _figures(logs: Logs, folder: Path, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    from analysis import figures

    check_titles(logs.settings["method.name"].dropna().unique())
    wanted, every = _named(logs, options)
    try:
        drawn = figures.draw(wanted, folder)
    except (MemoryError, RuntimeError, TypeError, ValueError) as error:
        if not options.style:
            raise
        raise ValueError(
            f"{options.style}: matplotlib cannot draw with this style: {error or 'out of memory'}"
        ) from error
    notes = list(drawn.notes)
    if lost := [words for words in restyled.chosen().labels if words not in drawn.words] if drawn.paths else []:
        there = ", ".join(repr(words) for words in sorted(drawn.words) if words and "\n" not in words)
        notes.append(f"{options.style}: labels: no drawn figure has {', '.join(map(repr, lost))} (there are: {there})")
    if not options.only and len(every) > len(wanted):
        notes.append("--list names all figures that can be drawn, --only NAME draws some, --all all")
    if missing := incomplete(logs):
        notes.insert(0, f"{missing}; left out where the same setting has complete ones")
    return [str(path) for path in drawn.paths], notes


def _table(logs: Logs, folder: Path, options: argparse.Namespace) -> int:
    from analysis.tables import result_table

    columns = _words(options, "columns") or None
    found = result_table.table(logs)
    if options.sort or options.descending:
        found = result_table.arranged(found, options.sort or "method", descending=options.descending)
    if getattr(options, "json", False):
        paths = result_table.write(found, folder, columns, options.format)
        rows, notes = result_table.records(found), [*found.attrs["notes"], *filter(None, [incomplete(logs)])]
        print(as_json({"sweep": logs.sweep, "rows": rows, "notes": notes, "files": paths}))
        return len(found)
    fits = False
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(file=plain(sys.stdout))
        shown = result_table.rich_table(found, logs.sweep, columns, console.width)
        fits = console.measure(shown, options=console.options.update(width=1000)).maximum <= console.width
        if fits:
            console.print(shown)
            print(result_table.legend(found, columns, console.width))
    if not fits:
        print(result_table.text(found, columns))
        print(result_table.legend(found, columns))
    if sentence := incomplete(logs):
        print(f"{sentence}; the table leaves them out")
    for path in result_table.write(found, folder, columns, options.format):
        print(path)
    return len(found)


# --- report and watch ---------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    logs = loaded(options)
    if not len(logs.settings):
        print(f"nothing to show: sweep {options.sweep!r} has no runs", file=sys.stderr)
        return 1
    note(logs.notes)
    from analysis.report.write import How, write

    print(write(logs, folder_of(options), How(options.width, options.most_figures, tuple(options.where))))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from analysis.report.watch import watch
    from analysis.report.write import How

    how = How(options.width, options.most_figures, tuple(options.where), options.every)
    sweep_dir, folder = options.runs / options.sweep, folder_of(options)
    return watch(sweep_dir, lambda: loaded(options), folder, how, until_ended=options.until_ended)


def _forks(options: argparse.Namespace) -> int:
    from analysis.forks import unfinished, with_left
    from analysis.tables import fork_table

    every = load(options.runs, options.sweep, cache=not options.no_cache)
    logs = with_left(select(every, _conditions(options)), every)
    note(logs.notes)
    if _is_empty(logs):
        return 1
    note(unfinished(logs))
    found = fork_table.table(logs)
    if isinstance(found, str):
        print(f"nothing to show: {found}", file=sys.stderr)
        return 1
    print(as_json(found) if options.json else f"{fork_table.text(found)}\n{fork_table.LEGEND}")
    return 0


def _published(options: argparse.Namespace) -> int:
    from analysis.tables import dgc_table, smaq_table

    of = {"dgc": dgc_table, "smaq": smaq_table}[options.command]
    found = of.table(options.runs)
    print(as_json(found.to_dict("records")) if options.json else f"{of.text(found)}\n{of.LEGEND}")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "figures": _figures_and_table,
    "table": _figures_and_table,
    "all": _figures_and_table,
    "report": _report,
    "watch": _watch,
    "forks": _forks,
    "dgc": _published,
    "smaq": _published,
}
