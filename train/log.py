"""What a run logs, under the names of the original code, so that its logs and ours draw with the same commands.

Records go straight to the event file: tensorboardX's SummaryWriter hands them to another thread, and its ``flush`` does not wait for those
that are still on their way there, so that a process killed after a checkpoint could lose rows from before it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2

from train import hparams

EVENT: Any = event_pb2  # its names exist at run time only
FLUSH_S = 10.0


class Log:
    """Event files in the run folder, one per attempt; the ranks that keep no log pass ``run_dir=None``."""

    def __init__(self, run_dir: Path | None, attempt: int) -> None:
        self._file = EventsWriter(str(run_dir / "events"), f".a{attempt}") if run_dir else None
        self._first_attempt = attempt == 1
        self._shows = run_dir is not None
        self._flushed = time.monotonic()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for tag, value in values.items():
            self._record(summary.scalar(tag, value), step)
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def histogram(self, step: int, tag: str, edges: np.ndarray, masses: np.ndarray) -> None:
        """edges: float64[n + 1]; masses: float64[n], with something in them.

        An empty first bucket carries the first edge, so that all edges are kept exactly; min and max are the edges of what is there, which
        TensorBoard draws up to.
        """
        if self._file:
            there = np.flatnonzero(masses)
            middles = (edges[:-1] + edges[1:]) / 2
            total, first, second = (float(masses @ middles**power) for power in (0, 1, 2))
            low, high = float(edges[there[0]]), float(edges[there[-1] + 1])
            self._record(summary.histogram_raw(tag, low, high, total, first, second, edges.tolist(), [0.0, *masses.tolist()]), step)

    def settings(self, config: Mapping[str, Any]) -> None:
        """For TensorBoard's HPARAMS tab; once for all attempts of a run."""
        if self._file and self._first_attempt:
            for record in hparams.started(config, time.time()):
                self._record(record)
            self.flush()

    def finished(self) -> None:
        """The run is done: the last word to the HPARAMS tab, on the disk before any status says so."""
        self._record(hparams.finished(time.time()))
        self.flush()

    def _record(self, content: Any, step: int | None = None) -> None:
        if self._file:
            self._file.write_event(EVENT.Event(summary=content, wall_time=time.time(), step=step))

    def line(self, text: str) -> None:
        """For people: a line on standard output, which job scripts keep as stdout.log."""
        if self._shows:
            print(text, flush=True)

    def flush(self) -> None:
        """Everything logged so far is on the disk when this returns, so that a machine may lose its power."""
        if self._file:
            self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
