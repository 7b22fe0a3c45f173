"""The names of array elements, as SLURM's commands print and take them."""

from __future__ import annotations

import re
from collections.abc import Collection

from grid.engine.slurm.scheduler_cache import Unreachable

_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,:-]+)(?:%\d+)?\]))?(?:;\w+)?\Z")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?\Z")


def expand(name: str) -> list[str]:
    """The elements of a name: ``123_4`` stays as it is, ``123_[5-9:2,12%4]`` becomes one name per element.

    Unreachable where it is cut short or something else.
    """
    found = _ID.match(name)
    parts = [_RANGE.match(part) for part in found[3].split(",")] if found and found[3] else []
    if not found or not all(parts):
        raise Unreachable(
            f"the scheduler names a job {name[:80]!r}, which is no job id, array element or range of elements"
        )
    if not found[3]:
        return [f"{found[1]}_{int(found[2])}" if found[2] else found[1]]
    return [
        f"{found[1]}_{index}"
        for part in parts
        if part
        for index in range(int(part[1]), int(part[2] or part[1]) + 1, max(1, int(part[3] or 1)))
    ]


def compact(elements: Collection[str]) -> list[str]:
    """One word per array, as the commands take it: ``123_[1-3,7]`` stands for 123_1, 123_2, 123_3 and 123_7."""
    arrays: dict[str, set[int]] = {}
    whole = []
    for element in elements:
        name, _, index = element.partition("_")
        if index:
            arrays.setdefault(name, set()).add(int(index))
        else:
            whole.append(element)
    words = []
    for name, indices in arrays.items():
        runs: list[list[int]] = []
        for index in sorted(indices):
            if runs and index == runs[-1][1] + 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
        parts = [f"{first}-{last}" if first < last else f"{first}" for first, last in runs]
        words.append(f"{name}_[{','.join(parts)}]")
    return [*whole, *words]
