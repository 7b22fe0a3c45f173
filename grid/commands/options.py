"""Functions that the subcommands share: naming a sweep, selecting its experiments, and printing tables."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from files import completion
from files.aligned import aligned
from files.tables import beside_json

if TYPE_CHECKING:
    from grid.engine.states.evidence import View
    from grid.engine.states.runs import Run
    from grid.engine.submission.planning import Options
    from grid.engine.sweep import Experiment, Sweep

GRID_HELP = (
    "family of sweeps: nuq is grid/nuq.py; or the path of a file of your own, or a module of a package of your own "
    "(my_package.sweeps)"
)


def add_resources(parser: argparse.ArgumentParser, title: str, without: Collection[str] = ()) -> None:
    """Add an option for each resource of an experiment to a parser."""
    from nuq.settings import declared
    from settings.resources import Resources

    group = parser.add_argument_group(title)
    for name, (kind, default, rule) in declared(Resources).items():
        if name not in without:
            text = rule["reason"] + ("" if default is None else f" (default: {default})")
            number = type(default) if isinstance(default, int) else _number if float in get_args(kind) else str
            group.add_argument(f"--{name}", type=number, metavar=name.upper(), help=text)


def _number(text: str) -> float | str:
    """A number; ``a100:2`` stays as it is, for the resources read it."""
    try:
        return text if ":" in text else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number, of GPUs also with their type: a100:2") from error


def resources_of(options: argparse.Namespace) -> dict[str, Any]:
    """The resources that the command line names."""
    from nuq.settings import declared
    from settings.resources import Resources

    return {name: value for name in declared(Resources) if (value := getattr(options, name, None)) is not None}


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Add the options --seeds and --set to a parser."""
    parser.add_argument(
        "--seeds", metavar="N|A,B,..", help="a count (3 is 1,2,3) or a list of seeds (default: the sweep's own)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="overrides",
        help="a setting for every experiment, as main.py takes it (data_dir=/data); may be repeated",
    )


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a plan to a parser."""
    parser.add_argument(
        "--site",
        metavar="FILE",
        help="the cluster's profile: a YAML file (default: $NUQ_SITE, else site.yaml, else none)",
    )
    parser.add_argument(
        "--per_script",
        type=int,
        default=1,
        metavar="N",
        help="experiments per job script, one after another (default: 1)",
    )
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="K", help="so many of a script's experiments at a time (default: 1)"
    )
    parser.add_argument(
        "--max_running", type=int, metavar="N", help="at most N scripts at once, over all arrays (default: no cap)"
    )
    parser.add_argument(
        "--canary",
        action="store_true",
        help="run one experiment of each resource shape first; the rest only if it succeeds",
    )
    add_ignore(parser)
    add_resources(parser, "resources of one experiment (they come before those of the sweep and of the site)")


def add_ignore(parser: argparse.ArgumentParser) -> None:
    """Add the option --ignore to a parser."""
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="CHECK",
        help="submit whatever a check says: time, data, folders, disk, opinion, build",
    )


def options_of(parsed: argparse.Namespace) -> Options:
    """The options of a plan that the command line names."""
    from grid.engine.submission.planning import Options, file_of
    from nuq.settings import declared

    said = {name: getattr(parsed, name) for name in declared(Options) if hasattr(parsed, name)}
    return Options(**said, resources=resources_of(parsed), file=file_of(parsed.grid))


class Parser(argparse.ArgumentParser):
    """The parser of a subcommand: it takes options between the names, too: ``cancel GRID RUN_NAME --yes NAME``.

    A shell that completes a line gets its answer here, before anything is done.
    """

    takes_a_plan = False  # whose options are held by the reviewed plan

    def error(self, message: str) -> NoReturn:
        """As argparse's; ValueError for an option that the reviewed plan holds."""
        found = re.search(r"unrecognized arguments: (--\w+)", message)
        if self.takes_a_plan and found:
            of_plan = argparse.ArgumentParser(add_help=False)
            add_queue_options(of_plan)
            add_sweep_options(of_plan)
            if found[1] in of_plan._option_string_actions:
                raise ValueError(f"{found[1]}: the reviewed plan holds it: give it to plan, and submit without it")
        super().error(message)

    def parse_args(self, args=None, namespace=None):  # type: ignore[override]
        if completion.is_asked():
            from grid.commands.completion import answer

            answer(self)
        options = self.parse_intermixed_args(args, namespace)
        if "sweep" in options:
            _name_sweep(self, options)
        return options


def _name_sweep(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Name the sweep that --sweep writes out by ``grid`` and ``run_name``, as one that has names of its own.

    ValueError where the sweep is named twice, or --name has nothing to name.
    """
    if options.sweep is None:
        missing = [name for name, word in (("GRID", options.grid), ("RUN_NAME", options.run_name)) if word is None]
        if missing:
            parser.error(f"the following arguments are required: {', '.join(missing)} (or --sweep SETTING=A,B)")
        if options.sweep_name is not None:
            raise ValueError(f"--name {options.sweep_name}: names what --sweep writes out; GRID RUN_NAME is a name")
        return
    from grid.engine.sweeps import written
    from grid.engine.sweeps.families import families

    names = options.names if "names" in options else [getattr(options, "name", None)]
    words = [word for word in (options.grid, options.run_name, *names) if word is not None]
    is_named = words[1:] and (words[0] in families() or words[0].endswith(".py"))
    if is_named or ("names" not in options and len(words) > ("name" in options)):
        raise ValueError(
            f"{shlex.join(words)} beside --sweep: a sweep is named by GRID RUN_NAME or written out by --sweep; give "
            f"one of them"
        )
    if "names" in options:
        options.names = words
    elif words:
        options.name = words[0]
    options.grid, options.run_name = written.GRID, written.run_name(options.sweep, options.sweep_name)


def command_parser(
    name: str, what: str, *, one: str | None = None, some: str | None = None, sweep_options: bool = True
) -> Parser:
    """A parser for ``grid_run.py <name> GRID RUN_NAME``, or ``--sweep`` in the place of these two.

    It also takes NAME for one experiment where ``one`` says what the absence of NAME means, or where ``some`` does
    several of them, and --where.
    """
    parser = Parser(prog=f"grid_run.py {name}", description=what)
    parser.add_argument("grid", metavar="GRID", nargs="?", help=GRID_HELP)
    parser.add_argument("run_name", metavar="RUN_NAME", nargs="?", help="the sweep: a function of that file")
    if one:
        which = f"an experiment, by number, label (all its seeds) or run name (default: {one})"
        parser.add_argument("name", metavar="NAME", nargs="?", help=which)
    if some:
        which = (
            f"experiments, by number, label (all its seeds), run name or a pattern of these: 'ALQ*' (default: {some})"
        )
        parser.add_argument("names", metavar="NAME", nargs="*", help=which)
        parser.add_argument(
            "--where",
            nargs="+",
            action="extend",
            default=[],
            metavar="NAME=VALUE",
            help="only experiments with these settings, and of methods without such a setting: --where "
            "method=alq,amq bits=3",
        )
    parser.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        metavar="SETTING=A,B",
        help="in place of GRID RUN_NAME: a sweep of all combinations of these values (method=qsgd,alq method.bits=2,3 "
        "data=digits); the same words name the same sweep again",
    )
    parser.add_argument(
        "--name",
        metavar="SWEEP",
        dest="sweep_name",
        help="with --sweep: its folder below runs/ (default: a name made of the settings)",
    )
    if sweep_options:
        add_sweep_options(parser)
    return parser


def experiments_of(options: argparse.Namespace) -> tuple[Sweep, list[Experiment]]:
    """The sweep that the command line names, with its seeds and settings, and its experiments."""
    from grid.engine.states.runs import named

    return named(options.grid, options.run_name, options.seeds, options.overrides)


def as_planned(options: argparse.Namespace, root: Path, *, needs_plan: bool = False) -> None:
    """Use the seeds and settings of the sweep's last plan, which was submitted, where the command line names neither.

    A plan that is damaged is only told of, unless it is needed: then a ValueError.
    """
    from grid.engine.submission.planning import reviewed
    from grid.engine.sweep import load

    if options.seeds is not None or options.overrides:
        return
    folder = load(options.grid, options.run_name).home
    try:
        before = reviewed(root, folder)
    except ValueError as error:
        if needs_plan:
            raise
        print(f"note: {error}; until then the sweep's own seeds and settings count", file=sys.stderr)
        return
    if before is not None and before.is_of(options.grid, options.run_name):
        options.seeds, options.overrides = before.options.seeds, list(before.options.overrides)
        if before.options.is_part:
            with beside_json(getattr(options, "json", False)):
                print(f"as in the last plan: {words_of(before.options)}")


def again(name: str, grid: str, run_name: str) -> str:
    """The command line of another command for the same sweep."""
    from grid.engine.sweeps import written
    from nuq.settings import plugins

    words = shlex.split(run_name) if grid == written.GRID else [run_name]
    imports = [word for package in plugins.named_by_option for word in (plugins.OPTION, package)]
    return shlex.join(["python", "grid_run.py", name, grid, *words, *imports])


def tell_folder(sweep: Sweep) -> None:
    """Print where the runs of a sweep lie that a command line writes out, and whose name nobody knows yet."""
    from grid.engine.sweeps import written

    if sweep.grid == written.GRID:
        print(sweep.doc, flush=True)


def words_of(options: Options) -> str:
    """The seeds and settings of a plan, as the command line takes them."""
    words = [
        *(["--seeds", options.seeds] if options.seeds is not None else []),
        *(word for text in options.overrides for word in ("--set", text)),
    ]
    return shlex.join(words)


def runs_named(options: argparse.Namespace, root: Path) -> list[Run]:
    """The runs of that sweep, or those of NAME and --where; standard error has what no run fulfils."""
    from grid.engine.states.runs import check_folder, runs_of
    from grid.engine.sweep import find

    sweep, experiments = experiments_of(options)
    check_folder(sweep, root)
    if names := options.names if "names" in options else [options.name] if getattr(options, "name", None) else []:
        meant = {item.name for name in names for item in find(experiments, name)}
        experiments = [item for item in experiments if item.name in meant]
    if getattr(options, "where", None):
        from settings.conditions import chosen
        from settings.sections import dotted

        known = [dotted(item.config) for item in experiments]
        legal = list(dict.fromkeys(name for each in known for name in each))
        kept, notes = chosen(options.where, legal, lambda name: [each.get(name) for each in known])
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        experiments = [experiments[number] for number in kept]
    return runs_of(experiments, root)


def looked_at(options: argparse.Namespace, root: Path) -> tuple[list[Run], View]:
    """The runs that the command line names (see ``as_planned``), and what is known of them."""
    from grid.engine.states import evidence

    as_planned(options, root)
    runs = runs_named(options, root)
    return runs, evidence.of(runs, root)


def add_consent(parser: argparse.ArgumentParser, what: str = "cancelled or started again") -> None:
    """Add the option --yes to a parser; ``what`` is done to something after a question."""
    parser.add_argument("--yes", action="store_true", help=f"do not ask before something is {what}")


def consent(question: str, yes: bool) -> bool:
    """Whether the user agrees; ValueError where nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ValueError(f"{question} Nobody can be asked here: --yes says yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


# --- output -------------------------------------------------------------------------------------------------------


def count(number: int, thing: str) -> str:
    """A number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def aliases(sweep: Sweep, experiments: Sequence[Experiment]) -> str:
    """A note on points that are one run; empty where there are none."""
    return (
        ""
        if sweep.num_points == len(experiments)
        else f" ({sweep.num_points} points; those that mean the same run are run once)"
    )


NAMES = {"LABEL", "RUNNING", "GRID", "RUN_NAME"}  # columns of names that users give
NAME_CHARACTERS = 60


def clipped(text: str, most: int) -> str:
    """One line of at most so many characters.

    Characters that are not printable are escaped; the middle of a longer line is left out.
    """
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return line if len(line) <= most else f"{line[: most - most // 3 - 3]}...{line[len(line) - most // 3 :]}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; names that are long or hold line ends are clipped."""
    most = [NAME_CHARACTERS if name in NAMES else sys.maxsize for name in head]
    rows = [[clipped(cell, size) for cell, size in zip(row, most, strict=True)] for row in rows]
    print(aligned([head, *rows], words=len(head)))
