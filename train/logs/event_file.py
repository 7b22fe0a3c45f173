"""A TensorBoard event file, written by the thread that logs.

``tensorboardX.SummaryWriter`` hands its records to a thread of its own.  On a full disk that thread dies, and the run
then waits for ever for room in the queue to it; and its ``flush`` does not wait for what is still in the queue, so that
a process killed after a checkpoint could lose rows from before it.  Here a record is in the operating system's hands
when ``write`` returns, and what cannot be written is an error where it was logged.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

EVENT: Any = event_pb2  # its names exist at run time only
# "NaN or Inf found", of what and when those who log it say better
logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)


class EventFile:
    """A file ``events.out.tfevents.<unix seconds>.<host><suffix>`` in ``folder``, which must exist."""

    def __init__(self, folder: Path, suffix: str) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}{suffix}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self.path = folder / name
        self._append(EVENT.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, summaries: Iterable[Any], step: int | None = None, at_s: float | None = None) -> None:
        """Append one event for each summary.

        step: None where they belong to none; at_s: unix seconds in place of now.

        OSError, with the path, where not all could be written; the file then ends with the last whole record of before.
        """
        now = time.time() if at_s is None else at_s
        events = [EVENT.Event(wall_time=now, step=step, summary=summary).SerializeToString() for summary in summaries]
        self._append(*events)

    def flush(self) -> None:
        """Write all events to the disk itself. OSError, with the path."""
        try:
            os.fsync(self._file)
        except OSError as error:  # a file system over a network may refuse here what it took before
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, *events: bytes) -> None:
        data = memoryview(b"".join(_record(event) for event in events))
        whole = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            os.ftruncate(self._file, whole)
            raise OSError(error.errno, error.strerror, str(self.path)) from error


def _record(event: bytes) -> bytes:
    """A record of a TFRecord file: length, its checksum, the data, its checksum."""
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc32c(length)) + event + struct.pack("<I", masked_crc32c(event))
