"""Faults that the product had, each to be put back into a copy of it: the histories find every one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.wrong_changes import Edit

REPO = Path(__file__).parents[2]
BATCH = "grid/engine/scripts/templates/batch_command.sh"
CANCELLING = "grid/commands/cancelling.py"
ENDED = "      TERM* | *' COMPLETING' | *' CANCELLED') is_ended=1 ;;\n"
FAULTS: dict[str, tuple[Edit, ...]] = {
    "a run that is cancelled while it writes the checkpoint of its time-limit warning starts again": (
        Edit(
            "grid/engine/scripts/templates/wait.sh",
            '  if [ "$signalled" != TERM ]; then signalled="$1"; fi\n',
            '  signalled="${signalled:-$1}"\n',
        ),
        Edit(BATCH, ENDED, "      TERM*) is_ended=1 ;;\n"),
    ),
    "one unanswered question of the script brings cancelled runs back": (
        Edit(BATCH, '    if [ -z "$job" ] || [ "$signalled" != "$before" ]; then continue; fi\n', ""),
        Edit(BATCH, ENDED, "      *' COMPLETING' | *' CANCELLED') is_ended=1 ;;\n"),
    ),
    "cancel --pending kills runs at work": (
        Edit(
            CANCELLING,
            "if not parsed.pending or job.word in WAITING)",
            "if not parsed.pending or element in "
            '{state.element for state in view.states.values() if state.word == "pending"})',
        ),
        Edit("grid/engine/slurm/scheduler.py", '*(["--state=PENDING"] if only_waiting else []), ', ""),
    ),
    "cancel leaves array tasks in the queue that no run waits for": (
        Edit(
            CANCELLING,
            "if is_meant(task) and not task.recalled}",
            "if is_meant(task) and not task.recalled\n"
            "            and task.element in {state.element for state in view.states.values()}}",
        ),
    ),
    "a byte outside UTF-8 in the words of sbatch submits the array twice": (
        Edit("grid/engine/slurm/commands.py", '.decode(errors="replace")', ".decode()"),
        Edit(
            "grid/engine/slurm/sbatch_command.py",
            "if isinstance(error, Exception) and not isinstance(error, Unreachable):",
            "if isinstance(error, OSError) and not isinstance(error, Unreachable):",
        ),
    ),
    "an array that a busy controller takes late is submitted twice": (
        Edit("grid/engine/states/chunk_submission.py", "SETTLE_S = 60.0", "SETTLE_S = 0.0"),
    ),
}


def found(edits: tuple[Edit, ...], folder: Path, first: int, count: int) -> str:
    """What the histories of these seeds say of a copy with these edits: the first that is broken, or nothing."""
    shutil.copytree(REPO / "grid", folder / "grid")
    for file, old, new in edits:
        text = (folder / file).read_text()
        assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times"
        (folder / file).write_text(text.replace(old, new))
    command = [sys.executable, "-m", "tests.virtual_slurm.histories", str(first), str(count)]
    variables = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPO}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stdout if done.returncode else ""
