"""One line of progress at the bottom of a terminal, rewritten in place; whatever else is printed stands above it.

rich's live display breaks the lines that are printed above it at the width of the terminal and draws from a thread of
its own, and tqdm lets what others print stand behind its bar; both pass by ``Escaping``, which here makes the room.
"""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Mapping
from typing import TextIO

from files.escaped import Escaping, escaped, plain

COLUMNS = 80  # where a terminal does not say how wide it is


def is_live(stream: TextIO | Escaping, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream makes room for the line, and is a terminal whose lines can be rewritten.

    That is no file, no pipe, no TERM=dumb, and nothing in a CI.
    """
    if not (isinstance(stream, Escaping) and stream.isatty()):
        return False
    return environ.get("TERM", "") not in ("", "dumb", "unknown") and not environ.get("CI")


def duration(seconds: float) -> str:
    """A duration as people read it.

    >>> duration(65.2), duration(3725), duration(200_000)
    ('1:05', '1:02:05', '2 d 7 h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def cut(text: str, columns: int) -> str:
    """The beginning of a text that fits into so many columns, of which a wide character takes two."""
    taken = 0
    for number, character in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(character) in "WF" else not unicodedata.combining(character)
        if taken > columns:
            return text[:number]
    return text


class LiveLine:
    """The line on standard output.  It has no colour; what is written to either standard stream clears it first.

    A terminal that has gone ends the line, never the program.
    """

    def __init__(self) -> None:
        self._stream = plain(sys.stdout)
        self._streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Escaping)]
        self._is_shown = False
        for stream in self._streams:
            stream.before_text = self.clear

    def show(self, text: str) -> None:
        """Replace the line, unless a line that somebody prints is not ended yet."""
        if all(stream.is_at_start for stream in self._streams):
            # one column stays free: a full line would be wrapped by the next character
            self._write(f"\r{cut(escaped(text), self._columns() - 1)}\x1b[K")
            self._is_shown = True

    def clear(self) -> None:
        """Take the line away; the next ``show`` brings it back."""
        if self._is_shown:
            self._is_shown = False
            self._write("\r\x1b[K")

    def close(self) -> None:
        """Take the line away for good."""
        self.clear()
        for stream in self._streams:
            stream.before_text = None

    def _columns(self) -> int:
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self._stream.fileno()).columns or COLUMNS
        return COLUMNS

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
