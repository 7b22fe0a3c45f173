"""Fail where something has become much slower: ``python -m benchmarks.floors``.

Every figure is a speed beside a baseline of the same run, or a count (``benchmarks.floor_cases``), so that it means the
same on another machine.  A speed may fall to 60 % of what was measured, steps of two ranks to 75 %, and a count may
grow to 125 %.  What has gone further is measured once more; if it is no better, the exit code is 1.  Whoever makes
something faster, or slower for a reason, writes the new figure into ``FLOORS``.  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from files.aligned import aligned


@dataclass(frozen=True)
class Floor:
    """What was measured, and the share of it that has to be left: more than 1 for a count, which must not grow."""

    measured: float
    share: float = 0.6

    @property
    def limit(self) -> float:
        return self.share * self.measured

    @property
    def is_count(self) -> bool:
        return self.share > 1

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.is_count else value >= self.limit

    def better(self, one: float, other: float) -> float:
        return min(one, other) if self.is_count else max(one, other)


def count(measured: float) -> Floor:
    """A count is exact, but for other versions of Python and of packages."""
    return Floor(measured, share=1.25)


# The medians of eight runs on an Intel Xeon (AVX-512, 2 cores, shared with other programs), Python 3.11, torch 2.13.
FLOORS = {
    "ALQ encode over eager PyTorch": Floor(41.0),
    "ALQ decode over a copy": Floor(0.85),
    "TopK decode over indexing": Floor(0.24),
    "rANS over zlib": Floor(8.5),
    "ALQ levels over SciPy": Floor(1.24),
    # half of such a step is the model's: with an exchange three times slower 60 % are left
    "DDP step over plain DDP": Floor(0.52, share=0.75),
    "the same by the clock": Floor(0.37),
    "FSDP2 step over plain FSDP2": Floor(0.7, share=0.75),
    "nuq.all_reduce, calls": count(397),
    "grid_run.py --help, calls": count(16_589),
    "grid_run.py plan of 2,000 runs, calls": count(497_506),
    "import nuq, modules": count(104),
    "event file over tensorboardX's records": Floor(1.84),
}
Group = Callable[[], Mapping[str, float]]


def measured(groups: Iterable[Group], floors: Mapping[str, Floor]) -> dict[str, float]:
    """The figures of all groups; a group with one that has fallen is measured once more, and the better one counts."""
    found: dict[str, float] = {}
    for group in groups:
        first = dict(group())
        if any(not floors[name].holds(value) for name, value in first.items()):
            first = {name: floors[name].better(first[name], value) for name, value in group().items()}
        found |= first
    return found


def table(figures: Mapping[str, float], floors: Mapping[str, Floor]) -> str:
    """One line for each figure."""
    rows = [["", "now", "measured", "limit", ""]]
    for name, value in figures.items():
        floor = floors[name]
        numbers = [f"{number:,.0f}" if floor.is_count else f"{number:.2f}" for number in (value, floor.measured)]
        limit = f"{floor.limit:,.0f}" if floor.is_count else f"{floor.limit:.2f}"
        rows.append([name, *numbers, limit, "holds" if floor.holds(value) else "FALLEN"])
    return aligned(rows)


def sentences(figures: Mapping[str, float], floors: Mapping[str, Floor]) -> list[str]:
    """One sentence for each figure that has fallen."""
    told = []
    for name, value in figures.items():
        floor = floors[name]
        if not floor.holds(value) and floor.is_count:
            told.append(f"{name}: {value:,.0f}, more than {floor.limit:,.0f}; {floor.measured:,.0f} were measured")
        elif not floor.holds(value):
            told.append(
                f"{name}: {value:.3g} times as fast, less than {floor.limit:.3g}; {floor.measured:g} was measured"
            )
    return told


def main(words: Sequence[str] | None = None) -> int:
    """Print the table and one JSON object; the exit code is 1 if a figure has fallen."""
    argparse.ArgumentParser(
        prog="python -m benchmarks.floors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(words)
    import torch

    from benchmarks import floor_cases
    from train.process.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # fresh pages take from one to three times as long, as chance has it
    figures = measured(floor_cases.GROUPS, FLOORS)
    fallen = sentences(figures, FLOORS)
    print(table(figures, FLOORS))
    for sentence in fallen:
        print(f"error: {sentence}", file=sys.stderr)
    print(json.dumps({name: float(f"{value:.4g}") for name, value in figures.items()}))
    return int(bool(fallen))


if __name__ == "__main__":
    sys.exit(main())
