"""The event files of many runs, merged and sorted, by several processes where there is much to read.

Processes share no memory and no locks: each claims the next portion by creating a file that only one can create, and
leaves its rows as a part (``analysis.logs.parts``).  They are started as commands
(``python -m analysis.logs.reading FOLDER``), so that it does not matter what the calling program is, and whatever a
process did not deliver this one reads itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis.logs import events, parts
from analysis.logs.discovery import EVALUATOR

ATTEMPT = re.compile(r"\.a(\d+)$")
_PORTION_BYTES = 4 << 20  # the arrays of a portion then stay near the caches of a core
_ALONE_BYTES = 48 << 20  # below this, a second process would take longer to start than to help
_MOST_PROCESSES = 8
# The tags, under our names, that a figure, a table or a cost reads.
READ = re.compile(
    "loss|Tloss|Vloss|Vacc|Vpearson|Vmatthews|lr|epoch|batch_idx|est_var|super_var|sgd_var|relative_var_se|est_nvar|"
    "est_snr|norm_var|nb_error|error_kurtosis|error_max|compression_ratio|comm/(network_)?bytes|"
    "comm/(means_)?bits_per_coordinate|time/(step|encode|wire|decode|update|optimizer)_s|" + r"levels/\d+"
)


class Files(NamedTuple):
    """The event files of a run in the order they were begun, their total size, and other names for some tags."""

    paths: Sequence[str]
    num_bytes: int
    names: Mapping[str, str]


class Read(NamedTuple):
    """A run that was read.

    part, run: where its rows are.  damage: what was damaged, as (file name, sentence).  remarks: sentences on what was
    passed over in sound files.
    """

    part: parts.Part
    run: int
    damage: list[tuple[str, str]]
    remarks: list[str]


Runs = tuple[parts.Part, list[list[tuple[str, str]]], list[list[str]]]  # the rows of some runs; damage, remarks of each


def attempt(name: str) -> tuple[int, str]:
    """The sort key of an event file of a run: by attempt (``.a3``), then by the time; an evaluator's come first."""
    match = ATTEMPT.search(name)
    return (int(match[1]) if match else 0, name)


def merged(step: np.ndarray, file: np.ndarray, tag: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A mask of a run's rows that stay where its files overlap: beyond a later's first step the earlier give way.

    At that step itself both files may have values, of which the last counts for each tag: an attempt that goes on from
    step 100 may begin with a measurement there, and the values that the one before logged at step 100 led to the
    checkpoint.

    file: of each row, among the run's files in the order they were begun.  own: bool of each file, whether an attempt
    of ours wrote it.  An attempt takes the place of earlier attempts whatever it logs; other files may be of writers
    that log other tags, and take that of their own tags only.
    """
    if not len(step):
        return np.zeros(0, bool)
    code = np.unique(tag, return_inverse=True)[1]
    last = np.iinfo(np.int64).max
    first = np.full((len(own) + 1, int(code.max()) + 1), last)
    np.minimum.at(first, (file, code), step)
    of_attempts = np.where(np.append(own, False), first.min(axis=1), last)
    first, of_attempts = (np.minimum.accumulate(each[::-1])[::-1][1:] for each in (first, of_attempts))
    return step <= np.minimum(first[file, code], np.where(own, of_attempts, last)[file])


def writers(names: Sequence[str], begun: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """The numbers of a run's files, in the order they were begun; files that were written at the same time share one.

    names: of the files, in order; begun, ended: wall times, infinite for a file without events.  Our own attempts
    (``.a3``) are never written at the same time: an attempt begins after the one before has ended, whatever the clocks
    of two machines say.
    """
    number, until = np.zeros(len(names), np.int64), -np.inf
    for file, name in enumerate(names):
        apart = bool(ATTEMPT.search(name)) or until <= begun[file] < np.inf
        number[file] = number[file - 1] + apart if file else 0
        until = ended[file] if apart else max(until, ended[file])
    return number


def read_runs(runs: Sequence[Files]) -> Runs:
    """The rows of some runs, and what is to be said of each."""
    paths = [Path(path) for run in runs for path in run.paths]
    run_of_file = np.repeat(np.arange(len(runs)), [len(run.paths) for run in runs])
    found = events.read(paths)
    damage: list[list[tuple[str, str]]] = [[] for _ in runs]
    for file, what in sorted(found.damage.items()):
        damage[run_of_file[file]].append((paths[file].name, what))
    remarks = [_passed_over(found, run_of_file == number) for number in range(len(runs))]
    if not len(found.record):
        return parts.empty(len(runs)), damage, remarks
    run, (tags, tag) = run_of_file[found.file], _renamed(found, runs, run_of_file)
    of_run = found.file - np.searchsorted(run_of_file, run)
    beside = np.array([path.parent.name == EVALUATOR[:-1] for path in paths], bool)[found.file]
    key = run * len(tags) + tag
    narrow = key.astype(np.uint16) if len(runs) * len(tags) < 1 << 16 else key  # the sort is by radix then
    order = np.argsort(narrow, kind="stable")
    key, step = key[order], found.step[order]
    again = (key[1:] == key[:-1]) & (step[1:] <= step[:-1])
    doubtful = set(np.unique(key[1:][again] // len(tags)).tolist())
    doubtful.update(np.flatnonzero(np.bincount(run_of_file) > 1).tolist())
    if doubtful:
        edges = np.searchsorted(key, np.arange(len(runs) + 1) * len(tags))
        pieces = [order[edges[k] : edges[k + 1]] for k in range(len(runs))]
        for k in doubtful:
            remarks[k] += _without_steps(pieces[k], found, tags, tag)
            writer, own = _writers(found, paths, run_of_file == k)
            pieces[k], at_once = _last_of_each(pieces[k], found, tag, writer, own, beside)
            remarks[k] += [
                f"{tags[code]}: {count} values of the same step by two writers at once, of which the later one counts"
                for code, count in at_once
            ]
        order = np.concatenate(pieces)
    others = np.array([not ATTEMPT.search(path.name) and path.parent.name != EVALUATOR[:-1] for path in paths])
    for k in np.unique(run_of_file[others]).tolist():
        remarks[k] += _unread(tags, tag[others[found.file] & (run == k)])
    rows = np.stack([run[order], tag[order], of_run[order]])
    begins = np.concatenate([[0], np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1])
    spans = np.column_stack([rows[:, begins].T, np.diff(begins, append=len(order))])
    columns = (column[order] for column in (found.step, found.wall_time, found.value))
    return parts.Part(len(runs), tuple(tags), spans, *columns), damage, remarks


def _writers(found: events.Scalars, paths: Sequence[Path], of_run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each file the number of its writer within the run (``writers``); for each writer, whether it is an attempt.

    of_run: a mask of the run's files.
    """
    files = np.flatnonzero(of_run)
    ended = np.full(len(paths), -np.inf)
    np.maximum.at(ended, found.file, found.wall_time)
    number = np.zeros(len(paths), np.int64)
    names = [paths[file].name for file in files.tolist()]
    number[files] = writers(names, found.begun[files], ended[files])
    own = np.zeros(number.max() + 1, bool)
    np.logical_or.at(own, number[files], [ATTEMPT.search(name) is not None for name in names])
    return number, own


def _passed_over(found: events.Scalars, of_run: np.ndarray) -> list[str]:
    """The sentence on a run's values that are no scalars, if any."""
    tags = {tag for file in np.flatnonzero(of_run).tolist() for tag in found.passed_over.get(file, ())}
    if not tags:
        return []
    return [f"{_some(tags)}: no scalars (pictures, texts, tensors), so nothing is drawn of them"]


def _unread(tags: Sequence[str], logged: np.ndarray) -> list[str]:
    """A sentence that names the logged tags (codes) which nothing reads; none if all are read."""
    found = {tag for tag in map(tags.__getitem__, set(logged.tolist())) if not READ.fullmatch(tag)}
    return [f"no figure or table reads {_some(found)}"] if found else []


def _some(tags: Set[str]) -> str:
    return ", ".join(sorted(tags)[:3]) + (f" and {len(tags) - 3} more" if len(tags) > 3 else "")


def _without_steps(rows: np.ndarray, found: events.Scalars, tags: Sequence[str], tag: np.ndarray) -> list[str]:
    """Sentences on the tags of a run of which a file holds several values, all at step 0: they were given no step."""
    sentences = []
    for code in np.unique(tag[rows]).tolist():
        own = rows[tag[rows] == code]
        if len(own) > len(np.unique(found.file[own])) and not found.step[own].any():
            sentences.append(f"{tags[code]}: {len(own)} values without a step, of which the last one counts")
    return sentences


def _renamed(found: events.Scalars, runs: Sequence[Files], run_of_file: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The tags under our names, sorted, and the tag of each row."""
    known = sorted({*found.tags, *(run.names[tag] for run in runs for tag in found.tags if tag in run.names)})
    place = {tag: code for code, tag in enumerate(known)}
    table = np.array([[place[run.names.get(tag, tag)] for tag in found.tags] for run in runs], np.int64)
    return known, table[run_of_file[found.file], found.tag]


def _last_of_each(
    rows: np.ndarray,
    found: events.Scalars,
    tag: np.ndarray,
    writer: np.ndarray,
    own: np.ndarray,
    beside: np.ndarray,
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The rows of a run by tag and step, each once: the last row written by the last file that counts there.

    writer: of each file (``writers``).  own: of each writer, whether it is an attempt of ours.  Files that were written
    at the same time do not give way to one another, and of their rows the one with the later wall time counts; returned
    with the rows is how many there were, by tag.

    The rows of an evaluator (``beside``) belong to no attempt: it neither gives way to later files nor makes earlier
    ones give way, but a row that the run logged itself has the last word.
    """
    logged = rows[~beside[rows]]
    stay = merged(found.step[logged], writer[found.file[logged]], tag[logged], own)
    rows = np.concatenate([rows[beside[rows]], logged[stay]])
    of = writer[found.file[rows]]
    several = np.isin(writer, np.flatnonzero(np.bincount(writer[np.unique(found.file[rows])]) > 1))[found.file[rows]]
    when = np.where(several & ~beside[rows], found.wall_time[rows], 0.0)
    rows = rows[np.lexsort((found.record[rows], when, of, ~beside[rows], found.step[rows], tag[rows]))]
    again = (tag[rows[1:]] == tag[rows[:-1]]) & (found.step[rows[1:]] == found.step[rows[:-1]])
    pair = found.file[rows[1:]], found.file[rows[:-1]]
    at_once = (
        again & (pair[0] != pair[1]) & (writer[pair[0]] == writer[pair[1]]) & ~beside[rows[1:]] & ~beside[rows[:-1]]
    )
    codes, counts = np.unique(tag[rows[1:][at_once]], return_counts=True)
    return rows[np.append(~again, True)[: len(rows)]], list(zip(codes.tolist(), counts.tolist(), strict=True))


# --- many runs ----------------------------------------------------------------------------------------------------


def _portions(runs: Sequence[Files]) -> list[list[int]]:
    portions: list[list[int]] = []
    size = _PORTION_BYTES
    for index, run in enumerate(runs):
        if size >= _PORTION_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(index)
        size += run.num_bytes
    return portions


def is_large(runs: Sequence[Files]) -> bool:
    """Whether these runs are large enough to be read through files, with several processes."""
    return sum(run.num_bytes for run in runs) > _ALONE_BYTES


def read_all(
    runs: Sequence[Files], folder: Path | None = None, meanwhile: Callable[[], None] = lambda: None
) -> list[Read]:
    """All these runs, read; with a folder to work in, by as many processes as cores, with the rows in files there.

    ``meanwhile`` is called once, while the others are at work.
    """
    portions = _portions(runs)
    if folder is None:
        meanwhile()
        results = [read_runs([runs[index] for index in portion]) for portion in portions]
    else:
        results = _shared_out([[runs[index] for index in portion] for portion in portions], folder, meanwhile)
    found = []
    for portion, (part, damage, remarks) in zip(portions, results, strict=True):
        found += [Read(part, number, damage[number], remarks[number]) for number in range(len(portion))]
    return found


def _shared_out(portions: list[list[Files]], folder: Path, meanwhile: Callable[[], None]) -> Iterator[Runs]:
    (folder / "portions.json").write_text(json.dumps(portions))
    helpers = [_start(folder) for _ in range(min(num_cores(), _MOST_PROCESSES, len(portions)) - 1)]
    try:
        meanwhile()
        with suppress(OSError):  # no room for more files: what is not there is read below, into memory
            _work(portions, folder)
        for helper in helpers:
            if helper is not None:
                helper.wait()
    finally:
        for helper in helpers:
            if helper is not None:
                helper.kill()
                helper.wait()
    for number, portion in enumerate(portions):
        part = parts.opened(folder, str(number), verify=False)
        if part is None:
            yield read_runs(portion)
        else:
            damage, remarks = json.loads((folder / f"{number}.told").read_text())
            yield part, [[(name, what) for name, what in of_run] for of_run in damage], remarks


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(folder: Path) -> subprocess.Popen[bytes] | None:
    """Another process that works on the same portions; None where none can be started."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "analysis.logs.reading", str(folder)]
    silent = subprocess.DEVNULL
    # glibc: keep what was freed, instead of faulting the same pages in for each portion
    env = {**os.environ, "MALLOC_TOP_PAD_": str(64 << 20), "PYTHONPATH": path}
    with suppress(OSError):
        return subprocess.Popen(command, env=env, stdin=silent, stdout=silent, stderr=silent)
    return None


def _work(portions: Sequence[Sequence[Files]], folder: Path) -> None:
    """Read portions that nobody has claimed, until there are none."""
    for number, portion in enumerate(portions):
        try:
            (folder / f"{number}.claimed").touch(exist_ok=False)
        except FileExistsError:
            continue
        part, *told = read_runs(portion)
        (folder / f"{number}.told").write_text(json.dumps(told))
        parts.write(folder, str(number), [(part, run) for run in range(part.num_runs)])


def main(folder: Path) -> None:
    """Help another process that works in this folder."""
    portions = json.loads((folder / "portions.json").read_text())
    _work([[Files(*run) for run in portion] for portion in portions], folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
