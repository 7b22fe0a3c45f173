"""Kept runs begun again: are the first steps of today's code the same bits?

Run it as ``python -m benchmarks.repeat [FOLDER ..] [--steps N]``.  A sweep's table is hours of training by the commits
that its runs noted.  Instead of all of it, one run of every experiment is begun again with its own settings and stopped
after some steps, and every scalar that it has logged by then (losses, bits, levels, variances; not times, nor what
several processes sent) must be equal to the kept one.

- An experiment is what is alike but for the seed; of its runs the first by name counts that was trained on this
  machine's model of processor with its version of PyTorch: others round otherwise, and prove nothing here.
- What only happens later, such as an evaluation, is not seen; forks, which begin in the middle, are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from analysis.logs import discovery, events
from args import Config
from nuq.errors import NonFiniteError
from settings import run_identity
from train.data.data_files import UNUSABLE
from train.logs.run_log import Log
from train.process import machine, status
from train.process.config_file import read_config
from train.process.memory import keep_freed_memory
from train.process.signals import Preempted
from train.steps.train_loop import run
from train.steps.trainer import Trainer

ROOT = Path(__file__).parent.parent
STEPS = 120  # two updates of the levels behind the first, at 20 and 100
UNLIKE = ("time/", "comm/network_bytes")  # tags that no two runs share, or that only several processes log


class Unusable(Exception):
    """Why a run cannot be begun here, in one sentence."""


@dataclass(frozen=True)
class Repeated:
    """What came of one experiment: scalars that were compared, and the tags that differ, or that one side lacks."""

    run: str
    scalars: int
    differ: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether there was something to compare, and all of it was equal."""
        return self.scalars > 0 and not self.differ


def kept_sweeps(root: Path = ROOT) -> list[Path]:
    """The folders below results/ that hold kept runs."""
    return sorted({path.parent.parent for path in (root / "results").glob("*/*/config.yaml")})


def experiments(folder: Path) -> list[list[Path]]:
    """The runs of a folder, those of one experiment together, without forks.

    ValueError where a run's settings cannot be read.
    """
    found: dict[str, list[Path]] = {}
    for kept in discovery.find(folder, []):
        config = read_config(kept.folder)
        if not config["fork"]["run"]:
            found.setdefault(run_identity.identity(config | {"seed": 0}), []).append(kept.folder)
    return list(found.values())


def of_here(runs: Sequence[Path]) -> Path | None:
    """The first of the runs that was trained on such a processor, on no GPU, with such a PyTorch.

    Raises Unusable where a run's status.json is damaged.
    """
    here = machine.describe(torch.device("cpu"), ROOT)
    for folder in runs:
        try:
            noted = status.read(folder).get("machine")
        except ValueError as error:
            raise Unusable(str(error)) from error
        if isinstance(noted, dict) and all(noted.get(what) == here[what] for what in ("cpu", "gpu", "torch")):
            return folder
    return None


def repeated(folder: Path, steps: int = STEPS) -> Repeated:
    """Begin a kept run again, and compare what both have logged up to that step, which one more step completes.

    Raises Unusable where its data or model cannot be had.
    """
    config: dict[str, Any] = {**read_config(folder), "data_dir": Config().data_dir, "run_dir": ""}
    torch.set_num_threads(config["threads"])
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="repeat-") as place, contextlib.redirect_stdout(io.StringIO()):
        again = Path(place)
        try:
            trainer = Trainer(config, device=torch.device("cpu"))
        except UNUSABLE as error:
            raise Unusable(f"{folder}: {error}") from error
        told = status.Status(again, config["steps"], "cpu", config["threads"])
        with contextlib.suppress(Preempted, NonFiniteError), contextlib.closing(Log(again, told.attempt)) as log:
            run(trainer, again, told, log, lambda: trainer.step > steps)
        before, now = (dict(_scalars(path, steps)) for path in (folder, again))
    differ = {tag for tag, step in before.keys() | now.keys() if before.get((tag, step)) != now.get((tag, step))}
    return Repeated(folder.name, len(now), tuple(sorted(differ)))


def _scalars(folder: Path, steps: int) -> Iterator[tuple[tuple[str, int], bytes]]:
    """The bytes of the scalars up to a step, by tag and step."""
    found = events.read(sorted(folder.glob(f"{discovery.EVENTS}*")))
    for tag, step, value in zip(found.tag, found.step, found.value, strict=True):
        if step <= steps and not found.tags[tag].startswith(UNLIKE):
            yield (found.tags[tag], int(step)), value.tobytes()  # NaN is equal to itself


def figures(kept_runs: Mapping[str, Sequence[Sequence[Path]]], steps: int, jobs: int) -> dict[str, Any]:
    """Repeat one run of every experiment of these sweeps; what came of it, by the sweep's name, and in all."""
    sweeps: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for name, kept in kept_runs.items():
            chosen = [one for one in map(of_here, kept) if one is not None]
            results = list(pool.map(repeated, chosen, [steps] * len(chosen)))
            sweeps[name] = {
                "runs": sum(map(len, kept)),
                "experiments": len(kept),
                "repeated": len(chosen),
                "same": sum(one.same for one in results),
                "scalars": sum(one.scalars for one in results),
                "differ": {one.run: list(one.differ) for one in results if one.differ},
            }
            print(f"{name}: {json.dumps(sweeps[name])}", flush=True)
    counts = ("runs", "experiments", "repeated", "same", "scalars")
    return {
        "steps": steps,
        **{what: sum(found[what] for found in sweeps.values()) for what in counts},
        "sweeps": sweeps,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Repeat, print a line for each sweep, and the JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeat", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of kept runs (all below results/)")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"after which a run is stopped ({STEPS}), if it goes on"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (one for each core)")
    chosen = parser.parse_args(arguments)
    if chosen.steps < 1 or chosen.jobs < 1:
        parser.error(f"--steps {chosen.steps} --jobs {chosen.jobs}: both must be at least 1")
    kept = {}
    try:
        for folder in chosen.folders or kept_sweeps():
            if not folder.is_dir() or not (found := experiments(folder)):
                raise ValueError(f"{folder}: must be a folder that holds kept runs, as in results/dgc_cifar10_cpu")
            if folder.name in kept:
                raise ValueError(f"{folder}: must not have the name of another folder")
            kept[folder.name] = found
    except ValueError as error:
        parser.error(str(error))
    try:
        print(json.dumps(figures(kept, chosen.steps, chosen.jobs)))
    except Unusable as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
