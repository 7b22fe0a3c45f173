"""The submission of chunks, and the search for the result of one whose answer was lost; one process at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from files import plain
from grid.engine.slurm import scheduler
from grid.engine.slurm.scheduler_cache import Unreachable
from grid.engine.states.ledger import ASKED, NEVER_REACHED, REFUSED, SUBMITTED, WRITTEN, Chunk, Submission, folder_of


class Busy(ValueError):
    """Another process is submitting, retrying, cancelling or pruning in this folder of runs."""


@contextlib.contextmanager
def only_one(root: Path, folder: str) -> Iterator[None]:
    """Hold the folder's lock, also against other machines that share the file system.

    ``Busy`` where another has it.
    """
    place = folder_of(root, folder)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Busy(
                f"{holder} is submitting, retrying, cancelling or pruning runs of {folder} right now: wait for it, "
                f"then look again"
            ) from error
        except OSError as error:
            raise OSError(
                error.errno,
                "this file system keeps no locks (mounted without flock?), and without one two terminals could submit "
                "the same runs",
                str(place / "lock"),
            ) from error
        os.set_inheritable(file.fileno(), True)  # sbatch inherits it: see slurm.submit
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def settle(submission: Submission, root: Path, find: Callable[[str, float], str | None]) -> Submission:
    """Find out the result of the sbatch calls without an answer.

    The first element of an array leaves the array's id in ``<chunk>.job``; before that, SLURM knows it by name:
    ``find(job name, since)`` is its id, or None where there is no such job.  A controller that is too busy to answer
    may take a job some time after it was asked, so a None counts only ``SETTLE_S`` later: ValueError before that.
    """
    for chunk in submission.chunks:
        if chunk.state == ASKED:
            left = submission.place(root) / f"{chunk.name}.job"
            job_id = _job_left(left) or find(submission.job_name(chunk), chunk.at)
            wait_s = chunk.at + SETTLE_S - time.time()
            if job_id:
                chunk = dataclasses.replace(chunk, state=SUBMITTED, job_id=job_id, error="")
            elif chunk.error and not NEVER_REACHED.search(chunk.error) and wait_s > 0:
                raise ValueError(
                    f"sbatch gave no answer {SETTLE_S - wait_s:.0f} s ago ({chunk.error}), and SLURM may still take "
                    f"{chunk.name} of {submission.id}: the same command can tell in {wait_s:.0f} s"
                )
            else:
                chunk = dataclasses.replace(chunk, state=WRITTEN, at=0.0, error="")
            submission = submission.with_chunk(chunk)
            submission.save(root)
    return submission


def _job_left(path: Path) -> str:
    """The job id that an array's first element wrote down; empty where it is none."""
    try:
        found = plain.read_bytes(path).strip()
    except FileNotFoundError:
        return ""
    return found.decode() if re.fullmatch(rb"[0-9]{1,18}", found) else ""


def hand_over(
    submission: Submission,
    chunk: Chunk,
    root: Path,
    write: Callable[[Submission, Chunk], Path],
    submit: Callable[[Path], str],
    note: Callable[[Chunk], None],
) -> Submission:
    """Submit one chunk of a submission, whose sbatch file ``write`` makes.

    Every step is on disk before the next: whatever interrupts this, the same call goes on where it was, after
    ``settle``.  What ``submit`` raises ends it: ValueError (SLURM refused), ``Unreachable`` or anything else, after
    which the chunk stays ``asked``.
    """
    assert chunk.state != ASKED, "settle first"
    path = write(submission, chunk)
    chunk = dataclasses.replace(chunk, state=ASKED, at=time.time(), cluster=scheduler.cluster_name(), error="")
    submission = submission.with_chunk(chunk)
    submission.save(root)
    try:
        job_id = submit(path)
    except ValueError as error:
        submission.with_chunk(dataclasses.replace(chunk, state=REFUSED, error=str(error))).save(root)
        raise
    except Unreachable as error:
        submission.with_chunk(dataclasses.replace(chunk, error=str(error))).save(root)
        raise
    chunk = dataclasses.replace(chunk, state=SUBMITTED, job_id=job_id)
    submission = submission.with_chunk(chunk)
    submission.save(root)
    note(chunk)
    return submission


SETTLE_S = 60.0  # a controller that did not answer may take the job so long after
