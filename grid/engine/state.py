"""The run folder: its file names, atomic writes, and what is read from it; ``judge`` makes a state of it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grid.engine.answers import array_id
from grid.engine.judge import STALE_S, STARTABLE, WORDS, Claim, Damaged, Record, State, judge, own_element

__all__ = [
    "STALE_S",
    "STARTABLE",
    "WORDS",
    "Claim",
    "Damaged",
    "Record",
    "RunFolder",
    "State",
    "ids_to_ask",
    "judge",
    "own_element",
    "read_ledger",
    "tail",
    "write_text",
]

TAIL_BYTES = 16384


def write_text(path: Path, text: str, *, executable: bool = False) -> None:
    """Write aside, then rename: a reader sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(text)
        if executable:
            aside.chmod(0o755)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class RunFolder:
    """All file names of one run."""

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
        """What the run says of itself.  None where it never spoke; NotADirectoryError where a file stands in the folder's place."""
        try:
            with open(self.status, "rb") as file:
                values = json.loads(file.read())
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise
        except OSError as error:  # another user's, or a file system in trouble
            return Damaged(f"{self.status.name} cannot be read: {error.strerror or error}")
        except (ValueError, RecursionError) as error:
            return Damaged(f"{self.status.name} cannot be read ({error}); delete it to start the run again")
        return (
            values if isinstance(values, dict) else Damaged(f"{self.status.name} is no record of a run; delete it to start the run again")
        )

    def state(self, now: float | None = None) -> State:
        """The state from ``status.json`` alone; ``new`` where there is none."""
        return judge(self.record(), None, None, None, time.time() if now is None else now)

    def is_locked(self) -> bool:
        """Whether a process holds this folder's lock right now: its own lock, or that of the file .lock in it."""
        return any(_is_locked(path) for path in (self.path, self.path / ".lock"))

    def last_lines(self, count: int) -> list[str]:
        """The end of the log, empty lines left out."""
        return [line for line in self.tail().splitlines() if line.strip()][-count:]

    def tail(self) -> str:
        """The last 16 kB of the log; empty where there is none."""
        return tail(self.log)


def tail(path: Path, count: int = TAIL_BYTES) -> str:
    """The last bytes of a text file, without the line that they begin in; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - count))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def read_ledger(path: Path) -> dict[str, int]:
    """Run folder -> the last exit code that its job script noted (lines ``<code> <run_dir>``); empty where it cannot be read."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return {}
    found = {}
    for line in text.split("\n"):
        code, _, run_dir = line.partition(" ")
        if code.isascii() and code.isdecimal() and run_dir:
            found[run_dir] = int(code)
    return found


def ids_to_ask(cases: Iterable[tuple[Record, Claim | None]]) -> set[str]:
    """The array ids that the scheduler has to be asked for: of runs that do not say that they are done."""
    ids = set()
    for record, claim in cases:
        values = record if isinstance(record, Mapping) else {}
        element = claim.element if claim else own_element(values)
        if element and values.get("state") != "done":
            ids.add(array_id(element))
    return ids


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False
