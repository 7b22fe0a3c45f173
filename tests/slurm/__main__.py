"""``python -m tests.slurm up DIR`` starts a throw-away SLURM that stays; ``python -m tests.slurm down DIR`` ends it."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tests.slurm import cluster


def main(words: list[str] | None = None) -> int:
    """Run one command; 0 when all went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm", description=__doc__)
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--no-accounting", action="store_true", help="no MariaDB and slurmdbd: sacct says that it is disabled"
    )
    parser.add_argument(
        "--requeue-delay",
        type=int,
        default=5,
        metavar="S",
        help="seconds that a requeued job waits (5; 120 on most clusters)",
    )
    chosen = parser.parse_args(words)
    if chosen.action == "down":
        cluster.down(chosen.folder)
        return 0
    try:
        slurm = cluster.up(chosen.folder, not chosen.no_accounting, chosen.requeue_delay)
    except cluster.ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"export SLURM_CONF={shlex.quote(slurm.environ['SLURM_CONF'])}")
    print('export PATH="$PATH:/usr/sbin"')
    return 0


if __name__ == "__main__":
    sys.exit(main())
