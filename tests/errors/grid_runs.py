"""Errors of job scripts, the copy of the code, records of runs and submissions, and what is cleared away."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from grid.engine.scripts import snapshot
from grid.engine.scripts.script import job_script
from grid.engine.states import chunk_submission, comparison, evidence, folder_lock, ledger, runs
from grid.engine.states.ledger import ASKED, SUBMITTED, Chunk, Submission
from grid.engine.submission import planning, pruning
from grid.engine.sweep import Sweep, point
from nuq.settings import plugins
from settings.resources import Resources
from tests.errors.rows import Row, row
from tests.grid.scripts.code_trees import code_tree

RUN = "runs/tiny/one"


def code(given: str, change: Callable[[Path], object], *, git: bool = False) -> Row:
    """A copy of a tree of code in which something was changed."""

    def make(folder: Path) -> None:
        tree = code_tree(folder / "code", git=git)
        change(tree)
        snapshot.snapshot(tree)

    return row("a copy of the code", given, make)


def _large(tree: Path) -> None:
    with (tree / "weights.pt").open("wb") as file:
        file.truncate(snapshot.LARGEST_UNTRACKED_BYTES + 1)


def _changes(folder: Path) -> None:
    (folder / "main.py").write_text("print(2)")
    (folder / "copy").mkdir()
    snapshot._copy(folder, {"main.py": "another mark"}, ["main.py"], folder / "copy")


def _git_fails(folder: Path) -> None:
    tree = code_tree(folder / "code", git=True)
    (folder / "git").write_text("#!/bin/sh\necho 'fatal: damaged index' >&2\nexit 128\n")
    (folder / "git").chmod(0o755)
    with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
        snapshot.snapshot(tree)


def _written_in_vain(folder: Path) -> None:
    tree = SimpleNamespace(marks={"main.py": "a mark"}, write=lambda names, place: None)
    with mock.patch("secrets.token_hex", lambda size: "0" * 8):
        snapshot._build(folder, folder / "jobs/code/0123456789ab", tree)  # pyright: ignore[reportArgumentType]


def _named_data(folder: Path) -> None:
    with mock.patch.object(snapshot, "own_path", lambda name: folder / "data"):
        snapshot._beside(SimpleNamespace(marks={}), folder, ["data"])  # pyright: ignore[reportArgumentType]


def _submission(chunk: Chunk) -> Submission:
    return Submission("tiny", "id", "mine.tiny", {"digest": ""}, 1, [chunk])


def record(given: str, **changes: Any) -> Row:
    """A damaged record of a submission: a chunk with other values."""

    def make(folder: Path) -> None:
        chunk = {"name": "c0", "resources": {}, "elements": [[RUN]], **changes}
        values = {"folder": "tiny", "id": "id", "title": "t", "code": {"digest": ""}, "parallel": 1, "chunks": [chunk]}
        (folder / "submission.json").write_text(json.dumps(values))
        ledger.read(folder / "submission.json")

    return row("jobs/sweeps/SWEEP/ID/submission.json", given, make)


def _cut_short(folder: Path) -> None:
    (folder / "submission.json").write_text('{"id": ')
    ledger.read(folder / "submission.json")


def plan_file(given: str, text: str) -> Row:
    def make(folder: Path) -> None:
        place = ledger.folder_of(folder, "tiny")
        place.mkdir(parents=True)
        (place / planning.PLAN).write_text(text)
        planning.reviewed(folder, "tiny")

    return row("jobs/sweeps/SWEEP/plan.json", given, make)


def _locked(folder: Path) -> None:
    with (
        mock.patch("os.getpid", lambda: 7),
        mock.patch("socket.gethostname", lambda: "here"),
        chunk_submission.only_one(folder, "tiny"),
        chunk_submission.only_one(folder, "tiny"),
    ):
        pass


def _no_locks(folder: Path) -> None:
    no_locks = mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    with mock.patch.object(fcntl, "flock", no_locks), chunk_submission.only_one(folder, "tiny"):
        pass


def _no_answer(folder: Path) -> None:
    chunk = Chunk("c0", {}, [[RUN]], state=ASKED, at=1000.0, error="no answer within 60 s")
    with mock.patch("time.time", lambda: 1010.0):
        chunk_submission.settle(_submission(chunk), folder, lambda name, since: None)


def _recalled(folder: Path) -> None:
    unreachable = SimpleNamespace(reachable=False, error="Unable to contact slurm controller")
    with (
        mock.patch.object(evidence.scheduler, "cancel"),
        mock.patch.object(evidence.scheduler, "ask", lambda ids, **how: unreachable),
    ):
        evidence.recall(["47_0"], "tiny", folder, None, only_waiting=True)


def _waits_for_a_failed_one() -> None:
    chunks = [
        Chunk("c0", {}, [[RUN]], state=SUBMITTED, job_id="47"),
        Chunk("c1", {}, [["runs/tiny/two"]], after=[("afterok", "c0")]),
    ]
    item = Submission("tiny", "id", "mine.tiny", {"digest": ""}, 1, chunks)
    states = {RUN: SimpleNamespace(word="failed")}
    planning.released(item, SimpleNamespace(states=states, others={}))  # pyright: ignore[reportArgumentType]


def _prune_beside_run(folder: Path) -> None:
    with folder_lock.shared(folder / "runs/tiny"), folder_lock.unshared(folder / "runs/tiny"):
        pass


def _run_beside_prune(folder: Path) -> None:
    with folder_lock.unshared(folder / "runs/tiny"), folder_lock.shared(folder / "runs/tiny"):
        pass


def signed(given: str, ask: Callable[[Sweep, Path], object], lines: str | bytes | None, **values: Any) -> Row:
    """A folder of runs whose list of sweeps holds these lines."""

    def make(folder: Path) -> None:
        made = Sweep([point(method="alq")], **{"grid": "mine", "run_name": "tiny", "file": "/a/mine.py", **values})
        place = folder / "runs" / (made.home if ask is not _moved_away else made.run_name)
        place.mkdir(parents=True)
        if lines is not None:
            (place / runs.SIGNED).write_bytes(lines if isinstance(lines, bytes) else lines.encode())
        (folder / "b.py").touch()
        ask(made, folder)

    return row("runs/SWEEP/.sweeps", given, make)


def _moved_away(sweep: Sweep, root: Path) -> None:
    runs.check_folder(sweep, root)


def diff(given: str, config: str | None, status: str | None = None, second: str = "runs/b") -> Row:
    """Two runs of which the first has these files."""

    def make(folder: Path) -> None:
        for name in ("runs/a", "runs/b"):
            (folder / name).mkdir(parents=True)
        for name, text in {
            "runs/a/config.yaml": config,
            "runs/a/status.json": status,
            "runs/b/config.yaml": "{}",
        }.items():
            if text is not None:
                (folder / name).write_text(text)
        comparison.compare(Path("runs/a"), Path(second))

    return row("grid_run.py diff", given, make)


def _missing(folder: Path) -> None:
    (folder / "runs/tiny").mkdir(parents=True)
    comparison.compare(folder / "runs/tini", folder / "runs/b")


def _plugins_told(folder: Path) -> None:
    (folder / RUN).mkdir(parents=True)
    (folder / RUN / "config.yaml").write_text("plugins: [not_here==1.2]")
    with pruning.plugins_told("tiny", folder):
        raise ValueError("unknown method 'mine'")


def _blamed() -> None:
    with pruning._blamed("the last plan of runs/tiny can no longer be made", "make the plan again"):
        plugins.load("not_here")


def _on_another_disk(folder: Path) -> None:
    (folder / RUN).mkdir(parents=True)
    with mock.patch.object(os, "rename", mock.Mock(side_effect=OSError(errno.EXDEV, "Invalid cross-device link"))):
        pruning._moved(folder / RUN, folder / "runs/.archive/tiny/one")


ROWS = [
    row(
        "a job script",
        "2 runs at a time, of two nodes each",
        lambda: job_script("t", [RUN], "/c", Resources(nodes=2, ranks=2), parallel=2),
    ),
    row("a copy of the code", "that is gone", lambda folder: snapshot.drift(folder, "0123456789abcdef")),
    row("a copy of the code", "a file that changes meanwhile", _changes),
    row("a copy of the code", "a plug-in in a folder called data", _named_data),
    row("a copy of the code", "a file that git did not write", _written_in_vain),
    code("a file of 20 MB that nobody named", _large),
    code("a name that git takes for its own", lambda tree: (tree / "git~1").write_text(""), git=True),
    row("a copy of the code", "that git cannot list", _git_fails),
    row("jobs/sweeps/SWEEP/ID/submission.json", "cut short", _cut_short),
    record("a run outside", elements=[["../other"]]),
    record("waits for none of the chunks", after=[["afterok", "c7"]]),
    record("waits in a way that is none", after=[["whenever", "c0"]]),
    record("submitted without a job", state="submitted"),
    plan_file("cut short", '{"id": '),
    plan_file("of a retry", '{"id": "i", "options": {"grid": "g", "run_name": "r", "retry": {}}, "essence": {}}'),
    row("grid_run.py submit", "beside another submit", _locked),
    row("grid_run.py submit", "on a file system without locks", _no_locks),
    row("grid_run.py submit", "soon after sbatch gave no answer", _no_answer),
    row("grid_run.py submit", "after the first of two chunks failed", _waits_for_a_failed_one),
    row("grid_run.py cancel", "of waiting scripts, without an answer", _recalled),
    row("grid_run.py prune", "beside run", _prune_beside_run),
    row("grid_run.py run", "beside prune", _run_beside_prune),
    row("grid_run.py prune", "of runs with a plug-in that is not imported", _plugins_told),
    row("grid_run.py prune", "after a plan that can no longer be made", _blamed),
    row("grid_run.py prune --archive", "to another file system", _on_another_disk),
    signed("missing", runs.check_signed, None),
    signed("without this sweep", runs.check_signed, "b.py: other\n"),
    signed("with a line of another form", runs.check_signed, "nothing\n"),
    signed("not readable", runs.check_signed, b"\xff"),
    signed("with another sweep", runs.check_folder, "b.py: tiny\n"),
    signed("in the folder as it was named before", _moved_away, "/a/mine.py: tiny\n"),
    row("grid_run.py diff", "no such folder", _missing),
    diff("the same folder twice", "{}", second="runs/a"),
    diff("a folder without a run", None),
    diff("a config.yaml cut short", "a: ["),
    diff("a config.yaml of another form", "- 3"),
    diff("a status.json cut short", "{}", '{"state": '),
]
