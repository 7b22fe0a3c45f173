"""A real terminal for programs that tests start, and what a person would see on it in the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT_S = 60.0


def on_terminal(
    command: Sequence[str], columns: int, env: Mapping[str, str], cwd: Path, ctrl_c_after: str = ""
) -> tuple[str, int]:
    """All that a program writes on a terminal of so many columns, and its exit code.

    ctrl_c_after: once this text has come, Ctrl-C is pressed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def own_terminal() -> None:  # Ctrl-C goes to whoever has it
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, the tests perhaps, ignore it

    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=cwd, start_new_session=True,
        preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(theirs)
    written, is_pressed, end = b"", False, time.monotonic() + LIMIT_S
    with contextlib.suppress(OSError):  # the terminal's end, once the program is gone
        while select.select([ours], [], [], max(0.0, end - time.monotonic()))[0] and (part := os.read(ours, 1 << 16)):
            written += part
            if ctrl_c_after and not is_pressed and ctrl_c_after.encode() in written:
                os.write(ours, b"\x03")
                is_pressed = True
    os.close(ours)  # who still writes there is sent SIGHUP
    return written.decode(), child.wait(timeout=LIMIT_S)


def screen(written: str, columns: int) -> list[str]:
    """The lines that are seen in the end on a terminal that is high enough; a full line is wrapped."""
    lines, row, column = [""], 0, 0
    for word in re.findall(r"\x1b\[K|[\s\S]", written):
        if word == "\r":
            column = 0
        elif word == "\n":
            row += 1
        elif word == "\x1b[K":
            lines[row] = lines[row][:column]
        else:
            assert word >= " ", f"the terminal is steered by {word!r}"
            if column == columns:
                row, column = row + 1, 0
            if row < len(lines):
                lines[row] = lines[row][:column].ljust(column) + word + lines[row][column + 1 :]
            else:
                lines.append(word.rjust(column + 1))
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines]
