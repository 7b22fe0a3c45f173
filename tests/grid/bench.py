"""A checkout with the stand-in main.py, a sweep of one's own and a SLURM: the command line from end to end."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grid_run
from grid.engine.slurm import sbatch_command
from grid.engine.states import ledger
from grid.engine.states.ledger import Submission
from grid.engine.submission import planning
from tests.grid import fake
from tests.virtual_slurm.cluster import Cluster

REPO = Path(__file__).parents[2]
FAMILY = """from grid.engine.sweep import Sweep, axis, point, product

def tiny() -> Sweep:
    \"\"\"A sweep that costs nothing.\"\"\"
    points = product(point("QSGD", method="qsgd", **{shared}), axis("method.bits", {bits}))
    return Sweep(points, seeds={seeds}, folder="tiny", resources={resources})
"""
SMALL = {"gpus": 0, "cpus": 1, "mem": "1G", "time": "1:00:00"}


class Capture(Protocol):
    """pytest's capsys."""

    def readouterr(self) -> Any: ...


@dataclass(frozen=True)
class Said:
    """The exit code and the words that a command left."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Bench:
    """The checkout ``root``, the sweep file beside it, and the cluster."""

    root: Path
    family: Path
    slurm: Cluster
    capture: Capture

    def sweep(self, seeds: Sequence[int] = (1, 2, 3), bits: Sequence[int] = (3,), **more: Any) -> None:
        """Write the sweep file; ``resources`` and ``shared`` (settings) as a sweep takes them."""
        values = {"shared": {"steps": 7}, "resources": SMALL, **more}
        text = FAMILY.format(seeds=list(seeds), bits=list(bits), shared=values["shared"], resources=values["resources"])
        longer = "\n" * (self.family.stat().st_size + 1 - len(text)) if self.family.exists() else ""
        self.family.write_text(text + longer)  # Python takes a file of the same size and second for the same file

    def behave(self, behaviour: Mapping[int, int | str | list[int | str]]) -> None:
        """Set what the stand-in does for each seed from now on; it is part of the code, so set it before ``plan``."""
        (self.root / "behaviour.json").write_text(json.dumps({str(seed): value for seed, value in behaviour.items()}))

    def words(self, text: str) -> list[str]:
        """``plan --canary`` with the sweep named after the command."""
        command, *options = shlex.split(text)
        return [command, str(self.family), "tiny", *options]

    def __call__(self, text: str, root: Path | None = None) -> Said:
        """A command of grid_run.py in this process."""
        self.capture.readouterr()
        self.slurm.show()
        try:
            code = grid_run.main(self.words(text), root or self.root)
        except SystemExit as error:
            code = int(str(error.code))
        said = self.capture.readouterr()
        return Said(code, said.out, said.err)

    def good(self, text: str) -> str:
        """The output of a command that succeeds."""
        said = self(text)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    def refused(self, text: str, *parts: str) -> str:
        """The one sentence of a command that ends with code 2, which holds all the ``parts``."""
        said = self(text)
        assert said.code == 2, said
        assert said.err.startswith("grid_run.py: "), said.err
        assert said.err.count("\n") == 1, said.err
        for part in parts:
            assert part in said.err, (part, said.err)
        return said.err

    def apart(self, text: str) -> subprocess.Popen[str]:
        """A command in a process of its own, which is of this machine and knows no cluster."""
        program = (
            f"import sys, pathlib, grid_run\nsys.exit(grid_run.main(sys.argv[1:], pathlib.Path({str(self.root)!r})))"
        )
        words = [sys.executable, "-c", program, *self.words(text)]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=REPO, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    # --- truth ---

    def submitted(self) -> dict[str, str]:
        """Every array element that SLURM ever took -> its state."""
        return {job.name: job.shown for job in self.slurm.jobs}

    def sbatches(self) -> int:
        """Calls of sbatch that could start anything."""
        return sum("--test-only" not in call for call in self.slurm.calls("sbatch"))

    def starts(self) -> dict[int, int]:
        """seed -> how often it was started, of all runs that were ever begun."""
        found: dict[int, int] = {}
        for path in (self.root / "runs").glob("*/*/started"):
            seed = int(path.parent.name.rpartition("-s")[2].partition("-")[0])
            found[seed] = found.get(seed, 0) + path.stat().st_size
        return dict(sorted(found.items()))

    def states(self) -> dict[int, str]:
        """seed -> state, as ``collect`` tells it; the scheduler is asked afresh."""
        (self.root / "jobs" / "scheduler.json").unlink(missing_ok=True)
        rows = csv.DictReader(self.good("collect --out -").splitlines())
        return {int(row["setting.seed"]): row["state"] for row in rows}

    def element(self, seed: int) -> str:
        """SLURM's name of the array element that was last to run this seed's run."""
        claims = ledger.claims(self.records(), self.root)
        (found,) = [claim.element for run, claim in claims.items() if f"-s{seed}-" in run]
        assert found is not None
        return found

    def run(self, seed: int) -> str:
        """The folder of this seed's run, as seen from the checkout."""
        (path,) = (self.root / "runs" / "tiny").glob(f"*-s{seed}-*")
        return str(path.relative_to(self.root))

    def age(self, minutes: float = 5) -> None:
        """Let that much time pass: fresh ends are not believed at once."""
        self.slurm.advance(60 * minutes)

    def records(self) -> list[Submission]:
        return ledger.read_all(self.root, "tiny")

    def wait(self, job: str | None = None, **how: Any) -> None:
        """Wait until all jobs have ended."""
        self.slurm.wait(job, **how)

    def until_started(self, seeds: Mapping[int, int]) -> None:
        self.slurm.until(lambda: self.starts() == dict(seeds), f"{seeds} were not all started")

    def each_once(self, num_runs: int, sbatches: int, in_vain: int = 0) -> None:
        """Every run in one element (beside so many that began nothing), and every run started once and done."""
        assert len(self.submitted()) == num_runs + in_vain
        assert self.sbatches() == sbatches
        self.wait()
        assert self.starts() == dict.fromkeys(range(1, num_runs + 1), 1)
        assert set(self.states().values()) == {"done"}

    def plan_file(self) -> Path:
        return ledger.folder_of(self.root, "tiny") / planning.PLAN


@contextlib.contextmanager
def bench(folder: Path, capture: Capture, *, opinion: bool = False, **settings: Any) -> Iterator[Bench]:
    """A cluster (``settings``: see ``tests.virtual_slurm.cluster``), and a checkout with a sweep of three runs of one
    second at most.

    opinion: SLURM is asked for its own before anything is submitted.
    """
    with Cluster(folder, **settings).in_place() as slurm:
        made = Bench(fake.checkout(folder / "checkout"), folder / "mine.py", slurm, capture)
        made.sweep()
        variables = {"NUQ_PYTHON": sys.executable}
        gone = [key for key in os.environ if key.startswith(("SLURM_", "SBATCH_", "NUQ_", "CUDA_"))]
        asked = sbatch_command.test_only, sbatch_command.too_long
        if not opinion:
            sbatch_command.test_only, sbatch_command.too_long = lambda path: None, lambda partition, time_s: ""
        before = {key: os.environ.get(key) for key in [*variables, *gone]}
        os.environ.update(variables)
        for key in gone:
            os.environ.pop(key)
        try:
            yield made
        finally:
            sbatch_command.test_only, sbatch_command.too_long = asked
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value
