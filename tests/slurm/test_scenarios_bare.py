"""A cluster without accounting, with a controller that forgets ended jobs at once: what the files prove is all there
is.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.checkout import queued, stand_in
from tests.slurm.cluster import Slurm


@pytest.fixture(scope="module")
def bare() -> Iterator[Slurm]:
    """A cluster of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        cluster.started(Path(folder), accounting=False, min_job_age_s=5) as running,
    ):
        yield running


def test_states_come_from_files_alone(bare: Slurm, tmp_path: Path) -> None:
    waiting = dict.fromkeys((3, 4, 5, 6), "wait")
    checkout = stand_in(tmp_path / "checkout", bare, 6, {2: "fail", **waiting})
    job = checkout.submit("--max_running", "5")
    # One and two end; the next ones wait, and six is the fifth of those that may run at once.
    checkout.wait_for_starts(dict.fromkeys(range(1, 7), 1))
    bare.wait_until(lambda: set(queued(bare)) == {f"{job}_{index}" for index in (2, 3, 4, 5)})
    bare.wait_until(lambda: not forgotten_left(bare, job, (0, 1)))
    words = {1: "done", 2: "failed", 3: "running", 4: "running", 5: "running", 6: "running"}
    assert checkout.states() == words
    done = checkout.shell("sacct", "-j", job)
    assert done.code != 0 and "disabled" in done.out

    # Three checkpoints at scancel; four dies with all its scripts and tells nobody; five ends well; six goes on.
    bare.run("scancel", f"{job}_2")
    os.killpg(os.getpgid(checkout.told(4)["pid"]), signal.SIGKILL)
    checkout.go(5)
    bare.wait_until(lambda: set(queued(bare)) == {f"{job}_5"})
    bare.wait_until(lambda: not forgotten_left(bare, job, range(5)))
    words |= {3: "checkpointed", 4: "lost", 5: "done"}
    assert checkout.states() == words
    told = checkout.status()
    assert "2 done, 1 failed" in told
    checkout.go(6)
    bare.wait_until(lambda: not queued(bare))
    bare.wait_until(lambda: not forgotten_left(bare, job, range(6)))
    words |= {6: "done"}
    assert checkout.states() == words

    # What stopped goes on, what failed waits for a person, what is done stays.
    checkout.go()
    again = checkout.submit()
    assert set(queued(bare, again)) == {f"{again}_0", f"{again}_1"}
    checkout.wait_until_over()
    assert checkout.states() == {**words, 3: "done", 4: "done"}
    assert checkout.starts() == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1, 6: 1}


def forgotten_left(slurm: Slurm, job: str, indices: range | tuple[int, ...]) -> set[str]:
    """The elements among these that the controller still knows."""
    return {f"{job}_{index}" for index in indices} & set(queued(slurm, job))
