"""What a run logs, under the names of the original code, so that its logs and ours draw with the same commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import SummaryWriter

from train import hparams


class Log:
    """Event files in the run folder, one per attempt; the ranks that keep no log pass ``run_dir=None``."""

    def __init__(self, run_dir: Path | None, attempt: int) -> None:
        self._writer = SummaryWriter(logdir=str(run_dir), filename_suffix=f".a{attempt}", flush_secs=10) if run_dir else None
        self._first_attempt = attempt == 1

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)

    def histogram(self, step: int, tag: str, edges: np.ndarray, masses: np.ndarray) -> None:
        """edges: float64[n + 1]; masses: float64[n], with something in them.

        An empty first bucket carries the first edge, so that all edges are kept exactly; min and max are the edges of what is there, which
        TensorBoard draws up to.
        """
        if self._writer:
            there = np.flatnonzero(masses)
            middles = (edges[:-1] + edges[1:]) / 2
            total, first, second = (float(masses @ middles**power) for power in (0, 1, 2))
            low, high = float(edges[there[0]]), float(edges[there[-1] + 1])
            self._writer.add_histogram_raw(tag, low, high, total, first, second, edges.tolist(), [0.0, *masses.tolist()], step)

    def settings(self, config: Mapping[str, Any]) -> None:
        """For TensorBoard's HPARAMS tab; once for all attempts of a run."""
        if self._writer and self._first_attempt:
            for record in hparams.started(config, time.time()):
                self._record(record)
            self._writer.flush()

    def finished(self) -> None:
        """The run is done: the last word to the HPARAMS tab."""
        if self._writer:
            self._record(hparams.finished(time.time()))

    def _record(self, summary: Any) -> None:
        assert self._writer is not None and self._writer.file_writer is not None
        self._writer.file_writer.add_summary(summary)

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
