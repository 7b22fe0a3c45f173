"""Limits that move, nodes that are drained, ids that begin anew, and elements that are stopped: on a cluster of their
own.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.checkout import SITE, queued, stand_in
from tests.slurm.cluster import Slurm

LATER_H = 0.1  # what SLURM has ended may still speak for two minutes, as far as anybody can tell; then all is certain


@pytest.fixture(scope="module")
def own() -> Iterator[Slurm]:
    """A cluster whose controller may be restarted and lose its state."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        cluster.started(Path(folder)) as running,
    ):
        yield running


@contextlib.contextmanager
def drained(own: Slurm) -> Iterator[None]:
    """Drain every node, so that nothing can start, for no longer than this lasts, however it is left."""
    own.run("scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=repair")
    try:
        yield
    finally:
        own.run("scontrol", "update", "NodeName=n1,n2", "State=RESUME")


def test_waves_on_nodes_that_are_drained(own: Slurm, tmp_path: Path) -> None:
    seeds = range(1, 13)
    checkout = stand_in(tmp_path / "checkout", own, len(seeds), site=SITE)
    with drained(own):
        assert "n1 is drained, n2 is drained, for which it would wait" in checkout.run("plan")
        assert (
            "Requested node configuration is not available"
            in checkout.call("plan", "sweeps.py", "some", "--cpus", "9").out
        )
    # It takes SLURM a moment until it may start something there.
    own.wait_until(lambda: checkout.call("plan", "sweeps.py", "some").code == 0, every_s=1)
    assert "note: " not in checkout.run("plan")

    # The limit of the plan is a day old: sbatch is told to wait, and the room is found by halves, 6 + 3 of 9.
    own.restart_controller(MaxJobCount=10)
    with drained(own):
        done = checkout.call("submit", "sweeps.py", "some")
        assert done.code == 75, done.out
        assert "3 of 12 scripts wait for room (SLURM takes no more jobs now): run the same command again" in done.out
        assert "submitted job" in done.out and "no answer" not in done.out
        assert len(queued(own)) == 9
        assert "MaxJobCount limit" in (own.folder / "log/slurmctld.log").read_text()
        assert checkout.call("submit", "sweeps.py", "some").code == 75, "nothing fits, nothing is lost"
        assert len(queued(own)) == 9
    checkout.wait_until_over()

    own.restart_controller(MaxJobCount=1000, MaxArraySize=3)
    told = checkout.run("submit")
    assert told.count("submitted job") == 2, "two elements, and one"
    assert "submitted already" in checkout.run("submit")
    checkout.wait_until_over()
    own.restart_controller(MaxArraySize=1001)
    assert checkout.starts() == dict.fromkeys(seeds, 1)
    assert checkout.states() == dict.fromkeys(seeds, "done")


def test_a_strangers_job_under_our_id_is_left_alone(own: Slurm, tmp_path: Path) -> None:
    checkout = stand_in(tmp_path / "checkout", own, 3)
    own.run("scontrol", "update", "PartitionName=cpu", "State=DOWN")
    job = checkout.submit("--partition", "cpu")
    own.restart_controller(anew=True)
    theirs = ""
    while theirs != job:
        theirs = own.run(
            "sbatch", "--parsable", "--hold", "--array=0-5", "--job-name=theirs", "--wrap=true", cwd=tmp_path
        ).strip()
    assert "nothing to cancel" in checkout.run("cancel", "--yes")
    assert checkout.states(LATER_H) == dict.fromkeys((1, 2, 3), "cancelled"), "ours left the queue before they began"
    assert queued(own, job) == {f"{job}_{index}": "PENDING" for index in range(6)}
    for command in ("plan", "submit"):
        done = checkout.call(command, "sweeps.py", "some", hours_later=LATER_H)
        assert done.code == 0, done.out
    checkout.wait_for_starts({1: 1, 2: 1, 3: 1})
    own.wait_until(lambda: set(queued(own, checkout.ids()[-1]).values()) == {"COMPLETED"})
    assert queued(own, job) == {f"{job}_{index}": "PENDING" for index in range(6)}
    own.cancel_all()


def test_suspended_and_cancelled_while_it_waits(own: Slurm, tmp_path: Path) -> None:
    checkout = stand_in(tmp_path / "checkout", own, 4, dict.fromkeys((1, 2, 3), "wait"))
    job = checkout.submit("--max_running", "2")
    checkout.wait_for_starts({1: 1, 2: 1})
    own.run("scontrol", "suspend", f"{job}_0")
    own.run("scancel", f"{job}_3")
    assert f"{job}_3" not in queued(own, job), "SLURM has forgotten it"
    told = checkout.status()
    assert "suspended: 1 run, " in told
    assert "suspended on n" in told
    assert checkout.states() == {1: "running", 2: "running", 3: "pending", 4: "cancelled"}
    own.run("scontrol", "resume", f"{job}_0")
    assert "suspended" not in checkout.status()
    checkout.go()
    own.wait_until(lambda: set(queued(own, job).values()) == {"COMPLETED"})
    for command in ("plan", "submit"):
        done = checkout.call(command, "sweeps.py", "some", hours_later=LATER_H)
        assert done.code == 0, done.out
    own.wait_until(lambda: set(queued(own, checkout.ids()[-1]).values()) == {"COMPLETED"})
    assert checkout.starts() == {1: 1, 2: 1, 3: 1, 4: 1}
    assert set(checkout.states().values()) == {"done"}
