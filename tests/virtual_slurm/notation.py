"""SLURM's notations: options, indices of arrays, times and amounts of memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

_SHORT = "a=array c=cpus-per-task d=dependency h=noheader j=jobs n=name o=format p=partition r=array s=signal t=state"
_SHORT += " u=user w=nodelist J=job-name N=nodes S=starttime"
SHORT = {letter: name for letter, _, name in (word.partition("=") for word in _SHORT.split())}
FLAGS = {"test-only", "parsable", "parsable2", "hold", "requeue", "no-requeue", "exclusive", "noheader", "all", "me",
         "allocations", "duplicates", "oneliner", "batch", "full"}  # fmt: skip
NO_VALUE = {"squeue": "hra", "sacct": "XPnD", "sinfo": "hN", "scontrol": "o", "scancel": "bf", "sbatch": "H"}


def indices(text: str) -> list[int]:
    """The indices in ``1,5-9:2``."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,7`` of 0, 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in parts)


def seconds(text: str) -> float:
    """``90`` (minutes), ``1:30``, ``1:00:00``, ``1-0``, ``1-2:03:04`` or UNLIMITED."""
    if text == "UNLIMITED":
        return math.inf
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        parts = [*parts, 0, 0][:3]
    elif len(parts) < 3:
        parts = [0, *parts, 0][:3] if len(parts) == 1 else [0, *parts]
    hours, minutes, rest_s = parts
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest_s


def megabytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper()).groups()  # type: ignore[union-attr]
    return int(number) * {"K": 0, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}[unit]


def options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of a command by their long names, and its other words."""
    command, *left = words
    found: dict[str, str] = {}
    rest: list[str] = []
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals or name in FLAGS else left.pop(0) if left else ""
        elif word.startswith("-") and len(word) > 1:
            letter, value = word[1], word[2:]
            if letter in NO_VALUE.get(command, ""):
                found[{"n": "noheader", "N": "Node"}.get(letter, SHORT.get(letter, letter))] = ""
                left = [f"-{value}", *left] if value else left
            else:
                found[SHORT.get(letter, letter)] = value or (left.pop(0) if left else "")
        else:
            rest.append(word)
    return found, rest


def specs(words: Iterable[str]) -> list[str]:
    """``12,13_[1,3]`` as ``12`` and ``13_[1,3]``."""
    return [spec for word in words for spec in re.findall(r"(?:\[[^]]*\]|[^,[])+", word)]
