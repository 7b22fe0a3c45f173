"""Escaping of text that others wrote before people see it: its control characters are shown, not obeyed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TextIO

# What moves the cursor, colours or hides text, turns its direction round, or cannot be written; ends of lines and tabs
# stay.
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    r"""The text with control characters as Python writes them.

    >>> print(escaped("a \x1b[31mred\x1b[0m word"))
    a \x1b[31mred\x1b[0m word
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class Escaping(io.TextIOBase):
    """A stream that escapes all text (``escaped``) but what is written to its ``plain``, to steer the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.before_text: Callable[[], None] | None = None  # called before each write, to make room for it
        self.is_at_start = True  # of a line

    def write(self, text: str) -> int:
        if self.before_text is not None:
            self.before_text()
        self.stream.write(escaped(text))
        self.is_at_start = text.endswith("\n") if text else self.is_at_start
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


def plain(stream: TextIO) -> TextIO:
    """The stream that an ``Escaping`` writes to; any other stream itself."""
    return stream.stream if isinstance(stream, Escaping) else stream
