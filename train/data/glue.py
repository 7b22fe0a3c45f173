"""The tasks of GLUE.

Wang and others, "GLUE: a multi-task benchmark and analysis platform for natural language understanding", 2018.  The
files of its archive are read as they are: tab-separated, quotes being characters like others, a header in all but CoLA.
dev is the test split, as the labels of the true one are not given out; of MNLI it is dev_matched.  QQP's own files hold
a few rows that are cut short, which are left out as everyone does.  MRPC is read from train.tsv and dev.tsv, or from
Microsoft's msr_paraphrase_train.txt and GLUE's dev_ids.tsv, which says which of its pairs are dev.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from settings.text import TASKS, Task

from . import objective
from .data_files import damaged, first_existing, missing
from .sentences import Examples, SentenceSource

HIGHEST_SCORE = 5.0
CUT_SHORT = 1e-3  # share of QQP's rows that may be: its training file has 3 of 363,849
PARAPHRASES, DEV_IDS = "msr_paraphrase_train.txt", "dev_ids.tsv"
Row = tuple[int, dict[str, str]]  # number of its line, from 1, and its fields by column


class GlueTask(SentenceSource):
    """A task of GLUE, ``data.task``; an error on a damaged file names the line."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.task = TASKS[self.settings["task"]]
        self.num_classes, self.pairs = self.task.num_classes, len(self.task.texts) == 2
        self.objective = (objective.classes if self.task.labels else objective.numbers)(self.task.scores)

    def sizes(self) -> tuple[int, int]:
        return self.task.num_train, self.task.num_dev

    def texts(self) -> tuple[Examples, Examples]:
        task, folder = self.task, self._folder()
        train, dev = folder / "train.tsv", folder / task.dev
        if train.exists() and dev.exists():
            splits = rows(train, task), rows(dev, task)
        elif task is TASKS["mrpc"] and (folder / PARAPHRASES).exists():
            train = dev = folder / PARAPHRASES
            splits = _paraphrases(folder, task)
        else:
            raise self._missing(dev if train.exists() else train)
        found = examples(train, splits[0], task), examples(dev, splits[1], task)
        self.tell_other_sizes((len(found[0][0]), len(found[1][0])), self.sizes())
        return found

    def _folder(self) -> Path:
        folders = [self.data_dir / home / self.task.folder for home in self.record.places]
        found = first_existing(folders)
        if found is None:
            raise self._missing(folders[0] / "train.tsv")
        return found

    def _missing(self, path: Path) -> FileNotFoundError:
        task, other = self.task, self.task.dev if path.name == "train.tsv" else "train.tsv"
        what = f"{path}, with {other} beside it, as in GLUE's own archive"
        if task is TASKS["mrpc"]:
            what += f" (or {PARAPHRASES} and {DEV_IDS})"
        folder = f"the folder that holds glue/{task.folder}; nothing is downloaded here"
        remedy = f"set data_dir (now {self.data_dir}) to {folder}"
        return missing(f"GLUE's {self.settings['task']}", what, remedy)


# --- files --------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    if path.is_dir():
        raise damaged(path, "a file", "a folder")
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")  # Microsoft's own files begin with a mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise damaged(path, "text in UTF-8", f"byte {content[error.start]:#x} in line {line}") from error


def check_columns(path: Path, columns: Collection[str], needed: Iterable[str]) -> None:
    """Raise ValueError where the first line of a file lacks a column."""
    for name in needed:
        if name not in columns:
            found = f"the columns {', '.join(map(repr, columns))}"
            raise damaged(path, f"the column {name!r} in its first line", found)


def rows(path: Path, task: Task) -> Iterator[Row]:
    """The rows of a file; ValueError, with its line, for one that lacks fields."""
    lines = [line.removesuffix("\r") for line in _text(path).rstrip("\r\n").split("\n")]
    columns = task.columns
    if not columns:
        columns = tuple(lines[0].split("\t"))
        check_columns(path, columns, (*task.texts, task.label))
        twice = [name for name in (*task.texts, task.label) if columns.count(name) > 1]
        if twice:
            times = f"it {columns.count(twice[0])} times"
            raise damaged(path, f"the column {twice[0]!r} once in its first line", times)
    first = 1 if task.columns else 2
    allowed = CUT_SHORT * len(lines) if task is TASKS["qqp"] else 0
    for number, line in enumerate(lines[first - 1 :], start=first):
        fields = line.split("\t")
        if len(fields) < len(columns):
            allowed -= 1
            if allowed < 0:
                raise damaged(path, f"{len(columns)} fields in each line", f"{len(fields)} in line {number}")
            continue
        yield number, dict(zip(columns, fields, strict=False))  # a stray tab behind the last one is nobody's


def examples(path: Path, found: Iterable[Row], task: Task) -> Examples:
    """The texts and labels of rows; ValueError, with its line, for a label that is none, or for no rows."""
    texts, labels = [], []
    for number, row in found:
        texts.append(tuple(row[name] for name in task.texts))
        labels.append(_label(path, number, row[task.label], task))
    if not texts:
        raise damaged(path, "at least one row", "none")
    return texts, labels


def _label(path: Path, number: int, word: str, task: Task) -> float:
    found = f"{word!r} in line {number}"
    if task.labels:
        if word not in task.labels:
            raise damaged(path, f"{' or '.join(task.labels)} in the column {task.label!r}", found)
        return task.labels.index(word)
    try:
        score = float(word)
    except ValueError:
        score = math.nan
    if not 0 <= score <= HIGHEST_SCORE:
        raise damaged(path, f"a score from 0 to {HIGHEST_SCORE:g} in the column {task.label!r}", found)
    return score


def _paraphrases(folder: Path, task: Task) -> tuple[list[Row], list[Row]]:
    """Microsoft's training pairs, in two splits: those that GLUE took for dev are apart."""
    path, ids = folder / PARAPHRASES, folder / DEV_IDS
    if not ids.exists():
        remedy = f"it lies in GLUE's own archive; or give train.tsv and dev.tsv in {folder}"
        raise missing("GLUE's list of MRPC's dev pairs", str(ids), remedy)
    taken = {tuple(line.split("\t")[:2]) for line in _text(ids).replace("\r", "").split("\n") if line}
    found = list(rows(path, task))
    if found:
        check_columns(path, found[0][1], ("#1 ID", "#2 ID"))
    is_dev = [(row["#1 ID"], row["#2 ID"]) in taken for _, row in found]
    if len(set(is_dev)) == 1:
        found_ids = "all of them" if is_dev[0] else "none of them"
        raise damaged(ids, f"the two numbers of some pairs of {path.name}, not of all", found_ids)
    train, test = ([row for row, dev in zip(found, is_dev, strict=True) if dev == of_dev] for of_dev in (False, True))
    return train, test
