"""The run folder: its file names, atomic writes, and the values read from it; ``judge`` makes a state of them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from files.plain import Unreadable, opened, read_json
from grid.engine.slurm.scheduler_cache import array_id
from grid.engine.states.judge import Record, judge
from grid.engine.states.record_values import own_element
from grid.engine.states.state import Claim, Damaged, State

TAIL_BYTES = 16384
_NOTED = re.compile(r"([0-9]{1,9})(?:@([0-9]{1,9}))? (.+)")


@dataclass(frozen=True)
class RunFolder:
    """The file names of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def script(self) -> Path:
        return self.path / "run.sh"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def log(self) -> Path:
        return self.path / "stdout.log"

    def record(self) -> Record:
        """The record that the run wrote of itself.

        None where it never spoke; NotADirectoryError where a file stands in the folder's place.
        """
        try:
            values = read_json(self.status, any_number=True)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise
        except OSError as error:  # the file is another user's, or the file system is in trouble
            return Damaged(f"{self.status.name} cannot be read: {error.strerror or error}")
        except Unreadable as error:
            return Damaged(f"{self.status.name} {error}; delete it to start the run again")
        return (
            values
            if isinstance(values, dict)
            else Damaged(f"{self.status.name} is no record of a run; delete it to start the run again")
        )

    def state(self, now: float | None = None) -> State:
        """The state from ``status.json`` alone; ``new`` where there is none."""
        return judge(self.record(), None, None, None, time.time() if now is None else now)

    def last_lines(self, count: int) -> list[str]:
        """The end of the log, empty lines left out."""
        return [line for line in self.tail().splitlines() if line.strip()][-count:]

    def tail(self) -> str:
        """The last 16 kB of the log; empty where there is none."""
        return tail(self.log)


def tail(path: Path, count: int = TAIL_BYTES) -> str:
    """The last bytes of a text file, without the line that they begin in; empty where it cannot be read."""
    try:
        with opened(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - count))
            return file.read(count).decode(errors="replace")
    except (OSError, Unreadable):
        return ""


class Ended(NamedTuple):
    """A line of a ledger.

    It has an exit code, the restart count of the life of the job that saw it, and when the file was last written.
    """

    code: int
    life: int
    at: float


def read_ledger(path: Path) -> dict[str, Ended]:
    """The last end that its job script noted for each run, by run folder; empty where the ledger cannot be read.

    Its lines are ``<code>[@<life>] <run_dir>``.
    """
    try:
        with opened(path) as file:
            text, at = file.read().decode(errors="replace"), os.fstat(file.fileno()).st_mtime
    except (OSError, Unreadable):
        return {}
    found = {}
    for line in text.split("\n"):
        if (noted := _NOTED.match(line)) is not None:
            found[noted[3]] = Ended(int(noted[1]), int(noted[2] or 0), at)
    return found


def ids_to_ask(cases: Iterable[tuple[Record, Claim | None]]) -> set[str]:
    """The array ids that the scheduler has to be asked for: those of runs that do not say that they are done."""
    ids = set()
    for record, claim in cases:
        values = record if isinstance(record, Mapping) else {}
        element = claim.element if claim else own_element(values)
        if element and values.get("state") != "done":
            ids.add(array_id(element))
    return ids
