"""Jobs for the fake SLURM: their scripts, how they are submitted, and what is waited for."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fake_slurm.cluster import Slurm

# Tells what it hears, then waits for more; a child does the waiting, so that the trap runs at once.
LISTEN = """#!/bin/bash
trap 'echo "heard USR2"' USR2
trap 'echo "heard TERM"; exit 75' TERM
echo "start ${SLURM_ARRAY_TASK_ID-} restart ${SLURM_RESTART_COUNT-none} id $SLURM_JOB_ID"
: > "started.${SLURM_ARRAY_TASK_ID-x}.${SLURM_RESTART_COUNT-0}"
if [ "${SLURM_RESTART_COUNT-0}" -ge 1 ]; then exit 0; fi
sleep 60 & wait; wait; wait
"""
BASH = "#!/bin/bash\n"


def submit(slurm: Slurm, folder: Path, script: str, *options: str) -> str:
    path = folder / "script.sh"
    path.write_text(script)
    done = slurm.run(
        "sbatch",
        "--parsable",
        "--output=%A_%a.log" if "-a" in options else "--output=%j.log",
        *options,
        str(path),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def appear(*paths: Path) -> None:
    """Wait until a script has set its traps and said so."""
    deadline = time.monotonic() + 10
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, [path.name for path in paths if not path.exists()]
        time.sleep(0.01)


def states(slurm: Slurm, job: str) -> list[str]:
    """The states of jobs, as sacct tells them."""
    return slurm.run("sacct", "-X", "-P", "-n", "-o", "JobID,State,ExitCode", "-j", job).stdout.splitlines()
