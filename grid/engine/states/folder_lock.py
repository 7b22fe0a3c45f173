"""Locks on folders of runs, also against other machines where the file system hands locks on.

``run`` shares a sweep's folder for as long as it works there, since what it has not started yet it will; ``prune`` has
it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for a folder, and hold it; made where it is missing."""
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Share a folder; ValueError where ``prune`` has it alone."""
    with _held(folder, fcntl.LOCK_SH | fcntl.LOCK_NB, "prune is at work there: wait for it"):
        yield


@contextlib.contextmanager
def unshared(folder: Path) -> Iterator[None]:
    """Hold a folder alone; ValueError where others share it."""
    why = "run is at work there, and starts what it has not started yet: wait for it, or stop it (Ctrl-C)"
    with _held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB, why):
        yield


@contextlib.contextmanager
def _held(folder: Path, how: int, why: str = "") -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, how)
        except BlockingIOError as error:
            raise ValueError(f"{folder.parent.name}/{folder.name}: {why}") from error
        except OSError:  # the file system keeps no locks
            pass
        yield
    finally:
        os.close(place)
