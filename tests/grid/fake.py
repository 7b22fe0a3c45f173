"""A checkout in a temporary folder whose main.py is a stand-in that obeys the same contract as the real one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep  # of this machine, also beside a virtual cluster
from typing import Any

from grid.engine.states.runs import Run, prepare, runs_of
from grid.engine.sweep import Sweep, axis, point, product

# Behaves as the file `behaviour` beside it says, a JSON object seed -> exit code, "wait" (until a signal), "eats 300"
# (so many MB, then as wait), "go" (until there is a file go in its folder), "deaf" (but to USR2), "stuck" (deaf to
# that, too), "silent" (exit code 0 without a word) or "raise" (a bug), or a list of these: one for each attempt.  It
# ends with 4 where another process has its folder.
MAIN = """
import fcntl, json, os, signal, socket, sys, time
settings = dict(word.split("=", 1) for word in sys.argv[1:])
folder = settings["run_dir"]
behaviour = json.load(open("behaviour.json")).get(settings["seed"], 0)
attempt = os.path.getsize(folder + "/started") if os.path.exists(folder + "/started") else 0
if isinstance(behaviour, list):
    behaviour = behaviour[min(attempt, len(behaviour) - 1)]
status = {"state": "running", "host": socket.gethostname(), "pid": os.getpid(), "heartbeat": time.time()}
status |= {"step": 3, "steps": 7}
ids = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")
slurm = {name: os.environ[name] for name in ids if name in os.environ}
status |= {"start": time.time(), "attempt": attempt + 1, "slurm": slurm}

def leave_code(code):
    if "NUQ_EXIT_CODE" in os.environ:
        open(os.environ["NUQ_EXIT_CODE"], "w").write(str(code))

if os.environ.get("RANK", "0") == "0":
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        leave_code(4)
        sys.exit(4)
    if os.path.exists(folder + "/status.json") and json.load(open(folder + "/status.json"))["state"] == "done":
        print("args", json.dumps(sys.argv[1:]), flush=True)
        leave_code(0)
        sys.exit(0)

def tell(state, code):
    status.update(state=state, exit_code=code)
    with open(folder + "/aside", "w") as file:
        json.dump(status, file, indent=1)
    os.replace(folder + "/aside", folder + "/status.json")
    if code is not None:
        leave_code(code)

def stop(number, frame):
    os.write(1, f"heard {signal.Signals(number).name}\\n".encode())  # in one piece: the ranks share a log
    tell("preempted", 75)
    os._exit(75)

signal.signal(signal.SIGUSR2, stop if behaviour != "stuck" else signal.SIG_IGN)
signal.signal(signal.SIGTERM, stop if behaviour not in ("deaf", "stuck") else signal.SIG_IGN)
tell("running", None)
print("args", json.dumps(sys.argv[1:]), flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR2, signal.SIGTERM))  # the file is never there without its letter
open(folder + "/started", "a").write("x")
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR2, signal.SIGTERM))
if isinstance(behaviour, str) and behaviour.startswith("eats "):  # so many megabytes
    status["memory_bytes"] = int(behaviour.split()[1]) << 20
    tell("running", None)
if behaviour in ("wait", "deaf", "stuck") or "memory_bytes" in status:
    time.sleep(60)
while behaviour == "go" and not os.path.exists(folder + "/go"):
    time.sleep(0.05)
    status["heartbeat"] = time.time()
    tell("running", None)
if behaviour == "go":
    behaviour = 0
if behaviour == "silent":
    sys.exit(0)
if behaviour == "raise":
    tell("failed", 1)
    raise RuntimeError("shape 17 does not fit")
tell({0: "done", 3: "diverged"}.get(behaviour, "failed"), behaviour)
sys.exit(behaviour)
"""


def checkout(root: Path, behaviour: Mapping[int, int | str | list[int | str]] | None = None) -> Path:
    """A folder with the stand-in main.py."""
    root.mkdir(exist_ok=True, parents=True)
    (root / "main.py").write_text(MAIN)
    (root / "behaviour.json").write_text(json.dumps({str(seed): value for seed, value in (behaviour or {}).items()}))
    return root


def runs(root: Path, seeds: int) -> list[Run]:
    """Prepared runs of a tiny sweep, one per seed 1, 2, ..."""
    sweep = Sweep(
        product(point("QSGD", method="qsgd", steps=7), axis("method.bits", [3])),
        seeds=range(1, seeds + 1),
        folder="tiny",
    )
    made = runs_of(sweep.experiments(), root)
    prepare(made)
    return made


def environment(**more: str) -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if key not in {"NUQ_NPROC", "NUQ_PYTHON"}},
        "NUQ_PYTHON": sys.executable,
        **more,
    }


def bash(script: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The script from an unrelated folder."""
    return subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, env=environment(**more), cwd="/", timeout=30, check=False
    )


def until(condition: Callable[[], object], what: str, seconds: float = 15) -> None:
    """Wait until the condition holds; an AssertionError that says ``what`` where it does not in time."""
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, what
        sleep(0.02)


def processes(root: Path) -> list[int]:
    """Pids of other processes that work in the folder, or that name it in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                place = Path(os.readlink(entry / "cwd"))
            except OSError:
                continue
            if str(root) in words or place.is_relative_to(root):
                found.append(int(entry.name))
    return found


def _hears_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def started(root: Path, command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The command as a process; it, and whatever still works in ``root``, is gone afterwards, also after a failure."""
    # a shell that inherits SIGINT ignored, as background jobs do, cannot trap it: tests run that way too
    process: subprocess.Popen[str] = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=_hears_sigint, **more
    )
    try:
        yield process
    finally:
        process.kill()
        for pid in processes(root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
