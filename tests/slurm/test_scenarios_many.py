"""1,200 short runs, more than one array may hold, with one cap over everything."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.checkout import accounted, queued, stand_in
from tests.slurm.cluster import Slurm

SEEDS = 1200
CAP = 12


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """A cluster of its own, whose nodes may be silent for long: here they are busy, and none dies."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        cluster.started(Path(folder), silence_s=120) as running,
    ):
        yield running


def test_1200_runs_in_two_arrays_under_one_cap(slurm: Slurm, tmp_path: Path) -> None:
    # The first runs of both arrays wait, so that the cap is filled and seen.
    waiting = [*range(1, 11), *range(601, 611)]
    checkout = stand_in(tmp_path / "checkout", slurm, SEEDS, dict.fromkeys(waiting, "wait"))
    assert "MaxArraySize            = 1001" in slurm.run("scontrol", "show", "config")
    checkout.submit("--max_running", str(CAP))
    (record,) = checkout.records()
    assert [len(chunk["elements"]) for chunk in record["chunks"]] == [600, 600]
    ids = checkout.ids()
    assert len(set(ids)) == 2

    checkout.wait_for_starts(CAP)
    time.sleep(2)
    assert checkout.starts().total() == CAP
    assert Counter(checkout.states().values()) == {"running": CAP, "pending": SEEDS - CAP}
    told = checkout.status()
    assert "12 running, 1188 pending" in told
    assert "JobArrayTaskLimit" in told
    assert "submitted already" in checkout.run("submit")

    checkout.go()
    at_once = []
    while states := queued(slurm):
        at_once.append(sum(state == "RUNNING" for state in states.values()))
        time.sleep(2)
    assert max(at_once) <= CAP
    odd = {name: state for name, state in accounted(slurm, ids).items() if state != "COMPLETED"}
    assert checkout.starts() == dict.fromkeys(range(1, SEEDS + 1), 1), (odd, slurm.logs(200))
    assert Counter(event.seed for event in checkout.history("end")) == checkout.starts()
    assert Counter(checkout.states().values()) == {"done": SEEDS}
    everything = {f"{job}_{index}": "COMPLETED" for job in ids for index in range(600)}
    slurm.wait_until(lambda: accounted(slurm, ids) == everything, every_s=1)
    assert "nothing to submit" in checkout.run("plan")
