"""The record of what was handed to SLURM: whatever interrupts it, each array is submitted exactly once and no run is
forgotten.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.engine.states import chunk_submission, job_logs, ledger
from grid.engine.states.chunk_submission import Busy
from grid.engine.states.ledger import ASKED, REFUSED, SUBMITTED, WRITTEN, Chunk, Submission

NUM_CHUNKS = 3


def item(num_chunks: int = NUM_CHUNKS, plan_id: str = "20260101-000000-abcd") -> Submission:
    chunks = [
        Chunk(f"s0c{part}", {"mem": "1G"}, [[f"runs/x/r{part}{turn}" for turn in range(2)]], after=[])
        for part in range(num_chunks)
    ]
    return Submission("x", plan_id, "g.x", {"digest": "0" * 64, "path": ""}, 1, chunks)


class Killed(BaseException):
    """A kill as by SIGKILL: nothing that catches Exception sees it."""


class Queue:
    """A SLURM in memory: what was asked, what was taken, and who interrupts."""

    def __init__(self, events: dict[int, str]) -> None:
        self.events = events  # number of a step -> what happens then
        self.step = 0
        self.taken: list[str] = []  # names of jobs, in order
        self.written: list[str] = []

    def _next(self) -> str:
        self.step += 1
        return self.events.get(self.step, "")

    def write(self, now: Submission, chunk: Chunk) -> Path:
        """The sbatch file of a chunk."""
        if self._next() == "killed":
            raise Killed
        for _, name in chunk.after:
            assert now.chunk(name).job_id, "what it waits for has an id by now"
        self.written.append(chunk.name)
        return Path(now.job_name(chunk))

    def submit(self, path: Path) -> str:
        """sbatch."""
        event = self._next()
        if event == "killed":
            raise Killed
        if event == "refused":
            raise ValueError("sbatch refused: AssocMaxSubmitJobLimit")
        if event == "unheard":
            raise ConnectionError("Unable to contact slurm controller")
        self.taken.append(path.name)
        if event == "lost":
            raise ConnectionError("Socket timed out")
        if self._next() == "killed":  # its answer arrives, and nobody is there to write it down
            raise Killed
        return str(len(self.taken))

    def find(self, name: str, since: float) -> str | None:
        """The job of this name."""
        assert since > 0
        return str(self.taken.index(name) + 1) if name in self.taken else None

    def save(self, real: Callable[[Submission, Path], None]) -> Callable[[Submission, Path], None]:
        """The record's own saving, with a kill before or after it."""

        def save(now: Submission, root: Path) -> None:
            if self._next() == "killed":
                raise Killed
            real(now, root)
            if self._next() == "killed":
                raise Killed

        return save


@pytest.fixture(scope="module")
def saving() -> Iterator[Callable[[Submission, Path], None]]:
    """The real ``save``; put back afterwards."""
    real = Submission.save
    yield real
    Submission.save = real  # type: ignore[method-assign]


def hand_over(
    now: Submission,
    root: Path,
    write: Callable[[Submission, Chunk], Path],
    submit: Callable[[Path], str],
    note: Callable[[Chunk], None] = lambda chunk: None,
) -> Submission:
    """Submit every chunk that is not yet submitted, in order."""
    for chunk in now.left:
        now = chunk_submission.hand_over(now, chunk, root, write, submit, note)
    return now


def finish(queue: Queue, root: Path, tries: int) -> tuple[Submission, int]:
    """``submit`` again and again until all is handed over; how often it took."""
    for number in range(1, tries + 1):
        try:
            known = ledger.read_all(root, "x")
            now = chunk_submission.settle(known[0], root, queue.find) if known else item()
            if not known:
                now.save(root)
            now = hand_over(now, root, queue.write, queue.submit)
        except (Killed, ValueError, ConnectionError):
            continue
        return now, number
    raise AssertionError("it never ended")


@settings(max_examples=60)
@given(
    events=st.dictionaries(st.integers(1, 40), st.sampled_from(["killed", "refused", "unheard", "lost"]), max_size=12),
    after=st.booleans(),
)
def test_each_array_once_whatever_interrupts(
    tmp_path_factory: pytest.TempPathFactory,
    saving: Callable[[Submission, Path], None],
    events: dict[int, str],
    after: bool,
) -> None:
    root = tmp_path_factory.mktemp("root")
    queue = Queue(events)
    Submission.save = queue.save(saving)  # type: ignore[method-assign,assignment]
    try:
        now, _ = finish(queue, root, len(events) + 1)
    finally:
        Submission.save = saving  # type: ignore[method-assign]
    names = [item().job_name(chunk) for chunk in item().chunks]
    assert queue.taken == names, "each once, and in order"
    assert [chunk.job_id for chunk in now.chunks] == ["1", "2", "3"]
    (kept,) = ledger.read_all(root, "x")
    assert [chunk.state for chunk in kept.chunks] == [SUBMITTED] * NUM_CHUNKS
    assert kept.is_complete
    claims = ledger.claims([kept], root)
    assert {run: claim.element for run, claim in claims.items()} == {
        f"runs/x/r{part}{turn}": f"{part + 1}_0" for part in range(NUM_CHUNKS) for turn in range(2)
    }
    assert [claim.first for claim in claims.values()] == [True, False] * NUM_CHUNKS


@pytest.mark.parametrize("step", range(1, 24))
def test_a_kill_at_every_single_step(tmp_path: Path, saving: Callable[[Submission, Path], None], step: int) -> None:
    queue = Queue({step: "killed"})
    Submission.save = queue.save(saving)  # type: ignore[method-assign,assignment]
    try:
        _, tries = finish(queue, tmp_path, 2)
    finally:
        Submission.save = saving  # type: ignore[method-assign]
    assert len(queue.taken) == len(set(queue.taken)) == NUM_CHUNKS
    assert tries == 2, "steps are counted rightly: every one of them was reached"


@pytest.mark.parametrize(
    ("event", "state", "error"),
    [("refused", REFUSED, ValueError), ("lost", ASKED, ConnectionError), ("unheard", ASKED, ConnectionError)],
)
def test_what_the_record_says_after_a_fault(tmp_path: Path, event: str, state: str, error: type[Exception]) -> None:
    queue = Queue({})
    calls = iter(["", event])
    taken: list[Chunk] = []

    def submit(path: Path) -> str:
        queue.events[queue.step + 1] = next(calls)
        return queue.submit(path)

    with pytest.raises(error):
        hand_over(item(), tmp_path, queue.write, submit, taken.append)
    assert [chunk.name for chunk in taken] == ["s0c0"]
    (kept,) = ledger.read_all(tmp_path, "x")
    assert [chunk.state for chunk in kept.chunks] == [SUBMITTED, state, WRITTEN]
    assert not kept.is_complete
    claims = ledger.claims([kept], tmp_path)
    assert claims["runs/x/r00"].element == "1_0"
    assert ("runs/x/r10" in claims) == (state == ASKED), "what may be in the queue is claimed, what was refused is not"
    assert "runs/x/r20" not in claims
    if state == ASKED:
        assert claims["runs/x/r10"].element is None
        settled = chunk_submission.settle(kept, tmp_path, queue.find)
        assert settled.chunks[1].state == (SUBMITTED if event == "lost" else WRITTEN)
        assert ledger.read_all(tmp_path, "x") == [settled]
    else:
        assert "AssocMaxSubmitJobLimit" in kept.chunks[1].error


def test_a_job_tells_its_id_where_slurm_has_forgotten_it(tmp_path: Path) -> None:
    now = item().with_chunk(dataclasses.replace(item().chunks[0], state=ASKED, at=5.0))
    now.save(tmp_path)
    (now.place(tmp_path) / "s0c0.job").write_text("77\n")
    settled = chunk_submission.settle(now, tmp_path, lambda name, since: None)
    assert (settled.chunks[0].state, settled.chunks[0].job_id, settled.chunks[0].at) == (SUBMITTED, "77", 5.0)


def test_a_controller_that_is_down_settles_nothing(tmp_path: Path) -> None:
    now = item().with_chunk(dataclasses.replace(item().chunks[0], state=ASKED, at=5.0))
    now.save(tmp_path)

    def down(name: str, since: float) -> str | None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        chunk_submission.settle(now, tmp_path, down)
    assert ledger.read_all(tmp_path, "x") == [now]


def test_the_latest_submission_has_the_claim(tmp_path: Path) -> None:
    done = [dataclasses.replace(chunk, state=SUBMITTED, job_id="8", at=10.0) for chunk in item(1).chunks]
    first = dataclasses.replace(item(1), chunks=done)
    second = dataclasses.replace(
        first, id="20260102-000000-abcd", chunks=[dataclasses.replace(done[0], job_id="9", at=20.0)]
    )
    (first.place(tmp_path)).mkdir(parents=True)
    (first.place(tmp_path) / "s0c0_0.ended").write_text("1 runs/x/r00\n")
    for order in ([first, second], [second, first]):
        found = ledger.claims(order, tmp_path)["runs/x/r00"]
        assert (found.element, found.ended_code) == ("9_0", None)
        assert job_logs.log_of(order, "runs/x/r00", tmp_path) == second.place(tmp_path) / "logs" / "s0c0_9_0.log"
    assert ledger.claims([first], tmp_path)["runs/x/r00"].ended_code == 1
    assert job_logs.log_of([first], "runs/x/none", tmp_path) is None


def test_names_of_submissions_are_their_own_and_in_order() -> None:
    names = [ledger.new_id(1e9 + number / 100) for number in range(500)]
    assert names == sorted(names)
    assert len({ledger.new_id(1e9) for _ in range(100)}) == 100


# --- records ------------------------------------------------------------------------------------------------------


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    now = item()
    now = now.with_chunk(dataclasses.replace(now.chunks[2], cap=4, state=REFUSED, error="no", at=3.5))
    now.save(tmp_path)
    assert ledger.read_all(tmp_path, "x") == [now]
    assert ledger.read_all(tmp_path, "y") == []
    assert now.job_name(now.chunks[1]) == "x-20260101-000000-abcd-s0c1"


OBJECTS = ["{}", '{"version": 1}', '{"version": 1, "chunks": 3}', '{"version": 1, "chunks": [{"name": "a"}]}']
BAD = ["", "{", "[]", "7", "null", *OBJECTS]


@pytest.mark.parametrize("text", BAD)
def test_a_damaged_record_is_one_sentence(tmp_path: Path, text: str) -> None:
    now = item()
    now.save(tmp_path)
    path = now.place(tmp_path) / ledger.RECORD
    path.write_text(text)
    with pytest.raises(ValueError, match=r"is damaged .*put it back") as error:
        ledger.read_all(tmp_path, "x")
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_no_other_words_than_those_that_are_known(tmp_path: Path) -> None:
    item().save(tmp_path)
    path = item().place(tmp_path) / ledger.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "green"}))
    with pytest.raises(ValueError, match="colour"):
        ledger.read(path)


# --- the lock -----------------------------------------------------------------------------------------------------


def test_one_at_a_time(tmp_path: Path) -> None:
    with chunk_submission.only_one(tmp_path, "x"):
        with (
            pytest.raises(Busy, match=f"process {os.getpid()} on .* right now"),
            chunk_submission.only_one(tmp_path, "x"),
        ):
            pass
        with chunk_submission.only_one(tmp_path, "y"):
            pass
    with chunk_submission.only_one(tmp_path, "x"):
        pass


def test_the_lock_ends_with_an_error_and_with_its_process(tmp_path: Path) -> None:
    with pytest.raises(KeyError), chunk_submission.only_one(tmp_path, "x"):
        raise KeyError
    program = f"""import os, pathlib, signal
from grid.engine.states import chunk_submission
with chunk_submission.only_one(pathlib.Path({str(tmp_path)!r}), "x"):
    os.kill(os.getpid(), signal.SIGKILL)"""
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False).returncode == -9
    assert (tmp_path / "jobs/sweeps/x/lock").read_text().startswith("process ")
    with chunk_submission.only_one(tmp_path, "x"):
        pass


def test_who_holds_a_lock_without_a_name(tmp_path: Path) -> None:
    place = ledger.folder_of(tmp_path, "x")
    place.mkdir(parents=True)
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another process is submitting"), chunk_submission.only_one(tmp_path, "x"):
            pass
