"""What is cancelled stays cancelled, whatever else happens to it in the same moment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.checkout import OVER, Checkout, queued, stand_in
from tests.slurm.cluster import Slurm
from tests.slurm.test_scenarios_faults import no_controller

BACK_S = 15  # a job that is requeued waits for 5 s


@pytest.fixture
def checkout(slurm: Slurm, tmp_path: Path) -> Iterator[Checkout]:
    """Four runs, each of which takes 6 s for a checkpoint and is done when it is started again."""
    made = stand_in(tmp_path / "checkout", slurm, 4, dict.fromkeys(range(1, 5), "slow ok"))
    yield made
    if made.ids():
        slurm.run("scancel", "--full", *made.ids(), check=False)


def name_of(checkout: Checkout, seed: int) -> str:
    return Path(checkout.rows()[seed]["run"]).name


def test_cancelled_while_it_writes_the_checkpoint_of_its_warning(slurm: Slurm, checkout: Checkout) -> None:
    # Warned alone, 4 goes on by itself in a second life; 3 is told to stop by somebody of whom SLURM knows nothing.
    job = checkout.submit()
    checkout.wait_for_starts(dict.fromkeys(range(1, 5), 1))
    name = name_of(checkout, 1)
    for index in (0, 1, 3):
        slurm.run("scancel", "--signal=USR2", "--batch", f"{job}_{index}")
    slurm.wait_until(lambda: {event.seed for event in checkout.history("SIGUSR2")} == {1, 2, 4})
    slurm.run("scancel", f"{job}_1")
    assert "cancelled 1 script" in checkout.run("cancel", name, "--yes")
    slurm.run("scancel", "--signal=TERM", "--full", f"{job}_2")
    slurm.wait_until(lambda: checkout.starts()[4] == 2)
    slurm.wait_until(lambda: set(queued(slurm, job).values()) <= OVER)
    assert checkout.starts() == {1: 1, 2: 1, 3: 1, 4: 2}
    assert checkout.states(0.1) == {1: "cancelled", 2: "cancelled", 3: "checkpointed", 4: "done"}
    assert "why checkpointed: not requeued" in checkout.status()
    told = checkout.call("retry", "sweeps.py", "some", "--yes", hours_later=0.1)
    assert told.code == 0, told.out
    checkout.wait_until_over()
    assert checkout.starts() == {1: 1, 2: 1, 3: 2, 4: 2}
    assert checkout.states()[3] == "done"


def test_a_mass_cancel_and_a_controller_that_is_silent_just_then(slurm: Slurm, checkout: Checkout) -> None:
    job = checkout.submit()
    checkout.wait_for_starts(dict.fromkeys(range(1, 5), 1))
    assert "cancelled 4 scripts" in checkout.run("cancel", "--yes")
    with no_controller(slurm):  # they write their checkpoints meanwhile, and then ask what becomes of them
        slurm.wait_until(lambda: all(checkout.told(seed)["state"] == "preempted" for seed in range(1, 5)))
        time.sleep(8)
    slurm.wait_until(lambda: set(queued(slurm, job).values()) <= OVER)
    time.sleep(BACK_S)
    assert set(queued(slurm, job).values()) == {"CANCELLED"}
    assert checkout.starts() == dict.fromkeys(range(1, 5), 1)
    assert checkout.states() == dict.fromkeys(range(1, 5), "cancelled")


def test_a_cancelled_run_that_somebody_brings_back_is_seen_and_can_be_cancelled_again(
    slurm: Slurm, checkout: Checkout
) -> None:
    checkout.behave({1: "wait"})
    job = checkout.submit()
    checkout.wait_for_starts(dict.fromkeys(range(1, 5), 1))
    assert "cancelled 1 script" in checkout.run("cancel", "--yes")
    slurm.wait_until(lambda: queued(slurm, job)[f"{job}_0"] == "CANCELLED")
    assert checkout.states()[1] == "cancelled"
    slurm.run("scontrol", "requeue", f"{job}_0")
    slurm.wait_until(lambda: checkout.starts()[1] == 2)
    slurm.wait_until(lambda: checkout.states()[1] == "running")
    assert "1 running" in checkout.status()
    assert "cancelled 1 script" in checkout.run("cancel", "--yes")
    slurm.wait_until(lambda: queued(slurm, job)[f"{job}_0"] == "CANCELLED")
    assert checkout.states()[1] == "cancelled"
    assert checkout.starts()[1] == 2


def test_pending_means_that_nothing_of_a_script_has_begun(slurm: Slurm, tmp_path: Path) -> None:
    # Two runs a script, one after another, and a node whose clock is two minutes behind.  Two scripts run: of each the
    # second run is pending, and the first one looks as if it were of an earlier life.
    checkout = stand_in(tmp_path / "checkout", slurm, 8, dict.fromkeys(range(1, 9), "behind"))
    job = checkout.submit("--per_script", "2", "--max_running", "2")
    checkout.wait_for_starts(2)
    begun = {event.seed for event in checkout.history("start")}
    # a heartbeat is watched for 5 s: on a busy machine it may take longer to move
    slurm.wait_until(lambda: "2 running, 6 pending" in checkout.status())
    assert "Cancel 2 scripts with 4 unfinished runs?" in checkout.refused("cancel", "--pending")
    assert "cancelled 2 scripts" in checkout.run("cancel", "--pending", "--yes")
    assert Counter(queued(slurm, job).values()) in ({"RUNNING": 2}, {"RUNNING": 2, "CANCELLED": 1})
    slurm.wait_until(lambda: Counter(checkout.states().values()) == {"running": 2, "pending": 2, "cancelled": 4})
    assert "nothing to cancel" in checkout.run("cancel", "--pending", "--yes")
    (first, _) = sorted(begun)
    assert "Cancel 1 script with 2 unfinished runs?" in checkout.refused("cancel", name_of(checkout, first))
    checkout.go()
    checkout.wait_until_over()
    assert Counter(event.what for event in checkout.history()) == {"start": 4, "end": 4}
    assert Counter(checkout.states().values()) == {"done": 4, "cancelled": 4}


def test_every_array_task_on_record_that_is_in_the_queue_can_be_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    # 1 is done, and its task is requeued and held.  2 was retried, and an admin requeues the task of its first
    # submission.  3 is done in a newer submission, and the task of its first one is requeued and held.
    checkout = stand_in(tmp_path / "checkout", slurm, 3, {2: "fail wait", 3: "fail ok"})
    old = checkout.submit()
    checkout.wait_until_over()
    checkout.run("retry", "--code", "--yes")
    checkout.wait_for_starts({1: 1, 2: 2, 3: 2})
    new = checkout.ids()[-1]
    slurm.wait_until(lambda: checkout.states() == {1: "done", 2: "running", 3: "done"})
    slurm.run("scontrol", "requeuehold", f"{old}_0,{old}_2")
    slurm.run("scontrol", "requeue", f"{old}_1")
    slurm.run("scontrol", "hold", f"{old}_1", check=False)
    theirs = slurm.run("sbatch", "--parsable", "--hold", "--job-name=theirs", "--wrap=true", cwd=tmp_path).strip()
    told = checkout.status()
    assert "also in the queue: 3 scripts that no run waits for" in told, told
    assert f"{old}_0 (" in told
    assert "cancelled 1 script" in checkout.run("cancel", name_of(checkout, 1), "--yes")
    assert "Cancel 3 scripts with 1 unfinished run?" in checkout.refused("cancel")
    assert "cancelled 2 scripts" in checkout.run("cancel", "--pending", "--yes")
    slurm.wait_until(lambda: set(queued(slurm)) == {f"{new}_0", theirs})
    assert "no run waits for" not in checkout.status()
    assert "cancelled 1 script" in checkout.run("cancel", "--yes")
    slurm.wait_until(lambda: set(queued(slurm)) == {theirs})
    slurm.run("scancel", theirs)
    assert checkout.states() == {1: "done", 2: "cancelled", 3: "done"}
    assert checkout.starts() == {1: 1, 2: 2, 3: 2}
