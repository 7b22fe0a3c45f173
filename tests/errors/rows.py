"""A row of a table of errors: a public call or setting, what is wrong with its input, and a function that does it."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.errors import sites


@dataclass(frozen=True)
class Row:
    """``make`` makes the error; if it takes an argument, it gets the path of an empty folder, and runs there."""

    call: str
    given: str
    make: Callable[..., object]
    command: bool = False  # `make` runs a command line in this process, and returns its exit code


@dataclass(frozen=True)
class Made:
    """What a user of a row sees, and the sites that raised it."""

    kind: str  # the type of the exception, or `exit 2`
    sentence: str
    sites: frozenset[str]


def row(call: str, given: str, make: Callable[..., object]) -> Row:
    """A call from Python, which raises."""
    return Row(call, given, make)


def cli(call: str, given: str, make: Callable[..., object]) -> Row:
    """A command line: ``make`` calls its ``main``, which prints a sentence and returns or raises an exit code."""
    return Row(call, given, make, command=True)


def made(one: Row) -> Made:
    """Make the error of a row."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(setattr, sys, "excepthook", sys.excepthook)  # which a process group changes
        arguments = []
        if any(given.default is given.empty for given in inspect.signature(one.make).parameters.values()):
            arguments.append(Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve())
            stack.enter_context(contextlib.chdir(arguments[0]))
        kind, text, found = (_of_command if one.command else _of_call)(one, arguments)
    assert found or one.command, f"{one.call}: {one.given}: {kind} from no raise of this code: {text}"
    for folder in arguments:
        text = text.replace(str(folder), "<folder>")
    text = re.sub(r"\b0x[0-9a-f]{6,}", "<address>", text.replace(str(sites.ROOT), "<checkout>"))
    text = re.sub(r"\btorch \d+\.\d+\.\d+[\w+.]*", "torch <version>", text)
    return Made(kind, text.strip().replace("\n", "\\n"), frozenset(found))


def _of_call(one: Row, arguments: list[Path]) -> tuple[str, str, set[str]]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            one.make(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever a user would see
        return type(error).__name__, str(error), sites.of_error(error)
    raise AssertionError(f"{one.call}: {one.given}: raises nothing")


def _of_command(one: Row, arguments: list[Path]) -> tuple[str, str, set[str]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _exceptions() as raised:
        try:
            code = one.make(*arguments)
        except SystemExit as error:
            code = error.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
    assert code, f"{one.call}: {one.given}: exit code {code}"
    text = re.sub(
        r"\Ausage: .*?(?=^\S[^:\n]*: error: )", "", err.getvalue() or out.getvalue(), flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"(?ms)^Traceback .*?(?=^error: )", "", text)  # which also names lines of others' code
    plain = "".join(text.split())
    # an exception whose sentence is not shown was swallowed on the way
    shown = [error for error in raised if str(error) and "".join(str(error).split()) in plain]
    return f"exit {code}", text, {site for error in shown for site in sites.of_error(error)}


@contextlib.contextmanager
def _exceptions() -> Iterator[list[BaseException]]:
    """All exceptions that pass a frame of this checkout, also those that a command turns into words."""
    raised, root, before = list[BaseException](), str(sites.ROOT), sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            frame.f_trace_lines = False
            return trace if frame.f_code.co_filename.startswith(root) else None
        if event == "exception" and isinstance(argument[1], BaseException) and argument[1] not in raised[-1:]:
            raised.append(argument[1])
        return trace

    sys.settrace(trace)
    try:
        yield raised
    finally:
        sys.settrace(before)
