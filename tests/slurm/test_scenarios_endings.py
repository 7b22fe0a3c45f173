"""Endings of jobs otherwise than by themselves: time limits, scancel, what cannot start.

The slow ones wait while the others run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.checkout import SITE, Checkout, accounted, queued, stand_in
from tests.slurm.cluster import Slurm

LATER_H = 0.1  # what SLURM has ended may still speak for two minutes, as far as anybody can tell; then all is certain


@pytest.fixture(scope="module")
def warned(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Seed 1 needs longer than its minute; it is warned, checkpoints and goes on in a second life.

    Seed 2 is done at once.  Seed 3 takes so long for its checkpoint that the time limit comes before.
    """
    made = stand_in(tmp_path_factory.mktemp("warned") / "checkout", slurm, 3, {1: "wait ok", 3: "dull ok"})
    made.submit("--partition", "short")
    return made


@pytest.fixture(scope="module")
def deaf(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Seed 1 needs longer than its minute and ignores every warning."""
    made = stand_in(tmp_path_factory.mktemp("deaf") / "checkout", slurm, 2, {1: "deaf ok"})
    made.submit("--time", "1")
    return made


@pytest.fixture
def checkout(slurm: Slurm, tmp_path: Path, warned: Checkout, deaf: Checkout) -> Iterator[Checkout]:
    """Four runs that wait; nothing of them is left afterwards."""
    made = stand_in(tmp_path / "checkout", slurm, 4, dict.fromkeys(range(1, 5), "wait"))
    yield made
    if made.ids():
        slurm.run("scancel", "--full", *made.ids(), check=False)


def test_cancel_by_name_then_pending_then_all(checkout: Checkout) -> None:
    job = checkout.submit("--max_running", "2")
    checkout.wait_for_starts({1: 1, 2: 1})
    name = Path(checkout.rows()[1]["run"]).name
    assert "--yes" in checkout.refused("cancel", name)
    assert queued(checkout.slurm, job)[f"{job}_0"] == "RUNNING"
    # What waits is cancelled first: nothing takes the place of the run that ends next.
    assert "cancelled 2 scripts" in checkout.run("cancel", "--pending", "--yes")
    assert "cancelled 1 script" in checkout.run("cancel", name, "--yes")
    checkout.slurm.wait_until(lambda: queued(checkout.slurm, job)[f"{job}_0"] == "CANCELLED")
    assert queued(checkout.slurm, job)[f"{job}_1"] == "RUNNING"
    assert checkout.states() == {1: "cancelled", 2: "running", 3: "cancelled", 4: "cancelled"}
    assert "cancelled 1 script" in checkout.run("cancel", "--yes")
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(range(1, 5), "cancelled")
    # Those that ran were asked to checkpoint, and nothing brought them back.
    assert [(event.what, event.seed) for event in checkout.history() if event.what != "start"] == [
        ("SIGTERM", 1),
        ("SIGTERM", 2),
    ]
    assert checkout.starts() == {1: 1, 2: 1}
    assert "nothing to cancel" in checkout.run("cancel", "--yes")


def test_scancel_by_hand_is_seen_and_submitting_again_goes_on(checkout: Checkout) -> None:
    job = checkout.submit()
    checkout.wait_for_starts(dict.fromkeys(range(1, 5), 1))
    checkout.slurm.run("scancel", f"{job}_1")
    checkout.slurm.wait_until(lambda: queued(checkout.slurm, job)[f"{job}_1"] == "CANCELLED")
    assert checkout.states() == {1: "running", 2: "cancelled", 3: "running", 4: "running"}
    checkout.go()
    checkout.wait_until_over()
    told = checkout.call("plan", "sweeps.py", "some", hours_later=LATER_H).out
    assert "s0c0   1        1 " in told, told
    done = checkout.call("submit", "sweeps.py", "some", hours_later=LATER_H)
    assert done.code == 0, done.out
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(range(1, 5), "done")
    assert checkout.starts() == {1: 1, 2: 2, 3: 1, 4: 1}


def test_what_cannot_start_says_why(checkout: Checkout) -> None:
    checkout.slurm.run("scontrol", "update", "PartitionName=cpu", "State=DOWN")
    try:
        job = checkout.submit("--partition", "cpu")
        checkout.slurm.wait_until(lambda: "PartitionDown" in checkout.slurm.run("squeue", "-h", "-j", job, "-o", "%r"))
        told = checkout.status()
        assert "4 pending" in told
        assert "PartitionDown" in told.partition("why pending")[2]
        assert not checkout.history()
        checkout.go()
    finally:
        checkout.slurm.run("scontrol", "update", "PartitionName=cpu", "State=UP")
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(range(1, 5), "done")


def test_what_no_node_can_give_is_refused_before_anything_is_submitted(checkout: Checkout) -> None:
    told = checkout.call("plan", "sweeps.py", "some", "--gpus", "5")
    assert told.code == 1
    assert "Requested node configuration is not available" in told.out
    assert "nothing was submitted" in checkout.refused("submit")
    assert not checkout.records()
    for words, complaint in {
        # SLURM itself would take this one and never start it.
        ("--partition", "short", "--time", "10"): "partition short ends jobs after",
        ("--partition", "p200"): "p200",
    }.items():
        told = checkout.call("plan", "sweeps.py", "some", *words)
        assert told.code in (1, 2)
        assert complaint in told.out


def test_a_canary_that_succeeds_releases_the_rest(checkout: Checkout) -> None:
    checkout.submit("--canary")
    checkout.wait_for_starts({1: 1})
    canary, rest = checkout.ids()
    assert set(queued(checkout.slurm, rest).values()) == {"PENDING"}
    assert "1 running, 3 pending" in checkout.status()
    checkout.slurm.wait_until(lambda: "Dependency" in checkout.status())  # no reason before SLURM's next round
    checkout.go(1)
    checkout.slurm.wait_until(lambda: set(queued(checkout.slurm, rest).values()) == {"RUNNING"})
    checkout.slurm.wait_until(lambda: accounted(checkout.slurm, [canary]) == {f"{canary}_0": "COMPLETED"})
    checkout.go()
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(range(1, 5), "done")
    assert set(checkout.starts().values()) == {1}


def test_a_canary_that_fails_keeps_the_rest(checkout: Checkout) -> None:
    checkout.behave({1: "fail ok"})
    checkout.submit("--canary")
    checkout.wait_until_over()
    assert checkout.states() == {1: "failed", 2: "cancelled", 3: "cancelled", 4: "cancelled"}
    assert "DependencyNeverSatisfied" in checkout.status()
    assert checkout.starts() == {1: 1}
    told = checkout.run("failures")
    assert "RuntimeError" in told
    assert "as it was told" in told
    assert "nothing to retry" in checkout.run("retry", "--yes")
    checkout.run("retry", "--code", "--yes")
    checkout.wait_until_over()
    for action in ("plan", "submit"):
        done = checkout.call(action, "sweeps.py", "some", hours_later=LATER_H)
        assert done.code == 0, done.out
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(range(1, 5), "done")
    assert checkout.starts() == {1: 2, 2: 1, 3: 1, 4: 1}


def test_preemption_that_cancels_is_no_end_of_a_run(slurm: Slurm, tmp_path: Path) -> None:
    # submit brings it back, and after the next preemption retry --auto does.  Beside its 6 of 8 cores no 3 are free.
    checkout = stand_in(tmp_path / "checkout", slurm, 1, {1: "wait wait ok"})
    job = checkout.submit("--partition", "spot", "--cpus", "6")
    for attempt, command in (
        (1, ("submit",)),
        (2, ("retry", "--auto", "--yes", "--max_time", "60", "--max_mem", "9G")),
    ):
        checkout.wait_for_starts({1: attempt})
        node = checkout.history("start")[-1].node
        theirs = ("--partition=high", f"--nodelist={node}", "-c3", "--output=/dev/null", "--wrap=sleep 1")
        slurm.run("sbatch", *theirs, cwd=tmp_path)
        slurm.wait_until(lambda job=job: queued(slurm, job) == {f"{job}_0": "PREEMPTED"})
        assert checkout.states(LATER_H) == {1: "preempted"}
        done = checkout.call(command[0], "sweeps.py", "some", *command[1:], hours_later=LATER_H)
        assert done.code == 0, done.out
        assert "1 preempted: goes on from its checkpoint" in done.out
        job = checkout.ids()[-1]
    checkout.wait_until_over()
    assert checkout.states() == {1: "done"}
    assert checkout.starts() == {1: 3}


def test_a_quality_of_service_that_has_room_for_none_is_a_matter_of_waiting(slurm: Slurm, tmp_path: Path) -> None:
    slurm.run("sacctmgr", "-i", "add", "qos", "small", "MaxSubmitJobsPerUser=2", "GrpSubmitJobs=2")
    slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=small")
    checkout = stand_in(tmp_path / "checkout", slurm, 3)
    theirs = ("sbatch", "--parsable", "--hold", "--qos=small", "--array=0-1", "--wrap=true")
    held: list[str] = []
    slurm.wait_until(lambda: held.append(slurm.run(*theirs, check=False, cwd=tmp_path).strip()) or held[-1], every_s=1)
    try:
        checkout.run("plan", "--qos", "small")
        done = checkout.call("submit", "sweeps.py", "some")
        assert done.code == 75, done.out
        assert "3 of 3 scripts wait for room (SLURM takes no more jobs of yours now)" in done.out
    finally:
        slurm.run("scancel", held[-1])
    codes = []
    slurm.wait_until(
        lambda: codes.append(checkout.call("submit", "sweeps.py", "some").code) or codes[-1] == 0, every_s=1
    )
    assert set(codes) <= {0, 75}
    checkout.wait_until_over()
    assert checkout.starts() == {1: 1, 2: 1, 3: 1}


def test_gpus_of_a_type(checkout: Checkout) -> None:
    told = checkout.call("plan", "sweeps.py", "some", "--gpus", "h100:1")
    assert told.code == 1 and "Requested node configuration is not available" in told.out, told.out
    assert "2 a100 GPUs" in checkout.run("plan", "--gpus", "a100:2")
    checkout.run("submit")
    (job,) = checkout.ids()
    checkout.wait_for_starts(2)
    assert "gpu:a100:2" in checkout.slurm.run("scontrol", "show", "job", "-o", f"{job}_0")
    site = checkout.root / "site.yaml"
    site.write_text(SITE + "sbatch: ['--gres=gpu:a100:1']\n")
    assert "give gpus: a100:1" in checkout.refused("plan")


# --- the slow ones ------------------------------------------------------------------------------------------------


def test_before_the_time_limit_a_run_checkpoints_and_goes_on(slurm: Slurm, warned: Checkout, deaf: Checkout) -> None:
    (job,) = warned.ids()
    everything = {f"{job}_{index}": "COMPLETED" for index in range(3)}
    slurm.wait_until(lambda: queued(slurm, job) == everything, every_s=0.5)
    for seed, number in ((1, "SIGUSR2"), (3, "SIGTERM")):
        events = [(event.what, event.restart) for event in warned.history() if event.seed == seed]
        assert events == [("start", 0), (number, 0), ("start", 1), ("end", 1)]
    assert warned.states() == {1: "done", 2: "done", 3: "done"}
    assert warned.rows()[1]["attempts"] == "2"
    assert warned.starts() == {1: 2, 2: 1, 3: 2}
    slurm.wait_until(lambda: accounted(slurm, [job]) == everything)


def test_an_ignored_time_limit_is_a_failure_and_retried_with_twice_the_time(slurm: Slurm, deaf: Checkout) -> None:
    (job,) = deaf.ids()
    slurm.wait_until(lambda: queued(slurm, job)[f"{job}_0"] == "TIMEOUT", every_s=0.5)
    assert [event.what for event in deaf.history() if event.seed == 1] == ["start"]
    assert deaf.states()[2] == "done"
    # Moments after a job's end its run may still have something to say.
    state = deaf.states()[1]
    assert state in ("unknown", "failed")
    ahead = LATER_H if state == "unknown" else 0
    told = deaf.call("failures", "sweeps.py", "some", hours_later=ahead).out
    assert "1 run: time_limit" in told, told
    done = deaf.call("retry", "sweeps.py", "some", "--yes", hours_later=ahead)
    assert done.code == 0, done.out
    assert "2:00" in done.out
    again = deaf.ids()[-1]
    assert again != job
    limits = slurm.run("squeue", "-h", "-t", "all", "-j", again, "-o", "%l").split()
    assert set(limits) == {"2:00"}
    deaf.wait_until_over()
    assert deaf.states() == {1: "done", 2: "done"}
    assert deaf.starts() == {1: 2, 2: 1}
