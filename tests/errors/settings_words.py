"""Errors of words: the command line of main.py, conditions of ``--where``, resources; and of files that it reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from files import plain, tables
from settings import command_line, conditions, fork_words, overrides, resolving
from settings.resources import Resources
from tests.errors.rows import Row, row

COLUMNS = {
    "method.name": ["alq", "qsgd"],
    "method.bits": [3, 4],
    "data.limit": [0, 0],
    "eval.limit": [1, 1],
    "optim.lr": [None, None],
}


def words(*given: str) -> Row:
    """Words of main.py that are no settings."""
    return row("main.py", " ".join(given), lambda: command_line.parse_overrides(given))


def checked(word: str) -> Row:
    """A word that is read, and is no setting's value."""
    return row("main.py", word, lambda: resolving.check_overrides([word]))


def option(*given: str) -> Row:
    def make() -> None:
        raise command_line.unknown_option(next(word for word in given if word.startswith("--")), given)

    return row("main.py --OPTION", " ".join(given), make)


def evaluate(given: str, **values: Any) -> Row:
    return row("main.py mode=evaluate", given, lambda: command_line.evaluation(values))


def _no_run(folder: Path) -> Mapping[str, Any]:
    raise ValueError(f"{folder}: holds no run")


def forked(*given: str) -> Row:
    return row("main.py fork=", " ".join(given), lambda: fork_words.named(given, _no_run))


def where(*given: str, columns: Mapping[str, list[Any]] = COLUMNS) -> Row:
    return row("--where", " ".join(given), lambda: conditions.chosen(given, list(columns), columns.__getitem__))


def resources(given: str, **values: Any) -> Row:
    return row(f"resources {[*values][-1]}", given, lambda: Resources().merged(values))


def read(kind: str, given: str, content: str | bytes) -> Row:
    """A file that holds something else than it should."""

    def make(folder: Path) -> None:
        path = folder / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        getattr(plain, f"read_{kind}")(path)

    return row(f"a file of {kind.upper()}", given, make)


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    plain.read_bytes(folder / "pipe")


def _without_pyarrow() -> None:
    with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
        tables.check_formats(["parquet"])


ROWS = [
    words("steps"),
    words("steps=[1"),
    words("+method.depth=3"),
    words("~method"),
    words("method@other=alq"),
    words("seed=1,2"),
    checked("=3"),
    checked("method=[alq,amq]"),
    checked("method=null"),
    checked("steps="),
    checked("steps=1e3"),
    words("data_dir=~/data"),
    words("run_dir=a(b"),
    row("main.py mode=", "'test'", lambda: command_line.split_mode(["mode=test"])),
    row("main.py mode=", "two", lambda: command_line.split_mode(["mode=train", "mode=evaluate"])),
    option("--method", "alq"),
    option("--methd=alq"),
    option("steps=3", "--batch-size", "4"),
    option("--lr=0.1"),
    option("--method.bits", "3", "--steps=2"),
    option("--frobnicate", "seed=1"),
    evaluate("no run"),
    evaluate("run=runs/main/one steps=3", run="runs/main/one", steps=3),
    forked("fork=runs/main/one", "fork=runs/main/two"),
    forked("fork=runs/main/one"),
    forked("fork=runs/main/one", "at=5", "fork.at=6"),
    forked("fork=runs/main/one", "at=5"),
    forked("fork=runs/main/one", "at=5", "run_dir=runs/main/own"),
    row("grid_run.py SETTING=VALUE", "a dict", lambda: overrides.to_override("data_dir", {})),
    # conditions
    where("method"),
    where("method=alq,"),
    where("method=topk"),
    where("method=ALQ"),
    where("limit=0"),
    where("lr=0.1", columns={"method.name": ["sgd"], "optim.lr": [None]}),
    where("ratio=0.1"),
    where("btis=3"),
    # resources
    resources("3", gpu=3),
    resources("'2h'", time="2h"),
    resources("'0:00'", time="0:00"),
    resources("'lots'", mem="lots"),
    resources("'18'", mem="18"),
    resources("90", time=90),
    resources("0", nodes=0),
    resources("1.5", cpus=1.5),
    resources("True", ranks=True),
    resources("-1", gpus=-1),
    resources("'1'", gpus="1"),
    resources("nan", gpus=float("nan")),
    resources("''", partition=""),
    resources("'--evil'", account="--evil"),
    resources("two lines", exclude="n1\n#SBATCH --nice"),
    resources("','", exclude=","),
    resources("'two words'", partition="two words"),
    resources("3, on two nodes", nodes=2, ranks=3),
    resources("1.5", gpus=1.5),
    resources("0.5, of two ranks", ranks=2, gpus=0.5),
    # files
    row("a file", "a FIFO", _fifo),
    row("a file", "larger than is read", lambda: plain.read_bytes(Path(__file__), 10)),
    row("a file", "larger than its size says", lambda: plain.read_bytes(Path("/proc/self/status"), 10)),
    read("text", "bytes that are no UTF-8", b"\xff"),
    read("json", "cut short", '{"a": '),
    read("json", "nested too deep", "[" * 100_000),
    read("json", "more lists in one another than are read", "[" * 200 + "]" * 200),
    read("json", "more values than are read", json.dumps([0] * (plain.MOST_VALUES + 1))),
    read("json", "2**70", str(2**70)),
    read("json", "half a character", '"\\ud800"'),
    read("yaml", "not closed", "a: ["),
    read("yaml", "nested too deep", "[" * 2000),
    read("yaml", "infinite", "a: .inf"),
    row("--format", "parquet, without pyarrow", _without_pyarrow),
]

INTERNAL = {"files/completion.py:answer 1": "unreachable: argcomplete ends the process"}
HELD = {"files/plain.py:read_bytes 2": "tests/analysis/test_odd_files.py::test_a_file_that_waits_for_more_is_not_read"}
