"""The log files of the jobs of a submission."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from grid.engine.states.ledger import Chunk, Submission


def log_of(submissions: Sequence[Submission], run: str, root: Path) -> Path | None:
    """The log of the job that was last to run this run; None where it was never handed over."""
    return logs_of(submissions, {run}, root).get(run)


def logs_of(submissions: Sequence[Submission], wanted: Collection[str], root: Path) -> dict[str, Path]:
    """The log of the job that was last to run a run, by run folder; runs that were never handed over have none."""
    latest: dict[str, tuple[float, Path]] = {}
    for item in submissions:
        for chunk in item.chunks:
            for index, runs in chunk.indexed() if chunk.is_settled else ():
                for run in runs:
                    if run in wanted and (run not in latest or latest[run][0] <= chunk.at):
                        latest[run] = chunk.at, log_path(item, chunk, index, root)
    return {run: path for run, (_, path) in latest.items()}


def without_log(submissions: Sequence[Submission], wanted: Collection[str], root: Path) -> list[str]:
    """The runs whose last job left no log: SLURM opens the log as the job begins."""
    return [run for run, path in logs_of(submissions, wanted, root).items() if not path.exists()] if wanted else []


def log_path(item: Submission, chunk: Chunk, index: int, root: Path) -> Path:
    """The log of the job of an element."""
    base = item.base(root, chunk)
    return base.parent / "logs" / f"{base.name}_{chunk.job_id}_{index}.log"
