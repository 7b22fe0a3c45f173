"""``python -m analysis figures demo``: figures and tables of a sweep, from what its runs have logged; ``predict``: the cost model."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis import predict_command
from analysis.aggregate import incomplete
from analysis.cells import select
from analysis.fresh import drawn_before, remember
from analysis.load import Logs, load


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Figures and tables of a sweep; step times of larger ones.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("sweep", help="name of the sweep: a folder in --runs")
    shared.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are (default: runs)")
    shared.add_argument(
        "--out", type=Path, default=Path("figures"), help="where to write: a folder per sweep, and in it per selection (default: figures)"
    )
    shared.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="only these runs: method=alq,amq bits=3")
    shared.add_argument(
        "--width", choices=("column", "page"), default="column", help="width of single figures: one column (default) or the page"
    )
    shared.add_argument("--redraw", action="store_true", help="draw figures again although nothing has changed")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("figures", parents=[shared], help="every figure, as PNG and PDF")
    commands.add_parser("table", parents=[shared], help="the result table: text here, CSV and LaTeX beside the figures")
    commands.add_parser("all", parents=[shared], help="both")
    predict_command.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0; 1 where there is nothing to show; 2 for a sweep or condition that does not exist."""
    options = _parser().parse_args(arguments)
    if options.command == "predict":
        return predict_command.run(options)
    folder = options.out / options.sweep / re.sub(r"[^\w.=,-]+", "_", " ".join(options.where))
    drawn_with = [str(options.runs), options.width, *options.where]
    before = None if options.redraw else drawn_before(folder, options.runs / options.sweep, drawn_with)
    if options.command == "figures" and before is not None:
        _print_figures(*before)
        print("drawn before, and nothing has changed since (--redraw draws anew)", file=sys.stderr)
        return 0
    try:
        logs = select(load(options.runs, options.sweep), options.where)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for note in logs.notes:
        print(f"note: {note}", file=sys.stderr)
    if not len(logs.scalars) or not list(logs.settings["method.name"].dropna()):
        num_runs = len(logs.settings)
        have = f"sweep {options.sweep!r} has {num_runs} run{'s' * (num_runs != 1)}"
        print(f"nothing to show: {have}, none with both settings and logs", file=sys.stderr)
        return 1
    shown = 0
    if options.command in ("figures", "all"):
        shown += _figures(logs, folder, options.width, drawn_with)
    if options.command in ("table", "all"):
        shown += _table(logs, folder)
    return 0 if shown else 1


def _print_figures(paths: Sequence[str], notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    for path in paths:
        print(path)


def _figures(logs: Logs, folder: Path, width: str, drawn_with: list[str]) -> int:
    from analysis.figures import draw  # matplotlib takes a second to import; a table does not need it

    drawn = draw(logs, folder, width=width)
    missing = incomplete(logs)
    notes = [*([f"{missing}; left out where the same setting has complete ones"] if missing else []), *drawn.notes]
    paths = [str(path) for path in drawn.paths]
    _print_figures(paths, notes)
    if paths:
        remember(folder, drawn_with, paths, notes)
    return len(paths)


def _table(logs: Logs, folder: Path) -> int:
    from analysis import tables

    found = tables.table(logs)
    fits = False
    if sys.stdout.isatty():
        from rich.console import Console

        console, shown = Console(), tables.rich_table(found, logs.sweep)
        fits = console.measure(shown, options=console.options.update(width=1000)).maximum <= console.width
    if fits:
        console.print(shown)
    else:
        print(tables.text(found))
    print(tables.LEGEND)
    if sentence := incomplete(logs):
        print(f"{sentence}; the table leaves them out")
    for path in tables.write(found, folder):
        print(path)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
