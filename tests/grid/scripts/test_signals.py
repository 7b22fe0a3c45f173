"""A shell that waits for its child leaves only after it, however many signals come at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from grid.engine.scripts.templates import piece
from tests.grid.fake import until

SHELLS = 16
# A child that takes its time after a warning, below two shells that hand it on, as in a job: each hears it several
# times.
CHILD = """
trap '' TERM
touch {folder}/$1.up
until [ -e {folder}/go ]; do sleep 0.1; done
exit 7
"""


def test_signals_in_quick_succession_do_not_end_the_wait(tmp_path: Path) -> None:
    (tmp_path / "child.sh").write_text(CHILD.format(folder=tmp_path))
    for name, below in (("inner", "child"), ("outer", "inner")):
        (tmp_path / f"{name}.sh").write_text(
            f'set -u\n{piece("wait")}bash {tmp_path}/{below}.sh "$1" &\nfinish\nexit "$code"\n'
        )
    shells = [
        subprocess.Popen(["bash", tmp_path / "outer.sh", str(number)], start_new_session=True)
        for number in range(SHELLS)
    ]
    try:
        until(lambda: len(list(tmp_path.glob("*.up"))) == SHELLS, "all children listen")
        for pause_s in (0, 0.001, 0.002, 0.001):
            time.sleep(pause_s)
            for shell in shells:
                os.killpg(shell.pid, signal.SIGTERM)
        time.sleep(0.5)
        assert [shell.poll() for shell in shells] == [None] * SHELLS
        (tmp_path / "go").touch()
        assert [shell.wait(15) for shell in shells] == [7] * SHELLS
    finally:
        (tmp_path / "go").touch()
        for shell in shells:
            shell.wait(15)
