"""The commands of the analysis: figures, tables and a report of a sweep from the logs of its runs, and the cost model.

``python -m analysis report demo`` makes the first three for the sweep ``demo``; ``predict`` is the cost model, which
also tells the times of runs over other links.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from analysis.prediction import command as predict_command
from files.escaped import Escaping
from files.tables import FORMATS, add_json

_EXAMPLES = """examples:
  python -m analysis report demo                            one HTML page with everything, figures/demo/report.html
  python -m analysis watch demo                             the same, refreshed while the runs go on
  python -m analysis figures demo --only levels --style examples/paper_style.yaml --methods alq amq
  python -m analysis predict runs/demo --every 1..64        the times to a target over other links
  python -m analysis table demo --columns final p bits --sort final --descending

--import PACKAGE, in any of these lines, imports a package of your own, whose methods then have their names and colours
(docs/plugins.md).

Exit codes: 0; 1 where there is nothing to show; 2 for a sweep, setting or option that does not exist."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Figures, tables and a report of a sweep, from the logs of its runs; step times of larger "
        "clusters (predict).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("sweep", metavar="SWEEP", help="its runs are the folders of runs/SWEEP")
    add = shared.add_argument_group("which runs, and where").add_argument
    add(
        "--where",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="only runs with these settings, and of methods without such a setting: --where bits=3 keeps SuperSGD, "
        "which has no bits; --where method=alq,amq bits=3 does not",
    )
    add("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="the folder of all sweeps (default: runs)")
    add("--out", type=Path, metavar="FOLDER",
        help="write to FOLDER/SWEEP, and what --where selects to a folder in it (default: figures; of another folder "
        "of runs a folder in it, such as figures/runs_.archive)")  # fmt: skip
    add("--no-cache", action="store_true", help="read all logs again, also those that have not changed")

    width = _options(
        "--width",
        choices=("column", "page"),
        default="column",
        help="of single figures: of one column or of the page (default: column)",
    )
    axes = ("step", "time", "epoch", "bytes")
    drawn = "draw curves against these alone: step, time, epoch, bytes (default: all four)"
    against = _options("--x", nargs="+", choices=axes, metavar="AXIS", help=drawn)
    redraw = _options("--redraw", action="store_true", help="draw again although nothing has changed")
    reached = "validation accuracy of the figure of times to accuracy (default: a point below SuperSGD's)"
    target = _options("--target", type=_percent, metavar="PERCENT", help=reached)
    which = argparse.ArgumentParser(add_help=False)
    chosen = which.add_argument_group("which figures").add_mutually_exclusive_group().add_argument
    chosen("--only", nargs="+", metavar="NAME", help="these, by the names that --list gives: overview 'accuracy*'")
    chosen("--all", action="store_true", help="every figure, which may be hundreds (default: the first 8 to look at)")
    look = which.add_argument_group("their look").add_argument
    look("--style", type=Path, metavar="FILE",
         help="YAML: sizes, fonts, names, colors, labels, legend, as in examples/paper_style.yaml")  # fmt: skip
    look("--methods", nargs="+", metavar="NAME", help="these methods alone, in this order")
    look("--panels", nargs="+", metavar="NAME", help="these quantities in an overview, in this order")
    listing = _options("--list", action="store_true", help="name the figures of these runs (* drawn), draw none")
    add_json(listing)
    shown = (
        "of the table, in this order: final best difference p loss bits sent variance speed images seconds paper .. "
        "(default: those with numbers that fit)"
    )
    forms = _options("--format", nargs="+", choices=FORMATS, default=["csv", "latex"], metavar="FORMAT",
                     help="of the table's files: csv json parquet latex (default: csv latex)")  # fmt: skip
    listed = argparse.ArgumentParser(add_help=False)
    add_json(listed)
    columns = _options("--columns", nargs="+", metavar="NAME", help=shown)
    order = _options("--sort", metavar="NAME", help="rows by a column or a setting (default: by method)")
    order.add_argument("--descending", action="store_true", help="the largest first")
    most = _options("--most-figures", type=_count, default=None, metavar="N",
                    help="draw at most N figures, the most telling ones (default: 80, 24 for more than 8 groups; 0: "
                    "all)")  # fmt: skip
    every = _options(
        "--every", type=_seconds, default=30.0, metavar="SECONDS", help="how often to look for news (default: 30)"
    )
    every.add_argument(
        "--until-ended",
        action="store_true",
        help="stop when every run that has begun has ended (default: Ctrl-C stops it)",
    )

    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    figures = [shared, which, width, against, target, redraw]
    for name, parents, what in (
        (
            "report",
            [shared, width, most],
            "one self-contained HTML page: summary, results, curves, figures, runs, failures, provenance",
        ),
        ("watch", [shared, width, most, every], "write the report again whenever runs have news, until Ctrl-C"),
        ("figures", [*figures, listing], "figures, as PNG and PDF: the first to look at, some, or all"),
        ("table", [shared, columns, order, forms, listed], "the result table: text here, files beside the figures"),
        ("forks", [shared, listed], "forks beside the runs that they left: differences at the end, seed by seed"),
        ("all", [*figures, columns, order, forms], "figures and table"),
    ):
        commands.add_parser(name, parents=parents, help=what, description=what[0].upper() + what[1:] + ".")
    for name, what in (
        ("dgc", "DGC's published ImageNet table"),
        ("smaq", "SmaQ's published table, accuracy and ratio of every format,"),
    ):
        published = commands.add_parser(name, parents=[listed], help=f"{what} beside our runs")
        published.add_argument(
            "--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="the folder of all sweeps (default: runs)"
        )
    predict_command.add_to(commands)
    return parser


def _options(name: str, **settings: object) -> argparse.ArgumentParser:
    """One option, for the commands that list it among their parents."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(name, **settings)  # pyright: ignore[reportArgumentType]
    return parent


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 0 or more")
    return int(text)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: must be an accuracy of 0 to 100 percent")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds from 1 to 86400")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The code is 0; 1 where there is nothing to show; 2 for a sweep, condition or option that does not exist.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not {"-h", "--help"} & set(words):
            from settings.command_line import with_plugins

            words = with_plugins(words)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    options = _parser().parse_args(words)
    # names and notes are others' words
    with redirect_stdout(Escaping(sys.stdout)), redirect_stderr(Escaping(sys.stderr)):
        return _main(options)


def _main(options: argparse.Namespace) -> int:
    if options.command == "predict":
        return predict_command.run(options)
    from analysis import commands  # pandas: not needed for --help

    try:
        return commands.COMMANDS[options.command](options)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a folder that cannot be written, a disk that is full
        where = error.filename or getattr(options, "out", None) or "figures"
        print(f"error: {where}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
