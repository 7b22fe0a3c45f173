"""A run as its script starts it, in processes that are found by a mark in their environment, whoever their parent has
become.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK = "NUQ_FAULT_TEST"
MOST_S = 300.0  # for anything that a run is waited for


class Attempt:
    """``bash run.sh`` with so many ranks, on a snapshot of the code; output goes to the run's own log."""

    def __init__(self, script: Path, ranks: int, code: Path) -> None:
        self.mark = uuid4().hex
        more = {
            MARK: self.mark,
            "NUQ_CODE": str(code),
            "NUQ_NPROC": str(ranks),
            "NUQ_PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
        }
        self._bash = subprocess.Popen(
            ["bash", str(script)],
            env=os.environ | more,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        return self._bash.poll() is not None

    def everything(self) -> list[int]:
        """All its processes that are alive, the shell and torchrun among them."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and f"{MARK}={self.mark}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def ranks(self) -> list[int]:
        """The processes that train: Python in main.py, and not torchrun."""
        found = []
        for pid in self.everything():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"main.py" in words and b"torch.distributed.run" not in words:
                    found.append(pid)
        return sorted(found)

    def kill_everything(self) -> None:
        """Kill everything at once, as a machine that goes down: stopped first, so that none sees another die."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            while pids := [pid for pid in self.everything() if number == signal.SIGKILL or _state(pid) not in "TZ"]:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.01)
                if number == signal.SIGSTOP:
                    break
        self._bash.wait(MOST_S)

    def kill_rank(self, share: float) -> None:
        """One of its ranks, ``share`` of the way through their list; the shell, where none has begun."""
        pids = self.ranks() or [self._bash.pid]
        with suppress(ProcessLookupError):
            os.kill(pids[int(share * len(pids))], signal.SIGKILL)

    def tell(self, number: int) -> None:
        """A signal to the script, as a scheduler sends it."""
        self._bash.send_signal(number)

    def wait(self) -> int:
        """The script's exit code, once all its processes are gone."""
        try:
            code = self._bash.wait(MOST_S)
            deadline = time.monotonic() + MOST_S
            while self.everything():
                if time.monotonic() > deadline:
                    raise AssertionError(f"processes are left {MOST_S:.0f} s after their script has ended")
                time.sleep(0.02)
        finally:
            self.kill_everything()
        return code


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"
