"""Scalars as CSV, for programs that read no event files: ``scalars.csv`` in the run's folder, one row for each."""

from __future__ import annotations

import contextlib
import csv
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = "scalars.csv"
COLUMNS = ("attempt", "step", "tag", "value", "unix_s")


class CsvFile:
    """The file, to which every attempt of a run appends: where two have a row of one step, the later one counts.

    OSError, with the path, where something cannot be written.
    """

    def __init__(self, folder: Path, attempt: int) -> None:
        self._attempt = attempt
        path = folder / NAME
        if path.is_file():  # a killed attempt may have left a part of a row
            whole = path.read_bytes().rpartition(b"\n")
            os.truncate(path, len(whole[0]) + len(whole[1]))
        self._file = path.open("a", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file, lineterminator="\n")
        if self._file.tell() == 0:
            self._rows.writerow(COLUMNS)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        now = f"{time.time():.3f}"
        with self._naming_the_file():
            self._rows.writerows((self._attempt, step, tag, f"{value:.9g}", now) for tag, value in values.items())

    def flush(self) -> None:
        """Write all rows to the disk itself. OSError, with the path."""
        with self._naming_the_file():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with self._naming_the_file():
            self._file.close()

    @contextlib.contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from error
