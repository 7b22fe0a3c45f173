"""The handling of a stop that is asked for by a signal.

``main.py`` listens before it imports what takes time, so nothing here does.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

NOTHING_YET = "stopped while it was starting; started again, it goes on from its last checkpoint, if it has one"


class Preempted(Exception):
    """The error that this process was asked to stop; the state is saved."""


class StopSignal:
    """A stop that SIGUSR2, SIGTERM or SIGHUP asks for: a checkpoint and a requeue.

    SIGHUP is a terminal that is closed; nohup ignores it. Twice is once.  The end of the torchrun that started a rank
    asks for it, too: nobody else would end what it leaves behind.
    """

    def __init__(self) -> None:
        self._heard: int | None = None
        self._at_once = False
        self._parent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ and "WORLD_SIZE" in os.environ else None
        self._orphan = self._parent == 1 and not _is_python(1)
        self._before = {number: signal.signal(number, self._handle) for number in _listened_to()}

    @property
    def requested(self) -> bool:
        """Whether this process was asked to stop."""
        return self._heard is not None or self._orphaned

    @property
    def _orphaned(self) -> bool:
        return self._orphan or (self._parent is not None and os.getppid() != self._parent)

    @property
    def certain(self) -> bool:
        """Whether this process was asked to stop for sure: by SIGTERM torchrun also tells that another rank failed."""
        by_torchrun = self._heard == signal.SIGTERM and self._parent is not None and not self._orphaned
        return self.requested and not by_torchrun

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Preempted where the signal comes, because inside there is nothing to save.

        This does not hold among several ranks: torchrun sends SIGTERM to all when one of them fails, which is not to be
        told as a preemption.
        """
        self._at_once = int(os.environ.get("WORLD_SIZE", "1")) == 1
        try:
            if self.requested and self._at_once:
                raise Preempted(NOTHING_YET)
            yield
        finally:
            self._at_once = False

    def let_go(self) -> None:
        """Restore what the signals meant before; one that has come meanwhile comes now."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._heard is not None:
            os.kill(os.getpid(), self._heard)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._heard = number
        if self._at_once:
            self._at_once = False
            raise Preempted(NOTHING_YET)


def _listened_to() -> list[signal.Signals]:
    hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    return [signal.SIGUSR2, signal.SIGTERM, *hangup]


def _is_python(process: int) -> bool:
    """Whether the process may be torchrun itself, as alone in a container, and not the one that takes in orphans."""
    try:
        return b"python" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
