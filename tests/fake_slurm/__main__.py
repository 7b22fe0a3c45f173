"""``python -m tests.fake_slurm up DIR`` prints what a shell has to evaluate; ``down DIR`` ends everything."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from .cluster import Slurm, make_config, start, sweep_up


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fake_slurm", description="A small SLURM on this machine, for tests."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start a cluster in a new folder and print the exports that lead to it")
    down = verbs.add_parser("down", help="end it, with all its jobs")
    for verb in (up, down):
        verb.add_argument("folder", type=Path)
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--cpus", type=int, default=4, help="of each node")
    up.add_argument("--gpus", type=int, default=0, help="of each node; no real ones are needed")
    up.add_argument(
        "--partition", action="append", default=[], metavar="NAME[=MAXTIME]", help="default: debug, without a limit"
    )
    up.add_argument("--max-array-size", type=int, default=1001)
    up.add_argument("--no-accounting", dest="accounting", action="store_false")
    up.add_argument(
        "--second",
        type=float,
        default=1 / 60,
        help="real seconds that a second of a time limit takes (default: a minute takes 1 s)",
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.verb == "down":
        try:
            pid = int((folder / "server.pid").read_text())
        except (OSError, ValueError):
            print(f"{folder}: no fake SLURM was started here", file=sys.stderr)
            return 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _wait_for_end(pid)
        sweep_up(folder)
        (folder / "ctl").unlink(missing_ok=True)
        return 0
    if (folder / "bin").exists():
        print(f"{folder}: a fake SLURM was started here before; name a new folder", file=sys.stderr)
        return 1
    partitions = {
        name: ({"max_time": limit} if limit else {})
        for name, _, limit in (text.partition("=") for text in options.partition)
    }
    names = ("nodes", "cpus", "gpus", "max_array_size", "accounting", "second")
    start(
        folder,
        make_config(partitions=partitions or None, **{name: getattr(options, name) for name in names}),
        watched=False,
    )
    for name, value in Slurm(folder).exports.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _wait_for_end(pid: int) -> None:
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
