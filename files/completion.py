"""Completion in a shell, by argcomplete: it starts the program with the line so far, and reads what may follow.

Only the functions that answer import argcomplete: a program that is run as usual does not wait for it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import NoReturn

# From the words before the cursor, as far as they are parsed, and the beginning of the word at it: the words that may
# stand there, each with its description (empty: none).
Completer = Callable[[str, argparse.Namespace], Mapping[str, str]]


def is_asked() -> bool:
    """Whether this process was started by a shell that completes a line, and for nothing else."""
    return "_ARGCOMPLETE" in os.environ


def words_before() -> list[str]:
    """The words of the line before the one at the cursor; the program is not among them."""
    from argcomplete.lexers import split_line

    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    return words[int(os.environ["_ARGCOMPLETE"]) :]


def answer(parser: argparse.ArgumentParser, completers: Mapping[str, Completer], skip: int = 0) -> NoReturn:
    """Tell the shell what may follow, and end the process.

    completers: those of the arguments, by ``dest``; the others are completed from their choices, or as file names.
    skip: so many words after the program that the parser is not to see.
    """
    import argcomplete

    os.environ["_ARGCOMPLETE"] = str(int(os.environ["_ARGCOMPLETE"]) + skip)  # where argcomplete begins to parse
    for action in parser._actions:
        if completer := completers.get(action.dest):
            action.completer = _called(completer)  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)
    raise AssertionError("argcomplete ends the process")


def _called(completer: Completer) -> Callable[..., Mapping[str, str]]:
    """A completer as argcomplete calls it."""
    return lambda *, prefix, parsed_args, **_: completer(prefix, parsed_args)
