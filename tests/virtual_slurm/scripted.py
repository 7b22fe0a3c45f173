"""The scripts of our own jobs as generators: they leave what the bash scripts and main.py leave, in no time.

What the sbatch file decides itself (which of two signals counts, whether the job is to be queued again) is not written
down here: bash is asked, with the file's own lines.
"""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.virtual_slurm.processes import Life, Process, Steps

if TYPE_CHECKING:
    from tests.virtual_slurm.controller import Controller

HELD = 4
BEAT_S = 2.0
PID = 1 << 22 | 7  # no process of a real machine has it
DONE = re.compile(r'"state"\s*:\s*"done"')


class Scripted(Life):
    """An sbatch file of ours."""

    def script(self) -> Steps:
        cluster, text = self.cluster, self.job.script
        yield cluster.between(0.5, 0.2, 5.0)
        (place,) = shlex.split(_only(r'bash (.+_"\$SLURM_ARRAY_TASK_ID"\.sh)', text))
        root = Path(shlex.split(_only(r"^cd (.+) \|\| exit 2$", text))[0])
        if not root.is_dir():
            self.say(f"slurm_script: cd: {root}: No such file or directory")
            return 2
        path = root / place.replace("$SLURM_ARRAY_TASK_ID", str(self.job.index))
        if left := re.search(r"^if \[ ! -s (.+) \]; then", text, re.M):
            (job_id,) = map(Path, shlex.split(left[1]))
            if not cluster.read(job_id):
                cluster.write(job_id, f"{self.job.array}\n", self.node)
        code_of = re.search(r"^export NUQ_CODE=(.+)$", text, re.M)
        self.root, self.code = root, Path(shlex.split(code_of[1])[0]) if code_of else root
        signals: list[str] = []
        child = Process(self, self.element(path))
        while child.code is None:
            if heard := (yield child):
                signals.append(heard)
                child.signal(heard)
        code = 75 if signals and child.code > 126 else child.code
        return code if code != 75 else (yield from self.after_75(text, path, signals))

    def after_75(self, text: str, path: Path, signals: list[str]) -> Steps:
        """The end of the batch file, by bash: each time that it asks SLURM it gets an answer of that moment."""
        cluster, told = self.cluster, [*signals]
        ledger = cluster.read(path.with_suffix(".ended")) or ""
        held = sum(line.startswith("held") for line in ledger.splitlines())
        while True:
            said = decided(_tail(text), tuple(told), self.restarts, held)
            if said.startswith("pause "):
                end = cluster.now + float(said.split()[1])
                while cluster.now < end:
                    if heard := (yield end - cluster.now):
                        told.append(heard)
                told.append(f"show {_standing(cluster, self.name)}")
            elif said == "requeue":
                (job,) = cluster.find(self.name) or [None]
                refused = bool(cluster.silence) or job is None or bool(cluster.requeue(job))
                told.append(f"requeued {int(refused)}")
            else:
                self.say(said.rpartition("\n")[0])
                return int(said.rpartition("exit ")[2])

    def outlive(self, since: float) -> None:
        """Only the runs that began before this time live on, and nothing begins any more."""
        for run, begun in [(run, begun) for begun, life, run in self.cluster.begun if life is self]:
            if begun < since and self.mains[run].code is None:
                self.left.clear()
                return
        self.kill()

    # --- the script of an element ---

    def element(self, path: Path) -> Steps:
        cluster = self.cluster
        yield cluster.between(0.1, 0.0, 1.0)
        text = cluster.read(path)
        if text is None:
            self.say(f"bash: {path}: No such file or directory")
            return 127
        self.ended_at = path.with_suffix(".ended")
        block = re.search(r"^runs=\(\n(.*?)^\)$", text, re.M | re.S)
        runs = shlex.split(block[1]) if block else []
        slots = re.search(r"number < (\d+); number", text)
        before: dict[str, int] = {}
        if self.restarts == 0:
            cluster.write(self.ended_at, "", self.node)
        for code, run in re.findall(r"^(\d+)(?:@\d+)? (.+)$", cluster.read(self.ended_at) or "", re.M):
            before[run] = int(code)
        self.left, self.codes, self.stops, self.before = list(runs), {}, False, before
        workers = [
            Process(self, self.slot(f" in slot {number}" if slots else ""))
            for number in range(int(slots[1]) if slots else 1)
        ]
        signalled = False
        for worker in workers:
            while worker.code is None:
                if heard := (yield worker):
                    self.stops = signalled = True
                    for each in workers:
                        each.signal(heard)
        codes = {run: self.codes.get(run, 75) for run in runs}
        if (left := sum(code == 75 for code in codes.values())) or (signalled and self.left):
            why = "stopped by a signal" if slots else "checkpointed"
            self.say(f"{why}, {left} of {len(runs)} left: asking to be requeued")
            return 75
        failed = [f"  {code} {run}" for run, code in codes.items() if code not in (0, HELD)]
        if failed:
            self.say(f"{len(failed)} of {len(runs)} failed (exit code, folder; see stdout.log there):")
            self.say("\n".join(failed))
        if held := sum(code == HELD for code in codes.values()):
            self.say(f"{held} of {len(runs)} in the hands of other processes: asking to be requeued, to look again")
            self.cluster.append(self.ended_at, f"held{f'@{self.restarts}' if self.restarts else ''}\n")
            return 75
        if failed:
            return 1
        self.say(f"all {len(runs)} done")
        return 0

    def slot(self, where: str) -> Steps:
        """One run after another."""
        cluster = self.cluster
        while self.left and not self.stops:
            run = self.left.pop(0)
            if self.is_done(run):
                self.say(f"done already: {run}")
                self.codes[run] = 0
                continue
            if self.before.get(run, 75) != 75:
                self.codes[run] = self.before[run]
                self.say(f"ended before the requeue with exit code {self.codes[run]}: {run}")
                continue
            self.say(f"{_clock(cluster.now)} start {run}{where}")
            child, signals = Process(self, self.run(run)), False
            self.shells[run] = child
            while child.code is None:
                if heard := (yield child):
                    signals = True
                    child.signal(heard)
            code = 75 if signals and child.code > 126 else child.code
            self.say(f"{_clock(cluster.now)} exit code {code}: {run}")
            if code != HELD:
                life = f"@{self.restarts}" if self.restarts else ""
                cluster.append(self.ended_at, f"{code}{life} {run}\n")
            self.codes[run] = code
            self.stops |= code == 75
        return 0

    def is_done(self, run: str) -> bool:
        return bool(DONE.search(self.cluster.read(self.root / run / "status.json") or ""))

    def run(self, run: str) -> Steps:
        """run.sh, and the end of main.py."""
        cluster, text = self.cluster, self.cluster.read(self.root / run / "run.sh")
        if text is None:
            self.say(f"bash: {run}/run.sh: No such file or directory")
            return 127
        if not self.code.is_dir():
            self.say(f"run.sh: cd: {self.code}: No such file or directory")
            return 2
        firsts = re.search(r"^firsts=\(\n(.*?)^\)$", text, re.M | re.S)
        end = cluster.now + 120.0
        while unmet := [first for first in shlex.split(firsts[1] if firsts else "") if not self.is_done(first)]:
            if cluster.now >= end:
                self.leave(run, f"run.sh: not started, for it waits for {unmet[0]}, which is not done")
                return 5
            if (yield 1.0):
                return 75
        block = re.search(r"^overrides=\(\n(.*?)^\)$", text, re.M | re.S)
        words = shlex.split(block[1] if block else "")
        child = self.mains[run] = Process(self, self.main(run, words))
        signals = False
        while child.code is None:
            if heard := (yield child):
                signals = True
                child.signal(heard)
        return 75 if signals and child.code > 126 else child.code

    def leave(self, run: str, line: str) -> None:
        self.cluster.append(self.root / run / "stdout.log", f"{line}\n")

    def begin(self) -> None:
        self.mains: dict[str, Process] = {}  # by run folder
        self.shells: dict[str, Process] = {}
        super().begin()

    # --- main.py, as tests/grid/fake.py has it ---

    def main(self, run: str, words: list[str]) -> Steps:
        cluster, folder, key = self.cluster, self.root / run, run
        seed = dict(word.split("=", 1) for word in words)["seed"]
        if (yield cluster.between(1.0, 0.5, 30.0)):  # python and torch are being loaded
            return 143
        if cluster.locks.get(key) is not None:
            return HELD
        if self.is_done(run):
            self.leave(run, f"args {json.dumps(words)}")
            return 0
        me = cluster.locks[key] = object()
        try:
            return (yield from self.work(run, folder, seed, words))
        finally:
            cluster.beating.pop(key, None)
            if cluster.locks.get(key) is me:
                del cluster.locks[key]

    def work(self, run: str, folder: Path, seed: str, words: list[str]) -> Steps:
        cluster = self.cluster
        attempt = len(cluster.read(folder / "started") or "")
        behaviour = json.loads((self.code / "behaviour.json").read_text()).get(seed, 0)
        if isinstance(behaviour, list):
            behaviour = behaviour[min(attempt, len(behaviour) - 1)]
        skew = cluster.clocks[self.node]
        ids = {"SLURM_JOB_ID": str(self.job.number), "SLURM_ARRAY_JOB_ID": str(self.job.array)}
        ids |= {"SLURM_ARRAY_TASK_ID": str(self.job.index)}
        ids |= {"SLURM_RESTART_COUNT": str(self.restarts)} if self.restarts else {}
        begun = cluster.now
        status: dict[str, Any] = {
            "state": "running", "host": self.node, "pid": PID, "heartbeat": begun + skew, "step": 3, "steps": 7,
            "start": begun + skew, "attempt": attempt + 1, "slurm": ids,
        }  # fmt: skip

        def tell(state: str, code: int | None) -> None:
            cluster.beating.pop(run, None)
            status.update(state=state, exit_code=code)
            cluster.write(folder / "status.json", json.dumps(status, indent=1), self.node)

        late_s = cluster.random.uniform(0, cluster.lag_s) if cluster.random else 0.0

        def beat(now: float) -> None:
            """The last heartbeat that can be seen by now."""
            at = begun + BEAT_S * math.floor((now - late_s - begun) / BEAT_S)
            is_seen = not cluster.is_unseen(folder / "status.json")
            if at + skew > status["heartbeat"] and is_seen and not self.is_stopped:
                status["heartbeat"] = at + skew
                cluster.write(folder / "status.json", json.dumps(status, indent=1), self.node)

        tell("running", None)
        self.leave(run, f"args {json.dumps(words)}")
        cluster.append(folder / "started", "x")
        cluster.begun.append((begun, self, run))
        if isinstance(behaviour, str) and behaviour.startswith("eats "):
            status["memory_bytes"] = int(behaviour.split()[1]) << 20
            tell("running", None)
        cluster.beating[run] = beat
        ignored = {"deaf": ("TERM",), "stuck": ("TERM", "USR2")}.get(str(behaviour), ())
        lasts_s = cluster.between(5.0, 0.0, 600.0)
        if str(behaviour).partition(" ")[0] in ("wait", "deaf", "stuck", "eats", "go"):
            lasts_s = math.inf
        end = cluster.now + lasts_s
        while cluster.now < end:
            pause = 1.0 if behaviour == "go" else end - cluster.now
            heard = yield pause
            if heard and heard not in ignored:
                if behaviour != "go" and cluster.random and (yield cluster.random.uniform(0.0, 40.0)):
                    pass  # told again, while it writes its checkpoint
                self.leave(run, f"heard SIG{heard}")
                status["heartbeat"] = cluster.now + skew
                tell("preempted", 75)
                return 75
            if behaviour == "go" and (folder / "go").exists():
                break
        status["heartbeat"] = cluster.now + skew
        if behaviour == "silent":
            return 0
        code = {"raise": 1, "go": 0}.get(str(behaviour)) if isinstance(behaviour, str) else int(behaviour)
        assert code is not None, behaviour
        if behaviour == "raise":
            self.leave(run, 'Traceback (most recent call last):\n  File "main.py", line 75, in <module>\n    raise '
                       'RuntimeError("shape 17 does not fit")\nRuntimeError: shape 17 does not fit')  # fmt: skip
        cluster.finished.setdefault(run, []).append((cluster.now, code))
        tell({0: "done", 3: "diverged"}.get(code, "failed"), code)
        return code


def _clock(now: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))


def _only(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.M)
    assert found, f"{pattern} is not in {text}"
    return found[1]


def _standing(cluster: Controller, name: str) -> str:
    """What ``scontrol show job`` says, as far as the script reads it; nothing where it does not answer."""
    (job,) = cluster.find(name) or [None]
    is_unheard = cluster.random is not None and cluster.random.random() < cluster.unheard
    if cluster.silence or is_unheard or job is None:
        return ""
    return f"JobState={job.shown} Reason={job.reason.replace(' ', '_')} Restarts={job.restarts}"


# --- bash ---------------------------------------------------------------------------------------------------------

_STUBS = """
position=0
next_event() { event="${events[position]-}"; position=$((position + 1)); }
sleep() {
  next_event
  while [[ "$event" == USR2 || "$event" == TERM ]]; do forward "$event"; next_event; done
  if [[ "$event" != show* ]]; then echo "pause $1"; builtin exit 0; fi
  answer="${event#show}"
}
scontrol() {
  if [ "$1" = show ]; then
    if [ -n "${answer# }" ]; then echo "JobId=1 ${answer# } ExitCode=0:0"; fi
    return 0
  fi
  next_event
  if [[ "$event" != requeued* ]]; then echo requeue; builtin exit 0; fi
  return "${event#requeued }"
}
grep() { echo "$held_lives"; }
exit() { echo "exit $1"; builtin exit 0; }
signals=0
while [[ "${events[position]-}" == USR2 || "${events[position]-}" == TERM ]]; do
  if [ "$signals" -lt "$signals_before" ]; then forward "${events[position]}"; position=$((position + 1))
    signals=$((signals + 1)); else break; fi
done
code=75
"""


@functools.cache
def _tail(text: str) -> str:
    """The functions of the sbatch file and what it does after its element, with no name of this job in it."""
    functions = text[text.index("child=\n") : text.index("cd ", text.index("finish() {"))]
    end = text[text.index('if [ "$code" -eq 75 ]') :]
    end = re.sub(r"\"\$\(grep -c '\^held' .*?2>/dev/null\)\"", '"$(grep)"', end)
    functions = re.sub(r"^trap .*$", "", functions, flags=re.M)
    return f"{functions}{_STUBS}{end}\n"


@functools.cache
def decided(tail: str, told: tuple[str, ...], restarts: int, held: int) -> str:
    """What the end of the batch file does after these signals and answers: it waits, or asks for a requeue, or ends."""
    first = next((number for number, word in enumerate(told) if word.startswith("show")), len(told))
    events = " ".join(map(shlex.quote, told))
    before = f"SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=0 SLURM_RESTART_COUNT={restarts} held_lives={held}\n"
    done = subprocess.run(
        ["bash", "-c", f"{before}signals_before={first}\nevents=({events})\n{tail}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout.strip()
