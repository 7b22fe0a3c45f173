"""The command line of the grid: from a named sweep to job scripts, a SLURM array, local runs and their states.

The original command writes job scripts and an sbatch file; the subcommands look at sweeps, submit them and run them
here.

PYTHON_ARGCOMPLETE_OK: by this word a shell knows that it can ask for completions.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from files import completion
from files.aligned import aligned
from files.escaped import Escaping

ROOT = Path(__file__).absolute().parent  # unresolved: a cluster may know the checkout by a link only
# name -> (module of grid.commands and function, arguments, what it does)
COMMANDS = {
    "list": ("sweeps:list_sweeps", "[GRID]", "every sweep with its number of experiments"),
    "show": ("sweeps:show", "GRID RUN_NAME [NAME]", "the experiments as a table; one experiment's settings and script"),
    "dry-run": (
        "sweeps:dry_run",
        "GRID RUN_NAME [NAME]",
        "a handful of steps of one experiment, and what the whole run would cost",
    ),
    "plan": (
        "submitting:plan",
        "GRID RUN_NAME",
        "what submit would do: new, done, running, failed, changed; arrays, hours left",
    ),
    "submit": ("submitting:submit", "GRID RUN_NAME", "submit to SLURM exactly what plan showed"),
    "run": ("here:run", "GRID RUN_NAME [NAME ...]", "run what is missing on this machine, in slots"),
    "status": ("states:status", "GRID RUN_NAME", "the state of every experiment; --watch"),
    "logs": ("states:logs", "GRID RUN_NAME [NAME]", "the end of a run's log"),
    "failures": ("states:failures", "GRID RUN_NAME", "failed runs grouped by what went wrong"),
    "retry": (
        "submitting:retry",
        "GRID RUN_NAME [NAME ...]",
        "start failed runs again, with more time, more memory or other nodes",
    ),
    "cancel": ("cancelling:cancel", "GRID RUN_NAME [NAME ...]", "take runs out of the queue"),
    "collect": ("states:collect", "GRID RUN_NAME", "a table of all runs: CSV, JSON, Parquet or LaTeX"),
    "diff": ("comparing:diff", "RUN RUN", "what differs between two runs: settings, code, machine, results"),
    "prune": ("pruning:prune", "GRID RUN_NAME", "run folders that left the sweep; --archive, --delete"),
    "pjobs": ("sweeps:pjobs", "", "write the paper's tasks to pjobs/ as ready bash files"),
}
IMPORT = """--import PACKAGE, in any of these lines, imports a package of your own that adds methods, data sets or
models (docs/plugins.md)."""
EXAMPLES = """examples:
  python grid_run.py --prefix exp --cluster slurm --run_name cifar10_full_resnet32 --grid nuq --cluster_args 38,1,p100
  python grid_run.py plan nuq cifar10_full_resnet32 --seeds 5 --max_running 38
  python grid_run.py run demo demo
  python grid_run.py run --sweep method=qsgd,alq method.bits=2,3 data=digits --seeds 3
"""


def epilog() -> str:
    """The list of subcommands, for --help."""
    lines = aligned([(f"  {name} {arguments}", what) for name, (_, arguments, what) in COMMANDS.items()], words=2)
    return f"subcommands (each has --help):\n{lines}\n\n{IMPORT}\n\n{EXAMPLES}"


def _sentence(error: Exception) -> str:
    """A description of the error, in one line; for a system error the file and the system's word for it."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    if isinstance(error, NotADirectoryError | FileExistsError):
        path = Path(os.fsdecode(error.filename)).absolute()
        for place in (*path.parents[::-1], path):
            if place.exists() and not place.is_dir():
                return f"{place} is a file, and a folder of that name is needed: move it away"
    if error.errno == errno.EACCES:
        return _denied(Path(os.fsdecode(error.filename)).absolute())
    return f"{error.filename}: {error.strerror}"


def _denied(path: Path) -> str:
    """A sentence on what cannot be read or written, and who owns it.

    Where there is no such file, the owner is that of the nearest folder above it.
    """
    nearest = next(place for place in (path, *path.parents) if os.path.lexists(place))
    try:
        owner = nearest.owner()
    except (KeyError, OSError):
        owner = "somebody else"
    what = "written" if os.access(nearest, os.R_OK) else "read"
    return f"{path}: cannot be {what} by you ({'it' if nearest == path else nearest} belongs to {owner})"


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line and return its exit code.

    Exit code: 0 fine, 1 some runs failed, 2 bad input, 75 something waits for room in the queue, 130 stopped by Ctrl-C;
    dry-run passes on that of the run.
    """
    # logs and messages are others' words
    with redirect_stdout(Escaping(sys.stdout)), redirect_stderr(Escaping(sys.stderr)):
        return _main(argv, root)


def _main(argv: Sequence[str] | None, root: Path) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if completion.is_asked():
        words = completion.words_before()[:1]
        if not words or words[0] not in COMMANDS:
            from grid.commands.completion import answer_first
            from grid.commands.legacy_cli import write_parser

            answer_first(write_parser(""), {name: what for name, (_, _, what) in COMMANDS.items()})
    if not words:
        words = ["--help"]
    try:
        if not ({"-h", "--help"} & set(words) or completion.is_asked()):  # at a key nobody's code is executed
            from settings.command_line import with_plugins

            words = with_plugins(words) or ["--help"]
        if words[0].startswith("-"):
            from grid.commands.legacy_cli import write

            return write(words, root, epilog())
        if words[0] not in COMMANDS:
            from nuq.settings import unknown

            raise unknown("command", words[0], list(COMMANDS))
        module, _, function = COMMANDS[words[0]][0].partition(":")
        return getattr(importlib.import_module(f"grid.commands.{module}"), function)(words[1:], root)
    except BrokenPipeError:  # `grid_run.py show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"grid_run.py: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
