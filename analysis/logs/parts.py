"""Rows of many runs as plain arrays: in memory, or in files that are mapped into it.

A part holds the scalars of some runs, ordered by run, tag and step.  A small table of spans says which rows belong to
which run, tag and attempt, so that the columns proper are three: step, wall time and value.  On disk a part is four
.npy files and a JSON file, nothing that could run code.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from files.atomic import write_text

COLUMNS = {"step": np.dtype("<i8"), "wall_time": np.dtype("<f8"), "value": np.dtype("<f8")}
_SPANS = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Part:
    """Scalars of runs 0 .. n - 1; ``spans`` is int64 (k, 4): run, tag (index in ``tags``), attempt, number of rows."""

    num_runs: int
    tags: tuple[str, ...]
    spans: np.ndarray
    step: np.ndarray
    wall_time: np.ndarray
    value: np.ndarray

    @functools.cached_property
    def span_edges(self) -> np.ndarray:
        """The borders of the spans: those of run i are span_edges[i] .. span_edges[i + 1]."""
        return np.searchsorted(self.spans[:, 0], np.arange(self.num_runs + 1))

    @functools.cached_property
    def row_edges(self) -> np.ndarray:
        """The borders of the rows: those of run i are row_edges[i] .. row_edges[i + 1]."""
        return np.concatenate([[0], np.cumsum(self.spans[:, 3])])[self.span_edges]


def empty(num_runs: int = 0) -> Part:
    """A part of runs that logged nothing."""
    return Part(num_runs, (), np.zeros((0, 4), _SPANS), *(np.zeros(0, kind) for kind in COLUMNS.values()))


Pieces = Sequence[tuple[Part, int]]  # a run each: the part that it is in, and its number there


def _spans_of(pieces: Pieces) -> tuple[tuple[str, ...], np.ndarray]:
    """The tags of these runs, sorted, and the spans that refer to them; runs are numbered as they come."""
    chosen = [part.spans[part.span_edges[run] : part.span_edges[run + 1]] for part, run in pieces]
    used: dict[int, tuple[Part, set[int]]] = {}
    for (part, _), spans in zip(pieces, chosen, strict=True):
        used.setdefault(id(part), (part, set()))[1].update(spans[:, 1].tolist())
    tags = sorted({part.tags[code] for part, codes in used.values() for code in codes})
    place = {tag: code for code, tag in enumerate(tags)}
    recode = {key: np.array([place.get(tag, -1) for tag in part.tags], np.int64) for key, (part, _) in used.items()}
    found = [
        np.column_stack([np.full(len(spans), run), recode[id(part)][spans[:, 1]], spans[:, 2:]])
        for run, ((part, _), spans) in enumerate(zip(pieces, chosen, strict=True))
        if len(spans)
    ]
    return tuple(tags), np.concatenate([np.zeros((0, 4), _SPANS), *found])


def _slices(pieces: Pieces) -> list[tuple[Part, int, int]]:
    """The slices of rows that belong to these runs; neighbours in one part are one slice."""
    found: list[tuple[Part, int, int]] = []
    for part, run in pieces:
        begin, end = int(part.row_edges[run]), int(part.row_edges[run + 1])
        if found and found[-1][0] is part and found[-1][2] == begin:
            found[-1] = (part, found[-1][1], end)
        elif end > begin:
            found.append((part, begin, end))
    return found


def joined(pieces: Pieces) -> Part:
    """These runs as one part; nothing is copied where they are neighbours in one part already."""
    tags, spans = _spans_of(pieces)
    slices = _slices(pieces)
    columns = []
    for name, kind in COLUMNS.items():
        arrays = [getattr(part, name)[begin:end] for part, begin, end in slices]
        columns.append(arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, kind), *arrays]))
    return Part(len(pieces), tags, spans, *columns)


def write(folder: Path, name: str, pieces: Pieces) -> None:
    """Write these runs as the part ``name``; its JSON file comes last, so that a part that has one is whole."""
    tags, spans = _spans_of(pieces)
    slices = _slices(pieces)
    np.save(folder / f"{name}.spans.npy", spans)
    sums = {"spans": _sum(spans)}
    for column, kind in COLUMNS.items():
        arrays = [getattr(part, column)[begin:end] for part, begin, end in slices]
        shape = (sum(len(array) for array in arrays),)
        with (folder / f"{name}.{column}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": kind.str, "fortran_order": False, "shape": shape})
            for array in arrays:
                array.tofile(file)
        sums[column] = sum(_sum(array) for array in arrays) % (1 << 64)
    text = json.dumps({"num_runs": len(pieces), "tags": tags, "sums": sums})
    write_text(folder / f"{name}.json", text)


def opened(folder: Path, name: str, *, verify: bool = True) -> Part | None:
    """The part of that name, mapped (changes to it stay in memory); None where it is missing or damaged.

    ``verify=False`` is for a part that was written a moment ago: not all of its bytes are looked at.
    """
    try:
        about = json.loads((folder / f"{name}.json").read_text())
        tags, sums = about["tags"], about["sums"]
        kinds = {"spans": _SPANS, **COLUMNS}
        arrays = {column: _mapped(folder / f"{name}.{column}.npy") for column in kinds}
        for column, array in arrays.items():
            if array.dtype != kinds[column] or (verify and _sum(array) != sums[column]):
                return None
        found = Part(about["num_runs"], tuple(tags), **arrays)
        return found if _consistent(found) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None


def _mapped(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:  # an empty array has nothing to map
        array = np.load(path, allow_pickle=False)
    return np.asarray(array)


def _sum(array: np.ndarray) -> int:
    """The sum of the bits, as 64-bit words modulo 2^64, which shows pages that a crash has left unwritten."""
    return int(np.ascontiguousarray(array).view(np.uint64).sum(dtype=np.uint64))


def _consistent(part: Part) -> bool:
    named = isinstance(part.num_runs, int) and all(isinstance(tag, str) for tag in part.tags)
    if not named or part.spans.shape[1:] != (4,):
        return False
    run, tag, attempt, count = part.spans.T
    rows = int(count.sum())
    within = bool((part.spans >= 0).all()) and bool((run < part.num_runs).all()) and bool((tag < len(part.tags)).all())
    sizes = all(getattr(part, column).shape == (rows,) for column in COLUMNS)
    return within and sizes and bool((np.diff(run) >= 0).all()) and bool((attempt < 1 << 31).all())


def remove(folder: Path, name: str) -> None:
    """Delete the files of a part, as far as they are there; a process that has them mapped keeps them."""
    for ending in ("json", "spans.npy", *(f"{column}.npy" for column in COLUMNS)):
        (folder / f"{name}.{ending}").unlink(missing_ok=True)
