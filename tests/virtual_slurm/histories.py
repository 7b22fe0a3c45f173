"""Random histories of a sweep: a user plans, submits, looks, retries and cancels while everything that can fail fails.

``python -m tests.virtual_slurm.histories FIRST COUNT`` runs the histories of so many seeds; a history that breaks a
promise is printed step by step, and its seed alone plays it again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
import itertools
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import grid_run
from grid.engine.scripts import snapshot
from grid.engine.slurm import sbatch_command
from grid.engine.states import ledger, runs
from grid.engine.submission.plan import FRESH
from grid.engine.submission.retry import FAILED
from tests.grid import fake
from tests.virtual_slurm.cluster import Cluster
from tests.virtual_slurm.job import ENDED, Job
from tests.virtual_slurm.promises import Broken, Promises
from tests.virtual_slurm.scripted import Scripted

FAMILY = """from grid.engine.sweep import Sweep, point

def tiny() -> Sweep:
    return Sweep([point("QSGD", method="qsgd", steps=7)], seeds={seeds}, folder="tiny", resources={resources})
"""
RESOURCES = {"gpus": 0, "cpus": 1, "mem": "1G", "time": "1:00:00"}
BANNER = "Stra\xdfe des 17. Juni: Wartung am Montag\n".encode("latin-1")
REFUSAL = "Batch job submission failed: Invalid account or account/partition combination specified"
ROUNDS = 8  # of plan, submit and retry, after which a quiet cluster has done everything


class Killed(BaseException):
    """A kill as by SIGKILL: nothing that catches Exception sees it."""


class History(Promises):
    """One seed's."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__()
        self.random = random = Random(seed)
        self.folder, self.root = folder, fake.checkout(folder / "checkout")
        self.family = folder / "mine.py"
        self.seeds = list(range(1, random.randint(2, 5)))
        self.told: list[str] = []
        self.changes = 0
        late = random.random() < 0.6
        self.slurm = Cluster(
            folder,
            nodes=2,
            cpus=random.choice([1, 2, 4]),
            accounting=random.random() < 0.5,
            max_array_size=random.choice([1001, 1001, 3]),
            max_submit=random.choice([0, 0, 0, 3]),
            tells_limits=random.random() < 0.5,
            min_job_age_s=random.choice([2.0, 300.0]),
            requeue_delay_s=random.choice([5.0, 120.0]),
            random=random,
            lag_s=50.0 if late else 0.0,
            skew_s=25.0 if late else 0.0,
        )
        self.slurm.unheard = random.choice([0.0, 0.0, 0.5])
        self.slurm.banner = random.choice([b""] * 5 + [BANNER])
        self.slurm.replies = random.choice([{}, {}, {}, {1: "lost"}, {1: "late"}, {2: "late"}])
        self.slurm.accepted = self.accepted
        self.slurm.begins = self.begins
        outcomes = [0, 0, 0, 0, 1, 3, 2, "raise", "deaf", "stuck", "silent"]
        self.behaviour = {seed: [*random.choices(outcomes, k=random.randint(0, 2)), 0] for seed in range(1, 7)}
        (self.root / "behaviour.json").write_text(json.dumps({str(key): each for key, each in self.behaviour.items()}))
        self.write()

    def write(self, **resources: str) -> None:
        """The sweep file, as it is now."""
        self.changes += 1
        text = FAMILY.format(seeds=self.seeds, resources={**RESOURCES, **resources})
        self.family.write_text(text + "\n" * self.changes)  # another size: Python looks at that and at the second

    def tell(self, text: str) -> None:
        self.told.append(f"{self.slurm.now - 1_800_000_000:10.1f}  {text}")

    # --- what the user does ---------------------------------------------------------------------------------------

    def command(self, text: str) -> int:
        """A command of grid_run.py; its exit code."""
        word, *options = shlex.split(text)
        self.slurm.show()
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = grid_run.main([word, str(self.family), "tiny", *options], self.root)
        except SystemExit as error:
            code = int(str(error.code))
        except Killed:
            code = 137
        self.tell(f"{text} -> {code}: {' / '.join((out.getvalue() + err.getvalue()).split(chr(10)))[-300:]}")
        self.expect(code in (0, 1, 2, 75, 130, 137), f"{text} ended with {code}")
        return code

    def plan(self) -> None:
        options = ["", "", "--per_script 2", "--per_script 3", "--per_script 2 --parallel 2", "--max_running 1"]
        text = f"plan --ignore opinion {self.random.choice(options)}"
        if self.command(text) == 0:
            self.cap = 1 if "max_running" in text else None

    def submit(self) -> None:
        known = {item.id for item in ledger.read_all(self.root, "tiny")}
        if self.command("submit --yes") == 2 and self.random.random() < 0.6:  # who is told of an error tries again
            self.command("submit --yes")
        for item in ledger.read_all(self.root, "tiny"):
            if item.id not in known:
                self.caps[item.id] = self.cap or 99

    def retry(self) -> None:
        self.command(self.random.choice(["retry --yes", "retry --yes --code", "retry --yes --code --ignore opinion"]))

    def status(self) -> None:
        self.command(self.random.choice(["status", "status --now", "failures", "collect --out -"]))

    def cancel(self) -> None:
        """Everything of the sweep, what has not begun, or one run."""
        random = self.random
        how = random.choice(["--yes", "--yes", "--pending --yes", f"{random.choice(self.seeds)} --yes"])
        before = {id(job): job for job in self.jobs() if job.state in ("RUNNING", "SUSPENDED") and not job.ending}
        code = self.command(f"cancel {how}")
        ended = [job for job in self.jobs() if (job.is_over and job.state == "CANCELLED") or _is_cancelled(job)]
        if "--pending" in how:
            killed = [job.name for job in before.values() if _is_cancelled(job)]
            self.expect(not killed, f"cancel --pending ended {killed}, which had begun")
        if code == 0:
            for job in ended:
                job.recalled = job.recalled or not job.revived
        if code == 0 and how == "--yes" and self.told[-1].find("cancelled") >= 0:
            known = {chunk.job_id for item in ledger.read_all(self.root, "tiny") for chunk in item.chunks}
            left = [job.name for job in self.jobs() if not job.is_over and not job.ending and str(job.array) in known]
            self.expect(not left, f"after cancel {left} are in the queue")

    def interrupted(self) -> None:
        """A command that is killed, or at which somebody presses Ctrl-C, or beside which another one runs."""
        text = self.random.choice(["submit --yes", "submit --yes", "retry --yes --code", "cancel --yes"])
        how = self.random.choice(["killed", "killed", "Ctrl-C", "another"])
        number, count = self.random.randint(1, 10), itertools.count(1)
        self.tell(f"{text}, {how} at step {number}")

        def step(*where: object) -> None:
            if next(count) != number:
                return
            self.slurm.hook = lambda moment, command: None
            if how == "killed":
                raise Killed
            if how == "Ctrl-C":
                raise KeyboardInterrupt
            self.command(self.random.choice(["submit --yes", "retry --yes --code", "status --now"]))

        save = ledger.Submission.save

        def saved(item: ledger.Submission, root: Path) -> None:
            step()
            save(item, root)
            step()

        self.slurm.hook = step
        ledger.Submission.save = saved  # type: ignore[method-assign]
        try:
            self.command(text)
        finally:
            ledger.Submission.save = save  # type: ignore[method-assign]
            self.slurm.hook = lambda moment, command: None

    def edit(self) -> None:
        """The sweep, the code or the resources are edited."""
        what = self.random.choice(["sweep", "sweep", "code", "resources"])
        self.tell(f"edit {what}")
        if what == "sweep":
            self.seeds = sorted(self.random.sample(range(1, 6), self.random.randint(1, 4)))
            self.write()
        elif what == "code":
            (self.root / "main.py").write_text(f"{fake.MAIN}# {self.changes}\n")
        else:
            self.write(mem=self.random.choice(["1G", "2G"]))

    # --- what happens ---------------------------------------------------------------------------------------------

    def event(self) -> None:
        """Something happens to a job."""
        alive = [job for job in self.slurm.jobs if not job.is_over]
        ended = [job for job in self.slurm.jobs if job.state in ENDED and self.slurm.known(job) and job.is_over]
        running = [job for job in alive if job.state == "RUNNING"]
        choices: list[tuple[str, list[Job]]] = [
            ("preempt", running), ("preempt for good", running), ("oom", running), ("time limit", running),
            ("time limit", running), ("scancel", alive), ("suspend", running), ("resume", alive), ("hold", alive),
            ("release", alive), ("kill", running), ("kill shell", running), ("requeue", ended), ("requeuehold", ended),
        ]  # fmt: skip
        what, jobs = self.random.choice([pair for pair in choices if pair[1]] or [("nothing", [])])
        if jobs:
            self.happens(what, self.random.choice(jobs))
        if self.random.random() < 0.4:  # what happens in the same moment
            self.slurm.advance(self.random.uniform(0.0, 30.0))
            self.cancel()

    def happens(self, what: str, job: Job) -> None:
        slurm, name = self.slurm, job.name
        self.tell(f"{what} {name} ({job.shown})")
        if what == "preempt":
            slurm.preempt(name)
        elif what == "preempt for good":
            job.may_requeue = False
            slurm.preempt(name)
        elif what == "oom":
            slurm.oom(name)
        elif what == "time limit":
            slurm.time_limit(name)
        elif what in ("kill", "kill shell") and isinstance(job.life, Scripted) and job.life.mains:
            slurm.kill_run(self.random.choice(list(job.life.mains)), shell=what == "kill shell")
        elif what == "scancel":
            slurm.cancel([name])
        elif what in ("suspend", "resume"):
            slurm.suspend(job, on=what == "suspend")
        elif what in ("hold", "release") and job.state == "PENDING":
            job.held, job.reason = what == "hold", "JobHeldUser"
            slurm.poke()
        elif what in ("requeue", "requeuehold") and not slurm.requeue(job, hold=what == "requeuehold"):
            job.revived, job.recalled = True, False

    def weather(self) -> None:
        """Something happens to the cluster."""
        slurm, random = self.slurm, self.random
        what = random.choice(
            ["down", "down", "slow", "unheard", "no sacct", "lost", "lost", "late", "refused", "banner", "full", "node",
             "silent node", "anew", "held", "well", "well"]
        )  # fmt: skip
        self.tell(f"weather: {what}")
        if what == "down":
            slurm.controller_down()
            slurm.at(slurm.now + random.uniform(1, 300), slurm.controller_up)
        elif what == "slow":
            slurm.slow_s = random.choice([5.0, 30.0, 90.0])
        elif what == "unheard":
            slurm.unheard = 0.5
        elif what == "no sacct":
            slurm.sacct_is_down = True
        elif what in ("lost", "late", "refused"):
            slurm.replies[random.randint(1, 2)] = REFUSAL if what == "refused" else what
        elif what == "banner":
            slurm.banner = BANNER
        elif what == "full":
            slurm.max_job_count = random.choice([4, 6, 10000])
        elif what == "node":
            node = random.choice(list(slurm.nodes))
            slurm.fail_node(node)
            slurm.at(slurm.now + random.uniform(60, 3000), lambda: slurm.resume_node(node))
        elif what == "silent node":
            node = random.choice(list(slurm.nodes))
            slurm.lose_node(node, requeue=random.random() < 0.5)
            slurm.at(slurm.now + random.uniform(60, 3000), lambda: slurm.resume_node(node))
        elif what == "anew":
            slurm.begin_anew()
        elif what == "held":
            slurm.hold_all("QOSMaxJobsPerUserLimit")
        else:
            self.heal()

    def heal(self) -> None:
        slurm = self.slurm
        slurm.unheard = 0.0
        slurm.silence, slurm.slow_s, slurm.sacct_is_down, slurm.banner = "", 0.0, False, b""
        slurm.replies.clear()
        slurm.max_job_count = 10000
        slurm.release_all()
        for node in slurm.nodes:
            slurm.resume_node(node)

    def pass_time(self) -> None:
        self.slurm.advance(self.random.choice([1.0, 20.0, 60.0, 300.0, 900.0, 4000.0]) * self.random.uniform(0.5, 1.5))

    # --- the whole ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps at random; then the cluster is well, and all that the sweep wants is done in the end."""
        self.plan()
        self.submit()
        acts: list[Callable[[], None]] = [
            self.pass_time, self.pass_time, self.pass_time, self.event, self.event, self.weather, self.plan,
            self.submit, self.retry, self.status, self.cancel, self.interrupted, self.edit,
        ]  # fmt: skip
        for _ in range(self.random.randint(2, 10)):
            self.random.choice(acts)()
            if self.random.random() < 0.4:
                self.look()
        self.quiet()

    def quiet(self) -> None:
        self.tell("all is well from now on")
        self.heal()
        self.slurm.configure(max_array_size=1001, max_submit=0)
        for _ in range(ROUNDS):
            for job in self.slurm.jobs:
                job.held, job.reason = False, "None" if job.held else job.reason
                self.slurm.suspend(job, on=False)
            self.slurm.poke()
            self.slurm.advance(86400.0)
            words = self.look()
            if words == {"done"}:
                return
            if words & (FRESH | {"waiting"}) or not ledger.read_all(self.root, "tiny")[-1].is_complete:
                self.command("plan --ignore opinion")
                self.command("submit --yes")
            if words & FAILED:
                self.command("retry --yes --code --ignore opinion")
        raise Broken(f"lost: {sorted(words)} are left")


def _is_cancelled(job: Job) -> bool:
    return job.ending is not None and job.ending.state == "CANCELLED" and not job.ending.requeue


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Without what costs time and has nothing to do with SLURM: git, installed plug-ins, one sweep resolved twice."""
    load, metadata = runs.load, importlib.metadata
    once = functools.cache(lambda text, *words: load(*words))
    with (
        patch.object(runs, "load", lambda *words: once(Path(words[0]).read_text(), *words)),
        patch.object(snapshot, "_git", lambda *words, **more: None),
        patch.object(metadata, "entry_points", lambda **more: ()),
        patch.object(metadata, "version", functools.cache(metadata.version)),
        patch.object(sbatch_command, "too_long", lambda partition, time_s: ""),
    ):
        yield


def play(seed: int) -> str:
    """The history of a seed, step by step, where it broke a promise; else nothing."""
    place = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="history-", dir=place if place.is_dir() else None))
    try:
        with quickly():
            history = History(seed, folder)
            with history.slurm.in_place():
                try:
                    history.run()
                except Broken as error:
                    return "\n".join([f"seed {seed}", *history.told, f"BROKEN: {error}"]).replace(f"{folder}/", "")
                except Exception as error:
                    error.add_note("\n".join([f"seed {seed}", *history.told]))
                    raise
        return ""
    finally:
        shutil.rmtree(folder)


def main() -> int:
    first, count = map(int, sys.argv[1:3])
    began, broken = time.process_time(), []
    for seed in range(first, first + count):
        if told := play(seed):
            print(told, flush=True)
            broken.append(seed)
            if "--all" not in sys.argv:
                break
    spent = f"{time.process_time() - began:.1f} s of a processor"
    print(f"{seed + 1 - first} histories, {len(broken)} broken {broken}, {spent}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
