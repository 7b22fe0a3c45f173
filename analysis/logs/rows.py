"""The rows that a sweep's runs logged, found by run and tag without a look at the other rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.logs.parts import COLUMNS, Part


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of some runs of a part, which other selections may share.

    ``spans``: int64 (k, 5): run (index into ``names``), tag, attempt, and the rows begin .. end of the part, in row
    order.
    """

    names: tuple[str, ...]
    part: Part
    spans: np.ndarray

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {}

    @functools.cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that these runs logged."""
        return tuple(self.part.tags[code] for code in np.unique(self.spans[:, 1]).tolist())

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """The table of these rows: run, tag (both categorical), attempt, step, wall_time, value."""
        run, tag, attempt, begin, end = self.spans.T
        edges = np.append(0, np.cumsum(end - begin))
        few_runs = np.int16 if len(self.names) < 1 << 15 else np.int32
        few_tags = np.int8 if len(self.part.tags) < 1 << 7 else np.int32
        names, tags = pd.Index(self.names, dtype=object), pd.Index(self.part.tags, dtype=object)
        coded = {
            "run": pd.Categorical.from_codes(_spread(run, edges, few_runs), names, validate=False),
            "tag": pd.Categorical.from_codes(_spread(tag, edges, few_tags), tags, validate=False),
            "attempt": _spread(attempt, edges, np.int32),
        }
        return pd.DataFrame({**coded, **{name: self._column(name) for name in COLUMNS}}, copy=False)

    def _column(self, name: str) -> np.ndarray:
        """A column of these rows; no copy where they are neighbours."""
        column, (begin, end) = getattr(self.part, name), self.spans[:, 3:].T
        if not len(begin):
            return column[:0]
        breaks = np.flatnonzero(begin[1:] != end[:-1])
        lows, highs = begin[np.append(0, breaks + 1)], end[np.append(breaks, -1)]
        pieces = [column[low:high] for low, high in zip(lows, highs, strict=True)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def keep(self, names: Sequence[str]) -> Rows:
        """The rows of the runs of these names, which must be in the order that they have here."""
        place = {name: number for number, name in enumerate(names)}
        number = np.array([place.get(name, -1) for name in self.names], np.int64)[self.spans[:, 0]]
        chosen = number >= 0
        return Rows(tuple(names), self.part, np.column_stack([number[chosen], self.spans[chosen, 1:]]))

    def only(self, tags: Sequence[str]) -> Rows:
        """The rows of these tags."""
        codes = [code for code, tag in enumerate(self.part.tags) if tag in set(tags)]
        return Rows(self.names, self.part, self.spans[np.isin(self.spans[:, 1], codes)])

    def of_tag(self, tag: str) -> pd.DataFrame:
        """The values of a tag, kept for the next call: steps down, runs across (with any), non-finite ones absent."""
        if tag in self._tables:
            return self._tables[tag]
        spans = self.only([tag]).spans
        # the attempts of a run are neighbours
        first = np.flatnonzero(np.append(True, np.diff(spans[:, 0]) != 0)[: len(spans)])
        runs, begins = spans[first, 0].tolist(), spans[first, 3].tolist()
        ends = spans[np.append(first[1:], len(spans))[: len(first)] - 1, 4].tolist()
        steps = [self.part.step[begin:end] for begin, end in zip(begins, ends, strict=True)]
        values = [self.part.value[begin:end] for begin, end in zip(begins, ends, strict=True)]
        if steps and all(np.array_equal(steps[0], other) for other in steps[1:]):
            index, table = np.array(steps[0]), np.stack(values, axis=1)
        else:
            index = np.unique(np.concatenate([np.zeros(0, np.int64), *steps]))
            table = np.full((len(index), len(runs)), np.nan)
            for number, (step, value) in enumerate(zip(steps, values, strict=True)):
                table[np.searchsorted(index, step), number] = value
        finite = np.isfinite(table)
        if not finite.all():
            table[~finite] = np.nan
            rows, columns = np.asarray(finite.any(axis=1)), np.asarray(finite.any(axis=0))
            index, table = index[rows], table[rows][:, columns]
            runs = [run for run, some in zip(runs, columns.tolist(), strict=True) if some]
        names = pd.Index([self.names[run] for run in runs], name="run", dtype=object)
        return self._tables.setdefault(tag, pd.DataFrame(table, pd.Index(index, name="step"), names))

    def last_step(self) -> np.ndarray:
        """The last step of each run; NaN where it logged nothing."""
        found = np.full(len(self.names), -np.inf)
        np.maximum.at(found, self.spans[:, 0], self.part.step[self.spans[:, 4] - 1].astype(float))
        return np.where(np.isinf(found), np.nan, found)

    def last_time(self) -> dict[str, float]:
        """The wall time of each run's last row, by name; -inf where it logged nothing."""
        found = dict.fromkeys(self.names, -np.inf)
        for run, _, _, begin, end in self.spans.tolist():
            name = self.names[run]
            found[name] = max(found[name], float(self.part.wall_time[begin:end].max()))
        return found

    def seconds(self, name: str) -> float:
        """The seconds from a run's first row to its last, without the time between attempts; NaN without rows."""
        spans = self.spans[self.spans[:, 0] == self.names.index(name)]
        of_attempt: dict[int, list[np.ndarray]] = {}
        for _, _, attempt, begin, end in spans.tolist():
            of_attempt.setdefault(attempt, []).append(self.part.wall_time[begin:end])
        return float(sum(np.ptp(np.concatenate(times)) for times in of_attempt.values())) if of_attempt else np.nan


def _spread(of_span: np.ndarray, edges: np.ndarray, kind: type[np.integer]) -> np.ndarray:
    """The value of each span for each of its rows, as ``np.repeat`` gives it, which is slow over long spans."""
    found = np.zeros(int(edges[-1]), kind)
    if not len(of_span):
        return found
    firsts = np.flatnonzero(np.append(True, of_span[1:] != of_span[:-1]))
    ends = edges[np.append(firsts[1:], len(of_span))].tolist()
    for value, begin, end in zip(of_span[firsts].tolist(), edges[firsts].tolist(), ends, strict=True):
        if value:
            found[begin:end] = value
    return found


def rows(names: Sequence[str], part: Part) -> Rows:
    """All rows of a part whose runs have these names."""
    end = np.cumsum(part.spans[:, 3])
    return Rows(tuple(names), part, np.column_stack([part.spans[:, :3], end - part.spans[:, 3], end]))
