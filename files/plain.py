"""Readers of files that anybody may have written.

They read only regular files of a sane size, and of JSON and YAML only plain values.

A run folder is writable by whoever runs there, and one odd file in it must cost that run alone.  So whatever is wrong
with a file is an Unreadable, a ValueError with the reason in words; OSError stays what it is (no file, no permission).
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

TEXT_BYTES = 4 * 2**20  # the limit for a configuration, a status or a profile, which have some kB
MOST_DEPTH = 64  # the most levels of lists and tables in each other
MOST_VALUES = 200_000  # the most values of a file, each counted as often as an alias repeats it
_TOO_DEEP = f"is nested deeper than {MOST_DEPTH} levels"
LARGEST = 2**64  # the bound of whole numbers: a seed may have 64 bits
# folders and sockets cannot be opened
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class Unreadable(ValueError):
    """The reason why a file is not read, in words that follow its name: ``is a FIFO, no regular file``."""


def read_bytes(path: Path, most_bytes: int | None = TEXT_BYTES) -> bytes:
    """The contents of a regular file of at most so many bytes (None: of any size)."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            raise Unreadable(_too_large(most_bytes))
        content = file.read(size if most_bytes is None else most_bytes + 1)
    if content is None:  # such as /proc/kmsg, whose kind is that of a regular file
        raise Unreadable("waits for more to be written, no regular file")
    if most_bytes is not None and len(content) > most_bytes:
        raise Unreadable(_too_large(most_bytes))
    return content


def opened(path: Path) -> BinaryIO:
    """Open a regular file to read; the call never waits for a process that would write to a FIFO."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if kind != stat.S_IFREG:
        file.close()
        raise Unreadable(f"is {_KINDS.get(kind, 'something else')}, no regular file")
    return file


def read_text(path: Path) -> str:
    """The text of a file of UTF-8 of at most TEXT_BYTES."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"is no UTF-8 ({error.reason} at byte {error.start})") from error


def read_json(path: Path, *, any_number: bool = False) -> Any:
    """The value of a JSON file; nan and inf, as Python writes them, are numbers.

    any_number: numbers of more than 64 bits are legal, too.
    """
    try:
        value = json.loads(read_text(path))
    except Unreadable:
        raise
    except RecursionError as error:
        raise Unreadable(_TOO_DEEP) from error
    except ValueError as error:
        raise Unreadable(f"is no JSON ({error})") from error
    return checked(value, any_number=any_number)


def read_yaml(path: Path) -> Any:
    """The value of a YAML file of plain, finite values (dates among them): no setting may be infinite."""
    return parsed_yaml(read_text(path))


def parsed_yaml(text: str) -> Any:
    """The value of a text in YAML, as ``read_yaml``."""
    import yaml

    check_yaml(text)
    try:
        return checked(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), finite=True)
    except Unreadable:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(f"is no YAML ({yaml_mistake(error)})") from error


def yaml_mistake(error: Exception) -> str:
    """What is wrong with a text that PyYAML refuses, after its line where that is known."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    words = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"line {mark.line + 1}: {words}" if mark else words


def check_yaml(text: str) -> None:
    """Raise Unreadable for more nesting or aliases than a YAML loader should build; other mistakes it tells itself."""
    import yaml

    if text.count("[") + text.count("{") + text.count("- ") + text.count("? ") + text.count("&") < MOST_DEPTH:
        return  # nesting by indentation alone needs a line, and more and more blanks, for each level
    depth = 0
    try:
        for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise Unreadable(_TOO_DEEP)
    except yaml.YAMLError:
        return


def checked(value: Any, *, finite: bool = False, any_number: bool = False) -> Any:
    """The value itself, if plain: not too deep or large, its numbers within 64 bits, its texts Unicode."""
    for count, (item, depth) in enumerate(_walk(value)):
        if depth > MOST_DEPTH:
            raise Unreadable(_TOO_DEEP)
        if count > MOST_VALUES:
            raise Unreadable(f"holds more than {MOST_VALUES} values")
        if isinstance(item, int) and abs(item) > LARGEST and not any_number:
            raise Unreadable("holds a number of more than 64 bits")
        if finite and isinstance(item, float) and not math.isfinite(item):
            raise Unreadable(f"holds the number {item}")
        if isinstance(item, str) and not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
            raise Unreadable("holds half a character (a lone surrogate)")
    return value


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Every value with its depth, keys included; a value that an alias repeats comes again."""
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        yield item, depth
        if isinstance(item, dict):
            waiting += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list | tuple | set):
            waiting += [(part, depth + 1) for part in item]


def _too_large(most_bytes: int) -> str:
    return f"is larger than {most_bytes / 2**20:g} MB"
