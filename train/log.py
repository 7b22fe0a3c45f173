"""Scalars of a run, under the names of the original code, so that its logs and ours draw with the same commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter


class Log:
    """Event files in the run folder, one per attempt; the ranks that keep no log pass ``run_dir=None``."""

    def __init__(self, run_dir: Path | None, attempt: int) -> None:
        self._writer = SummaryWriter(logdir=str(run_dir), filename_suffix=f".a{attempt}", flush_secs=10) if run_dir else None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)

    def line(self, text: str) -> None:
        """For people: a line on standard output, which job scripts keep as stdout.log."""
        if self._writer:
            print(text, flush=True)

    def flush(self) -> None:
        if self._writer:
            self._writer.flush()

    def close(self) -> None:
        if self._writer:
            self._writer.close()
