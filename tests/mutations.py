"""``python -m tests.mutations [NAMES]``: make a wrong change, run the quick tests, undo it; a line of a table for each.

The changes are in ``tests/wrong_changes.py``.  Tests that pass all the same protect nobody from such a mistake.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from files.atomic import aside
from nuq.native.build import LIBRARY, build
from tests import quick
from tests.wrong_changes import CHANGES, Change

ROOT = Path(__file__).parent.parent
OWN = "tests/test_mutations.py"  # the test of the list itself, which is red under every change
HEAD = "| change | caught | failed | s |\n|---|---|---|---|"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_MOST_SHOWN = 3


def make(change: Change) -> None:
    """Make the edits in the working tree, and build what they change of the C++ kernels."""
    for file, old, new in change.edits:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file}: {text.count(old)} times {old!r}"
        (ROOT / file).write_text(text.replace(old, new), encoding="utf-8")
    if is_compiled(change):
        build()


def is_compiled(change: Change) -> bool:
    return any(Path(file).suffix in (".cpp", ".h") for file, _, _ in change.edits)


@contextmanager
def made(change: Change) -> Iterator[None]:
    """The working tree with a change; whatever happens, the files are git's again, and the kernels those of before."""
    kernels = LIBRARY.read_bytes() if is_compiled(change) and LIBRARY.exists() else None
    try:
        make(change)
        yield
    finally:
        subprocess.run(["git", "checkout", "-q", "--", *(file for file, _, _ in change.edits)], cwd=ROOT, check=True)
        if kernels is not None:
            with aside(LIBRARY) as place:
                place.write_bytes(kernels)


def run(tests: Sequence[str], processes: int, first: bool, limit_s: float) -> tuple[bool, str]:
    """Run the quick ones of these tests: whether any failed, and which, in words."""
    how = ["-p", "xdist.plugin", "-n", str(processes), "--dist", "loadfile"] if processes > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *how, *(["-x"] if first else [])]
    command += [f"--ignore={OWN}", "-p", "no:cacheprovider", *tests]
    # a group of its own, of which nothing stays; and no bytecode of the wrong code
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return True, f"none within {limit_s:g} s"
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode not in (0, 1, 2):
        raise SystemExit(f"pytest ended with {child.returncode}:\n{output[-3000:]}")
    failed = list(dict.fromkeys(_FAILED.findall(output)))
    more = [f"and {len(failed) - _MOST_SHOWN} more"] if len(failed) > _MOST_SHOWN else []
    return child.returncode > 0, ", ".join([*failed[:_MOST_SHOWN], *more])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Try wrong changes on the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a change (default: all {len(CHANGES)})")
    parser.add_argument("--list", action="store_true", help="name the changes, and what a user would lose by each")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="these alone (default: all quick ones)")
    parser.add_argument("--narrow", action="store_true", help="those alone that should mean it")
    parser.add_argument("--all", action="store_true", help="go on after the first failure")
    parser.add_argument("-n", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--limit_s", type=float, default=3600, metavar="S", help="for the tests of one change")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CHANGES]:
        parser.error(f"{unknown[0]!r} is none of the changes: --list names them")
    names = given.names or list(CHANGES)
    if given.list:
        print("\n".join(f"{name}: {CHANGES[name].loss}" for name in names))
        return
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(status, cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        parser.error("files are changed: commit them first, as what this changes is undone by git")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(HEAD, flush=True)
    for name in names:
        started = time.monotonic()
        with made(CHANGES[name]):
            tests = (
                CHANGES[name].tests.split()
                if given.narrow
                else given.tests or [room for half in quick.halves() for room in half]
            )
            caught, failed = run(tests, given.n, not given.all, given.limit_s)
        seconds = time.monotonic() - started
        print(f"| {name} | {'yes' if caught else 'NO'} | {failed} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
