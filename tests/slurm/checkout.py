"""Checkouts for the scenarios: the real grid_run.py over a stand-in main.py,
or a copy of the tree with the real one.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.slurm.cluster import ClusterError, Slurm

ROOT = Path(__file__).parents[2]
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}

# What a run does is in runs/behaviour.json: seed -> the words of its attempts, of which the last is repeated.
# ok: done at once
# fail: a traceback
# wait: done once runs/go or runs/go-<seed> exists, checkpointed (75) at USR2 and TERM
# slow: as wait, and a checkpoint takes it 6 s
# dull: as wait, and it does not hear USR2
# deaf: wait, and ignore every warning
# behind: as wait, and the clock of its node is two minutes behind
# late: as ok, and its last word is not seen before the test renames "late" to status.json
# eats: takes 20 MB more every .2 s, tells how much it has, and never ends
# It ends with 4 where another process has its folder.  Every start and every end is a line of runs/history: what
# happened, whatever the states say.
MAIN = """
import fcntl, json, os, signal, sys, time

settings = dict(word.split("=", 1) for word in sys.argv[1:])
folder, seed, environ = settings["run_dir"], settings["seed"], os.environ
try:
    before = json.load(open(folder + "/status.json"))
except FileNotFoundError:
    before = {}
attempt = before.get("attempt", 0) + 1
words = json.load(open("runs/behaviour.json")).get(seed, "ok").split()
word = words[min(attempt, len(words)) - 1]
element = environ.get("SLURM_ARRAY_JOB_ID", "") + "_" + environ.get("SLURM_ARRAY_TASK_ID", "")
restart, node = environ.get("SLURM_RESTART_COUNT", "0"), environ.get("SLURMD_NODENAME", "-")
now = lambda: time.time() - 120 * (word == "behind")
begun = now()
kept = ("JOB_ID", "TASK_ID", "RESTART_COUNT", "CLUSTER_NAME")
status = {
    "state": "running", "attempt": attempt, "host": os.uname().nodename, "pid": os.getpid(), "start": begun,
    "step": 3, "steps": 7,
    "slurm": {key: value for key, value in environ.items() if key.startswith("SLURM_") and key.endswith(kept)},
    "code": os.path.basename(environ.get("NUQ_CODE", "")), "exit_code": None, "failure": None,
}


def note(what):
    line = f"{time.time():.3f} {what} {seed} {element} {restart} {node} {os.path.basename(folder)}\\n"
    log = os.open("runs/history", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())  # in one piece: many append to it


def tell(state, code):
    status.update(state=state, exit_code=code, heartbeat=now(), seconds=before.get("seconds", 0) + now() - begun)
    with open(folder + "/aside", "w") as file:
        json.dump(status, file)
    os.replace(folder + "/aside", folder + ("/late" if word == "late" else "/status.json"))


def stop(number, frame):
    for each in (signal.SIGUSR2, signal.SIGTERM):  # the shells above hand on what SLURM sends to everybody
        signal.signal(each, signal.SIG_IGN)
    note(signal.Signals(number).name)
    time.sleep(6 if word == "slow" else 0)
    tell("preempted", 75)
    os._exit(75)


for number in (signal.SIGUSR2, signal.SIGTERM):
    is_heard = word != "deaf" and (word, number) != ("dull", signal.SIGUSR2)
    signal.signal(number, stop if is_heard else signal.SIG_IGN)
try:
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("held")
    os._exit(4)
if before.get("state") == "done":  # since its script looked
    os._exit(0)
note("start")
if word != "ok":
    tell("running", None)
print("begun, attempt", attempt, flush=True)
released = lambda: os.path.exists("runs/go") or os.path.exists("runs/go-" + seed)
kept = []
while word == "eats":
    kept.append(bytearray(20_000_000))
    (peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    status["memory_bytes"] = 1024 * int(peak)
    tell("running", None)
    time.sleep(0.2)
while word in ("wait", "deaf", "slow", "dull", "behind") and not released():
    time.sleep(0.1)
    if now() - status["heartbeat"] > 2:
        tell("running", None)
note("end")
if word == "fail":
    status["failure"] = {"signature": "RuntimeError at main.py:1 in break_down", "message": "as it was told"}
    tell("failed", 1)
    raise RuntimeError("as it was told")
status["step"] = 7
tell("done", 0)
"""

SWEEPS = '''
"""Sweeps of the scenarios."""

from grid.engine.sweep import Sweep, point


def some() -> Sweep:
    """One setting, many seeds."""
    qsgd = point("QSGD", method="qsgd", data="digits", model="cnn", steps=7)
    return Sweep([qsgd], seeds=range(1, {seeds} + 1), folder="some")
'''

SITE = """
defaults: {cpus: 1, mem: 2G, gpus: 0}
signal_s: 30
"""


LATER = """
import sys, time
now, ahead_s = time.time, 3600 * float(sys.argv[1])
time.time = lambda: now() + ahead_s
from pathlib import Path
sys.path.insert(0, str(Path("grid_run.py").resolve().parent))
import grid_run
sys.exit(grid_run.main(sys.argv[2:], Path.cwd()))
"""


class Event(NamedTuple):
    """A line of runs/history."""

    time: float
    what: str  # start, end, or the name of a signal
    seed: int
    element: str
    restart: int
    node: str
    run: str  # the name of its folder


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str  # standard output, then what it said on standard error
    said: str  # standard error


@dataclass(frozen=True)
class Checkout:
    """A checkout and the cluster that its commands speak to."""

    root: Path
    slurm: Slurm
    name: str  # the sweep of sweeps.py
    environ: Mapping[str, str] = field(repr=False)

    def call(self, *words: str, hours_later: float = 0) -> Done:
        """``grid_run.py`` with these words, now or by a clock that is ahead."""
        return self.shell(
            *(self.command(*words) if not hours_later else [sys.executable, "-c", LATER, str(hours_later), *words])
        )

    def command(self, *words: str) -> list[str]:
        """The command line of ``grid_run.py``."""
        return [sys.executable, "grid_run.py", *words]

    def shell(self, *command: str) -> Done:
        """Any command, as the user of this checkout."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Done(done.returncode, done.stdout + done.stderr, done.stderr)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """``grid_run.py`` with these words, in the background; what it says comes from ``communicate``."""
        return subprocess.Popen(
            self.command(*words), cwd=self.root, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, action: str, *words: str) -> str:
        """A subcommand on the sweep; what it printed.  An AssertionError where it failed."""
        done = self.call(action, "sweeps.py", self.name, *words)
        assert done.code == 0, f"{action}: {done.code}\n{done.out}"
        return done.out

    def refused(self, action: str, *words: str) -> str:
        """The words of a subcommand that has to end with a sentence and code 2."""
        done = self.call(action, "sweeps.py", self.name, *words)
        assert done.code == 2, f"{action}: {done.code}\n{done.out}"
        assert "Traceback" not in done.out
        return done.said

    def submit(self, *words: str) -> str:
        """Plan with these words and submit; the id of the first array."""
        self.run("plan", *words)
        self.run("submit")
        return self.ids()[-1]

    def records(self) -> list[dict]:
        """The submissions on record, oldest first."""
        return [
            json.loads(path.read_text()) for path in sorted((self.root / "jobs/sweeps").glob("*/*/submission.json"))
        ]

    def ids(self) -> list[str]:
        """The ids of all arrays on record."""
        return [chunk["job_id"] for record in self.records() for chunk in record["chunks"] if chunk["job_id"]]

    def behave(self, seeds: Mapping[int, str]) -> None:
        """Set what the runs do: ``{3: "wait ok"}`` is seed 3's first attempt and all later ones; the others are ok."""
        (self.root / "runs").mkdir(exist_ok=True)
        (self.root / "runs/behaviour.json").write_text(json.dumps(dict(seeds)))

    def go(self, *seeds: int) -> None:
        """Let these waiting runs end; all of them where none is named."""
        for name in [f"go-{seed}" for seed in seeds] or ["go"]:
            (self.root / "runs" / name).touch()

    def history(self, what: str = "") -> list[Event]:
        """The events that the runs themselves noted, in their order."""
        path = self.root / "runs/history"
        rows = [line.split() for line in (path.read_text().splitlines() if path.exists() else [])]
        events = [Event(float(row[0]), row[1], int(row[2]), row[3], int(row[4]), row[5], row[6]) for row in rows]
        return sorted((event for event in events if what in ("", event.what)), key=lambda event: event.time)

    def starts(self) -> Counter[int]:
        """The number of starts of each seed."""
        return Counter(event.seed for event in self.history("start"))

    def told(self, seed: int) -> dict[str, Any]:
        """status.json of a run; empty before it said anything."""
        try:
            return json.loads(next((self.root / f"runs/{self.name}").glob(f"*-s{seed}-*/status.json")).read_text())
        except (StopIteration, FileNotFoundError):
            return {}

    def rows(self, hours_later: float = 0) -> dict[int, dict[str, str]]:
        """Seed -> the row of ``collect``, from a fresh look at the queue."""
        return {int(row["setting.seed"]): row for row in self.table(hours_later)}

    def table(self, hours_later: float = 0) -> list[dict[str, str]]:
        """The rows of ``collect``, from a fresh look at the queue."""
        (self.root / "jobs/scheduler.json").unlink(missing_ok=True)
        done = self.call("collect", "sweeps.py", self.name, "--out", "-", hours_later=hours_later)
        assert done.code == 0, done.out
        return list(csv.DictReader(io.StringIO(done.out)))

    def states(self, hours_later: float = 0) -> dict[int, str]:
        """Seed -> state, from a fresh look."""
        return {seed: row["state"] for seed, row in self.rows(hours_later).items()}

    def status(self, *words: str) -> str:
        """The text that ``status`` prints after a fresh look."""
        (self.root / "jobs/scheduler.json").unlink(missing_ok=True)
        return self.run("status", *words)

    def wait_for_starts(self, seeds: Mapping[int, int] | int) -> None:
        """Wait until these seeds were started so often each; a number: so many starts in all."""
        self.slurm.wait_until(lambda: (self.starts().total() if isinstance(seeds, int) else self.starts()) == seeds)

    def wait_until_over(self) -> None:
        """Wait until SLURM has nothing of this checkout's left."""
        self.slurm.wait_until(lambda: set(queued(self.slurm, *self.ids()).values()) <= OVER, every_s=0.5)


def stand_in(
    root: Path, slurm: Slurm, seeds: int, behaviour: Mapping[int, str] | None = None, site: str = SITE
) -> Checkout:
    """A checkout whose sweep ``some`` has one setting and so many seeds, and whose main.py does as it is told (see
    ``behave``).
    """
    root.mkdir(parents=True)
    (root / "grid_run.py").symlink_to(ROOT / "grid_run.py")
    (root / "main.py").write_text(MAIN)
    (root / "sweeps.py").write_text(SWEEPS.format(seeds=seeds))
    # No site-packages, no .pth files: it starts in a fraction of the time.
    (root / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    (root / "python").chmod(0o755)
    made = _checkout(root, slurm, "some", site, str(root / "python"))
    made.behave(behaviour or {})
    return made


def whole(root: Path, slurm: Slurm, sweeps: str, name: str, site: str = SITE) -> Checkout:
    """A copy of the tree, real main.py included, with a sweep of its own."""
    ignored = shutil.ignore_patterns("__pycache__")
    root.mkdir(parents=True)
    for part in ("args.py", "grid_run.py", "main.py", "constraints.txt"):
        shutil.copy2(ROOT / part, root / part)
    for part in ("files", "settings", "grid", "nuq", "train"):
        shutil.copytree(ROOT / part, root / part, ignore=ignored)
    (root / "sweeps.py").write_text(sweeps)
    return _checkout(root, slurm, name, site, sys.executable)


def _checkout(root: Path, slurm: Slurm, name: str, site: str, python: str) -> Checkout:
    (root / "site.yaml").write_text(site)
    environ = {**slurm.environ, "NUQ_SITE": str(root / "site.yaml"), "NUQ_PYTHON": python, "OMP_NUM_THREADS": "1"}
    environ.pop("NUQ_NPROC", None)
    return Checkout(root, slurm, name, environ)


# --- what SLURM says ----------------------------------------------------------------------------------------------


def accounted(slurm: Slurm, ids: Iterable[str]) -> dict[str, str]:
    """Element -> state, as accounting has it; of a requeued element its last life."""
    rows = slurm.run("sacct", "-X", "-P", "-n", "-j", ",".join(ids), "-o", "JobID,State").splitlines()
    return {job: state.split()[0] for job, state in (row.split("|") for row in rows)}


def queued(slurm: Slurm, *ids: str) -> dict[str, str]:
    """Element -> state of what waits, runs or is ending; of everything that SLURM still knows where ids are named.

    A ClusterError where it does not answer: that is no empty queue.
    """
    words = ["-t", "all", "-j", ",".join(ids)] if ids else []
    try:
        rows = slurm.run("squeue", "--array", "-h", "-o", "%i %T", *words).splitlines()
    except ClusterError as error:
        if "Invalid job id" not in str(error):  # its word on an id that it has forgotten
            raise
        rows = []
    return dict(row.split() for row in rows)


def most_at_once(events: Sequence[Event]) -> int:
    """The largest number of runs between their start and their end at one moment."""
    running = most = 0
    for event in sorted(events, key=lambda event: event.time):
        running += 1 if event.what == "start" else -1
        most = max(most, running)
    return most
