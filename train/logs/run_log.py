"""The log of a run, under the names of the original code, so that its logs and ours draw with the same commands.

Records go straight to the event file (``train.logs.event_file`` says why).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import summary

from files.live_line import is_live
from train.logs import hparams
from train.logs.csv_file import CsvFile
from train.logs.event_file import EventFile
from train.logs.step_line import StepLine
from train.process.terminal import say

FLUSH_S = 10.0
MOST_HISTOGRAMS = 200  # the most of one tag in a run: at 3 kB each they would outgrow everything else in the log


def keeps_histogram(step: int, every: int, steps: int) -> bool:
    """Whether a measurement, one every so many of ``steps``, is logged as a histogram too."""
    return step // every % math.ceil(steps / every / MOST_HISTOGRAMS) == 0


class Log:
    """The event files in the run folder, one per attempt; the ranks that keep no log pass ``run_dir=None``.

    csv: scalars go to ``train.logs.csv_file`` as well.

    OSError, with the file's path, where something cannot be written.
    """

    def __init__(self, run_dir: Path | None, attempt: int, *, csv: bool = False) -> None:
        self._csv = CsvFile(run_dir, attempt) if run_dir and csv else None
        self._file = EventFile(run_dir, f".a{attempt}") if run_dir else None
        self._first_attempt = attempt == 1
        self._shows = run_dir is not None
        self._flushed = time.monotonic()
        self._steps = StepLine() if self._shows and is_live(sys.stdout) else None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self._file:
            self._file.write((summary.scalar(tag, value) for tag, value in values.items()), step)
        if self._csv:
            self._csv.scalars(step, values)
        if self._steps and "loss" in values:
            self._steps.loss = values["loss"]
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def progress(self, step: int, steps: int, phase: str = "") -> None:
        """Show how far the run is, where standard output is a terminal; phase: what it does instead of steps."""
        if self._steps:
            self._steps.draw(step, steps, phase)

    def histogram(self, step: int, tag: str, edges: np.ndarray, masses: np.ndarray) -> None:
        """Log a histogram.

        edges: float64[n + 1]; masses: float64[n], with something in them.

        An empty first bucket carries the first edge, so that all edges are kept exactly; min and max are the edges of
        what is there, which TensorBoard draws up to.
        """
        if self._file:
            there = np.flatnonzero(masses)
            middles = (edges[:-1] + edges[1:]) / 2
            total, first, second = (float(masses @ middles**power) for power in (0, 1, 2))
            low, high = float(edges[there[0]]), float(edges[there[-1] + 1])
            sums = (low, high, total, first, second)
            self._record(summary.histogram_raw(tag, *sums, edges.tolist(), [0.0, *masses.tolist()]), step)

    def settings(self, config: Mapping[str, Any]) -> None:
        """Log the settings for TensorBoard's HPARAMS tab; once for all attempts of a run."""
        if self._file and self._first_attempt:
            for record in hparams.started(config, time.time()):
                self._record(record)
            self.flush()

    def finished(self) -> None:
        """Log that the run is done: the last record for the HPARAMS tab, on the disk before any status says so."""
        self._record(hparams.finished(time.time()))
        self.flush()

    def _record(self, content: Any, step: int | None = None) -> None:
        if self._file:
            self._file.write([content], step)

    def line(self, text: str) -> None:
        """Print a line on standard output for people; job scripts keep it as stdout.log."""
        if self._shows:
            say(text)

    def flush(self) -> None:
        """Write everything logged so far to the disk before returning, so that a machine may lose its power."""
        if self._file:
            self._file.flush()
        if self._csv:
            self._csv.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        if self._steps:
            self._steps.close()
        if self._file:
            self._file.close()
            self._file = None
        if self._csv:
            self._csv.close()
