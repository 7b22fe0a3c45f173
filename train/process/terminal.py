"""Words for people: a terminal that is full, closed or gone is no reason to end a run, nor to blame its folder.

This module imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from files.escaped import Escaping


def open_streams() -> None:
    """Let standard streams that were closed (``main.py >&-``) lead nowhere.

    Otherwise the next file that is opened takes their number.  Text on them is escaped, for it may be a file's words.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == number  # the lowest one that is free
        stream: Any = getattr(sys, name) or os.fdopen(number, mode, closefd=False)
        setattr(sys, name, Escaping(stream) if mode == "w" else stream)


def say(text: str = "") -> None:
    """Print a line on standard output (nothing: flush it).  Where that fails, one word on standard error says so."""
    try:
        if text:
            print(text)
        sys.stdout.flush()
    except BrokenPipeError:  # who read it has seen enough, as in ``main.py --help | head``
        _leads_nowhere(1)
    except OSError as error:
        _leads_nowhere(1)
        less = "so nothing more is said there; the run's folder has it all"
        complain(f"standard output cannot be written ({error.strerror}), {less}")


def complain(text: str) -> None:
    """Print a line on standard error, if anybody reads it."""
    try:
        print(f"main.py: {text}", file=sys.stderr, flush=True)
    except OSError:
        _leads_nowhere(2)


def _leads_nowhere(number: int) -> None:
    """Redirect a stream to nowhere, with what waits in it, or Python would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
    with contextlib.suppress(OSError):
        (sys.stdout if number == 1 else sys.stderr).flush()
