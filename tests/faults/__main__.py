"""Kill real runs at random moments and compare how they end with undisturbed ones:
``python -m tests.faults --kills 30 --seed 1``.

Every run is started by its ``run.sh``, in one process or as two ranks of torchrun, and killed a few times on its way.
Moments: anywhere (also while it starts), while a checkpoint is being written (its file aside is there), and right after
something was logged (an evaluation, a measurement or a level update mostly follows).  Ways: SIGKILL to everything at
once or to one rank, SIGTERM or SIGUSR2 to the script.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grid.engine.scripts.script import run_script
from grid.engine.scripts.snapshot import snapshot
from grid.engine.sweep import Experiment
from nuq import native
from settings import resolving
from tests.faults.compare import differences, saved
from tests.faults.processes import MOST_S, Attempt
from train.process import checkpoint

ROOT = Path(__file__).parents[2]
PER_RUN = 3  # kills of one run
TRIES = 6  # of a kill whose run was done before it
COMMON = {
    "data": "cifar10",
    "stand_in": True,
    "model": "wide_resnet",
    "model.depth": 10,
    "model.widen": 1,
    "model.dropout": 0.3,
    "workers": 2,
    "batch_size": 4,
    "log_every": 1,
    "checkpoint_every": 2,
    "eval_every": 7,
    "eval_batch_size": 64,
    "optim.momentum": 0.9,
    "device": "cpu",
    "exchange.timeout_s": 60.0,
}
MEASURED = {"measure.every": 9, "measure.num_samples": 3}
CASES: dict[str, dict[str, Any]] = {
    "alq": {
        "method": "alq",
        "method.update_at": [3, 17],
        "method.update_every": 11,
        "method.bucket_size": 512,
        "method.statistics": "fresh",
        "method.num_samples": 3,
        **MEASURED,
    },
    "alq running": {"method": "alq", "method.update_at": [13], "method.update_every": 23, "method.bucket_size": 512},
    "dgc": {"method": "dgc", "method.ratio": 0.05},
}
MOMENTS, WAYS = ("anywhere", "checkpoint", "after logging"), ("KILL all", "KILL a rank", "TERM", "USR2")


@dataclass
class Kill:
    """One of them, and what came of it."""

    number: int
    case: str
    ranks: int
    moment: str
    way: str
    after_s: float  # since the start of the attempt, before the moment is waited for
    share: float  # which rank
    code: int | None = None
    ended_s: float = 0.0
    saved_step: int | None = None
    told_step: int | None = None
    verdict: str = "not reached"

    def row(self) -> str:
        steps = (
            f"{'-' if self.saved_step is None else self.saved_step:>5} "
            f"{'-' if self.told_step is None else self.told_step:>5}"
        )
        what = (
            f"{self.number:>3}  {self.case:<12} {self.ranks:>5}  {self.moment:<14} {self.way:<12} {self.after_s:>6.2f}"
        )
        return f"{what}  {'-' if self.code is None else self.code:>4} {self.ended_s:>6.1f} {steps}  {self.verdict}"


HEAD = "  #  case         ranks  moment         way           after   code  ended saved  told  end of the run"


def of_run(number: int) -> tuple[str, int]:
    """Its case and ranks."""
    return list(CASES)[number % len(CASES)], 2 - number % 2


def planned(kills: int, seed: int, start_s: float, whole_s: float) -> list[list[Kill]]:
    """The kills of each run; start_s, whole_s: how long an undisturbed run takes to its first step, and in all."""
    draw = random.Random(seed)
    runs: list[list[Kill]] = []
    for number in range(kills):
        if number % PER_RUN == 0:
            runs.append([])
        case, ranks = of_run(len(runs) - 1)
        moment = MOMENTS[draw.randrange(len(MOMENTS))]
        first = 0.3 if moment == "anywhere" else start_s
        latest = start_s + (whole_s - start_s) * 0.5
        way = WAYS[draw.randrange(len(WAYS))]
        runs[-1].append(Kill(number + 1, case, ranks, moment, way, draw.uniform(first, latest), draw.random()))
    return runs


class Run:
    """A run folder with its script."""

    def __init__(self, folder: Path, case: str, ranks: int, steps: int, code: Path) -> None:
        settings = COMMON | CASES[case] | {"steps": steps}
        self.config, self.folder, self.ranks, self.code = resolving.resolve(settings), folder, ranks, code
        experiment = Experiment("faults", case, (), settings, self.config)
        folder.mkdir(parents=True)
        self.script = folder / "run.sh"
        self.script.write_text(run_script(experiment, str(folder), str(ROOT)))

    def start(self) -> Attempt:
        return Attempt(self.script, self.ranks, self.code)

    def undisturbed(self) -> tuple[float, float]:
        """Seconds to the first checkpoint, and to the end."""
        began, first_s = time.monotonic(), 0.0
        attempt = self.start()
        while not attempt.ended:
            if not first_s and (self.folder / checkpoint.FILE).exists():
                first_s = time.monotonic() - began
            time.sleep(0.02)
        if code := attempt.wait():
            raise AssertionError(
                f"an undisturbed run ends with {code}: {(self.folder / 'stdout.log').read_text()[-2000:]}"
            )
        return first_s, time.monotonic() - began

    def kill(self, kill: Kill) -> bool:
        """False where the run was done before the kill."""
        began = time.monotonic()
        attempt = self.start()
        if not self._moment(attempt, kill, began):
            if code := attempt.wait():
                raise AssertionError(
                    f"exit code {code} before any kill: {(self.folder / 'stdout.log').read_text()[-1500:]}"
                )
            return False
        at = time.monotonic()
        if kill.way == "KILL all":
            attempt.kill_everything()
        elif kill.way == "KILL a rank":
            attempt.kill_rank(kill.share)
        else:
            attempt.tell(signal.SIGTERM if kill.way == "TERM" else signal.SIGUSR2)
        kill.code = attempt.wait()
        kill.ended_s = time.monotonic() - at
        self._look(kill)
        return kill.code != 0

    def _moment(self, attempt: Attempt, kill: Kill, began: float) -> bool:
        """Wait for it; whether the run is still at work."""
        while time.monotonic() - began < kill.after_s and not attempt.ended:
            time.sleep(0.005)
        before, deadline = self._logged_bytes(), time.monotonic() + MOST_S
        while not attempt.ended and time.monotonic() < deadline:
            if kill.moment == "anywhere":
                return True
            if kill.moment == "checkpoint" and list(self.folder.glob(f".{checkpoint.FILE}.*.tmp")):
                return True
            if kill.moment == "after logging" and self._logged_bytes() > before:
                return True
            time.sleep(0.0005)
        return False

    def _logged_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("events.out.tfevents.*"))

    def _look(self, kill: Kill) -> None:
        """A whole newest checkpoint, of which the status tells no more than is true; 75 after a signal, unless the run
        was done.
        """
        status = json.loads((self.folder / "status.json").read_text()) if (self.folder / "status.json").exists() else {}
        kill.told_step, told_saved = status.get("step"), status.get("saved_step", 0)
        if any((self.folder / name).exists() for name in (checkpoint.FILE, checkpoint.PREVIOUS)):
            kill.saved_step = saved(self.folder, self.config)["step"]
        if told_saved > (kill.saved_step or 0):
            raise AssertionError(f"status.json says that step {told_saved} is saved, and {kill.saved_step} is")
        if kill.way in ("TERM", "USR2") and kill.code not in (0, 75):
            raise AssertionError(
                f"exit code {kill.code} after {kill.way}: {(self.folder / 'stdout.log').read_text()[-1500:]}"
            )

    def finish(self) -> None:
        if code := self.start().wait():
            raise AssertionError(
                f"the last attempt ends with {code}: {(self.folder / 'stdout.log').read_text()[-2000:]}"
            )


def disturb(folder: Path, kills: list[Kill], undisturbed: Run) -> None:
    """One run with its kills, compared at the end.

    A kill that came too late is tried again in a fresh folder, earlier.
    """
    try:
        for trial in range(TRIES):
            place = folder / f"run{kills[0].number}.{trial}"
            run = Run(place, kills[0].case, kills[0].ranks, undisturbed.config["steps"], undisturbed.code)
            if all(run.kill(kill) for kill in kills):
                break
            for kill in kills:
                kill.after_s *= 0.8
        else:
            raise AssertionError("every trial was done before its kills")
        run.finish()
        found = differences(run.folder, undisturbed.folder, run.config)
        verdict = "equal" if not found else f"{len(found)} differences: {'; '.join(found[:3])}"
    except AssertionError as error:
        verdict = " ".join(str(error).split())
    for kill in kills:
        kill.verdict = verdict
        print(kill.row(), flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument(
        "--seed", type=int, default=1, help="of moments and ways; what a moment meets also depends on the machine"
    )
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    parser.add_argument("--slots", type=int, default=2, help="runs at a time")
    parser.add_argument(
        "--folder", type=Path, help="keep everything here (default: a temporary folder, kept where something differs)"
    )
    given = parser.parse_args(words)
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="nuq-faults-"))).absolute()
    began = time.monotonic()
    wanted = sorted({of_run(number) for number in range(-(-given.kills // PER_RUN))})
    if native.library() is None:
        print("the C++ kernels are not built, or were built from other sources: python -m nuq.native", file=sys.stderr)
        return 2
    code = ROOT / snapshot(ROOT)[1]  # as submitted jobs do: edits meanwhile reach no run
    references = {
        key: Run(folder / f"undisturbed-{key[0].replace(' ', '-')}-{key[1]}", *key, given.steps, code) for key in wanted
    }
    with ThreadPoolExecutor(given.slots) as slots:
        times = list(slots.map(Run.undisturbed, references.values()))
        start_s, whole_s = min(first for first, _ in times), min(whole for _, whole in times)
        print(
            f"seed {given.seed}; undisturbed: {start_s:.1f} s to the first checkpoint, {whole_s:.1f} s in all; in "
            f"{folder}\n{HEAD}"
        )
        runs = planned(given.kills, given.seed, start_s, whole_s)
        jobs = [slots.submit(disturb, folder, kills, references[kills[0].case, kills[0].ranks]) for kills in runs]
        for job in jobs:
            job.result()
    for case in CASES:  # the split over processes changes no bit either
        alike = [references[key] for key in wanted if key[0] == case]
        for other in alike[1:]:
            found = [
                what for what in differences(other.folder, alike[0].folder, other.config) if "network_bytes" not in what
            ]
            if found:
                print(f"{case}: one process and two ranks differ: {'; '.join(found[:3])}")
                return 1
    equal = sum(kill.verdict == "equal" for kills in runs for kill in kills)
    print(f"{time.monotonic() - began:.0f} s\n{equal} of {given.kills} equal")
    if equal == given.kills and given.folder is None:
        shutil.rmtree(folder)
    return 0 if equal == given.kills else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
