"""Faults between us and the jobs: the controller, the answer of sbatch, a limit half way, two terminals, a node."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.checkout import OVER, SITE, Checkout, accounted, queued, stand_in
from tests.slurm.cluster import PATIENCE_S, Slurm

SMALL_ARRAYS = SITE + "max_array_size: 3\n"  # two elements each
ONCE = dict.fromkeys(range(1, 5), 1)

# An sbatch that does something else at its second submission: --test-only is passed on.
WRAPPER = """#!/bin/bash
case " $* " in *' --test-only '*) exec {sbatch} "$@" ;; esac
echo >>{folder}/calls
if [ "$(wc -l <{folder}/calls)" -ne 2 ]; then exec {sbatch} "$@"; fi
{second}
"""


@pytest.fixture
def checkout(slurm: Slurm, tmp_path: Path) -> Iterator[Checkout]:
    """Four runs in two arrays; nothing of them is left afterwards."""
    made = stand_in(tmp_path / "checkout", slurm, 4, site=SMALL_ARRAYS)
    yield made
    if made.ids():
        slurm.run("scancel", "--full", *made.ids(), check=False)


def with_sbatch(checkout: Checkout, second: str) -> Checkout:
    """The same checkout, for whose user the second submission is ``second``."""
    folder = checkout.root.parent / "bin"
    folder.mkdir()
    sbatch = shutil.which("sbatch", path=checkout.environ["PATH"])
    (folder / "sbatch").write_text(
        WRAPPER.format(sbatch=sbatch, folder=folder, second=second.format(sbatch=sbatch, folder=folder))
    )
    (folder / "sbatch").chmod(0o755)
    return replace(checkout, environ={**checkout.environ, "PATH": f"{folder}:{checkout.environ['PATH']}"})


@contextlib.contextmanager
def no_controller(slurm: Slurm) -> Iterator[None]:
    """The controller is down; it comes back however this is left."""
    slurm.stop_controller()
    try:
        yield
    finally:
        slurm.start_controller()
        # It takes a moment until it has heard of its nodes: until then nothing can start there, it says.
        slurm.wait_until(
            lambda: set(slurm.run("sinfo", "-h", "-N", "-o", "%T").split()) <= {"idle", "mixed", "allocated"}
        )


def assert_all_ran_once(checkout: Checkout) -> None:
    """Every run was started once and is done, by its own word, by ours and by accounting."""
    checkout.wait_until_over()
    assert checkout.starts() == ONCE
    assert {event.seed for event in checkout.history("end")} == set(ONCE)
    assert checkout.states() == dict.fromkeys(ONCE, "done")
    jobs = [job for job, name in jobs_named(checkout) if name.startswith("some-")]
    assert sorted(jobs) == sorted(checkout.ids())


def jobs_named(checkout: Checkout) -> list[tuple[str, str]]:
    """(array id, name) of every array that SLURM ever accepted from this checkout."""
    rows = checkout.slurm.run("squeue", "-h", "-t", "all", "-o", "%F %j %Z").splitlines()
    return sorted({(row.split()[0], row.split()[1]) for row in rows if row.split()[2] == str(checkout.root)})


def test_status_while_the_controller_is_down(checkout: Checkout) -> None:
    checkout.behave(dict.fromkeys((2, 3, 4), "wait"))
    checkout.submit("--max_running", "2")
    # Each of the two arrays runs one at a time: 1 and then 2 of the first, 3 of the second.
    checkout.wait_for_starts({1: 1, 2: 1, 3: 1})
    checkout.slurm.wait_until(lambda: checkout.states() == {1: "done", 2: "running", 3: "running", 4: "pending"})
    with no_controller(checkout.slurm):
        told = checkout.status()
        assert "the scheduler cannot be asked" in told
        assert checkout.states() == {1: "done", 2: "running", 3: "running", 4: "unknown"}
        os.killpg(os.getpgid(checkout.told(3)["pid"]), signal.SIGKILL)  # with its scripts: nobody is left to tell
        assert "nothing to submit" in checkout.run("plan")
        assert "contact" in checkout.refused("cancel", "--yes")
        checkout.go(2)
        checkout.slurm.wait_until(lambda: checkout.states()[2] == "done")
        assert checkout.states()[3] not in ("done", "failed")
    checkout.go()
    checkout.wait_until_over()
    assert checkout.starts() == ONCE
    states = checkout.states()
    assert (states[1], states[2], states[4]) == ("done", "done", "done")
    assert states[3] in ("failed", "lost", "unknown")


def test_submit_while_the_controller_is_down(checkout: Checkout) -> None:
    checkout.run("plan")
    with no_controller(checkout.slurm):
        said = checkout.refused("submit")
        assert "contact" in said
        assert not checkout.ids()
    checkout.run("submit")
    assert_all_ran_once(checkout)


def test_the_controller_goes_down_between_two_arrays(checkout: Checkout) -> None:
    broken = with_sbatch(checkout, 'until [ -e {folder}/on ]; do sleep 0.1; done\nexec {sbatch} "$@"')
    folder = checkout.root.parent / "bin"
    checkout.run("plan")
    process = broken.begin("submit", "sweeps.py", "some")
    checkout.slurm.wait_until(lambda: (folder / "calls").exists() and (folder / "calls").read_text() == "\n\n")
    with no_controller(checkout.slurm):
        (folder / "on").touch()
        told = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 2, told
        assert "Traceback" not in told
        assert [chunk["state"] for chunk in checkout.records()[0]["chunks"]] == ["submitted", "asked"]
        assert "contact" in checkout.refused("submit")
    told = checkout.run("submit")
    assert "going on with" in told
    assert "1 of 2 arrays left" in told
    assert "submitted already" in checkout.run("submit")
    assert_all_ran_once(checkout)


def test_an_answer_that_gets_lost_is_found_again(checkout: Checkout) -> None:
    broken = with_sbatch(
        checkout,
        "{sbatch} \"$@\" >{folder}/said\necho 'sbatch: error: Socket timed out on send/recv operation' >&2\nexit 1",
    )
    checkout.behave(dict.fromkeys(ONCE, "wait"))
    checkout.run("plan")
    said = broken.refused("submit")
    assert "timed out" in said
    lost = (checkout.root.parent / "bin/said").read_text().strip()
    checkout.wait_for_starts(ONCE)
    assert checkout.states() == dict.fromkeys(ONCE, "running")
    checkout.run("submit")
    assert checkout.ids()[1] == lost
    checkout.go()
    assert_all_ran_once(checkout)


def test_words_that_are_not_utf8_around_the_answer(checkout: Checkout) -> None:
    odd = with_sbatch(
        checkout,
        "printf 'sbatch: INFO: projet d\\351j\\340 d\\351bit\\351\\n' >&2; printf 'Bienvenue \\340 tous\\n'\n"
        '{sbatch} "$@" && echo "votre quota: 3 heures"',
    )
    checkout.run("plan")
    assert odd.run("submit").count("submitted job") == 2
    assert "submitted already" in checkout.run("submit")
    assert_all_ran_once(checkout)


def test_two_terminals_submit_at_once(checkout: Checkout) -> None:
    slow = with_sbatch(checkout, 'sleep 1.5\nexec {sbatch} "$@"')
    checkout.run("plan")
    both = [slow.begin("submit", "sweeps.py", "some") for _ in range(2)]
    told = sorted((process.communicate(timeout=PATIENCE_S)[0], process.returncode) for process in both)
    codes = sorted(code for _, code in told)
    texts = " ".join(text for text, _ in told)
    assert (codes, "is submitting" in texts) == ([0, 2], True) or (codes, "submitted already" in texts) == (
        [0, 0],
        True,
    ), told
    assert_all_ran_once(checkout)


def test_an_array_that_is_refused_half_way(checkout: Checkout) -> None:
    # Everybody's limit, which root has too: two elements of the first array, two of the second are one too many.
    checkout.behave(dict.fromkeys(ONCE, "wait"))
    limit = ("sacctmgr", "-i", "modify", "user", "root", "set")
    checkout.run("plan")
    checkout.slurm.run(*limit, "MaxSubmitJobs=3")
    try:
        checkout.slurm.wait_until(lambda: "MaxSubmitJobs=3(" in limits(checkout.slurm))
        done = checkout.call("submit", "sweeps.py", "some")
        assert done.code == 75, done.out
        assert "1 of 4 scripts wait for room (SLURM takes no more jobs of yours now)" in done.out
        assert [chunk["state"] for chunk in checkout.records()[0]["chunks"]] == ["submitted", "submitted", "written"]
        checkout.wait_for_starts({1: 1, 2: 1, 3: 1})
        assert checkout.states() == {1: "running", 2: "running", 3: "running", 4: "new"}
        done = checkout.call("submit", "sweeps.py", "some")
        assert done.code == 75, done.out
        assert "1 of 4 scripts wait for room (you have 3 in the queue of MaxSubmitJobs=3)" in done.out, (
            "by now it has been asked"
        )
    finally:
        checkout.slurm.run(*limit, "MaxSubmitJobs=-1")
        checkout.slurm.wait_until(lambda: "MaxSubmitJobs=3(" not in limits(checkout.slurm))
    assert "1 of 3 arrays left" in checkout.run("submit")
    checkout.go()
    assert_all_ran_once(checkout)


def limits(slurm: Slurm) -> str:
    """The limits as the controller has them: accounting tells it of changes."""
    return slurm.run("scontrol", "show", "assoc_mgr", "flags=assoc")


def test_runs_that_step_on_beside_the_next_life_of_their_job(slurm: Slurm, tmp_path: Path) -> None:
    # The slurmd of their node dies and they do not; SLURM starts their job again on the other node, where a word comes
    # late, too.
    checkout = stand_in(tmp_path / "checkout", slurm, 3, {1: "wait", 2: "late", 3: "wait"})
    job = checkout.submit("--per_script", "2", "--cpus", "4")
    checkout.wait_for_starts({1: 1, 2: 1})
    (node,) = {event.node for event in checkout.history("start") if event.seed == 1}
    checkout.slurm.wait_until(lambda: queued(slurm, job)[f"{job}_1"] == "COMPLETED")
    assert checkout.states()[2] == "unknown", "its script and its job have ended, and its own word has not come"
    assert "nothing to submit" in checkout.run("plan")
    (late,) = (checkout.root / "runs/some").glob("*/late")
    late.rename(late.with_name("status.json"))
    assert checkout.states()[2] == "done"
    slurm.kill_slurmd(node)
    try:
        slurm.wait_until(lambda: any(event.what == "held" for event in checkout.history()))
        # One machine has one clock, and sees its files at once: where that is said, a heartbeat of after the requeue
        # tells that it lives.
        prompt = replace(checkout, environ={**checkout.environ, "NUQ_LAG_S": "4"})
        slurm.wait_until(lambda: prompt.states()[1] == "running")
        slurm.wait_until(lambda: "it lives on: it began in an earlier life of its job" in prompt.status())
        checkout.go(3)  # its turn has come in the second life
        slurm.wait_until(lambda: queued(slurm, job)[f"{job}_0"] == "PENDING")  # it asked to look again
        slurm.wait_until(lambda: prompt.states()[1] == "running")
        assert "no run has failed" in checkout.run("failures")
        assert "nothing to retry" in checkout.run("retry", "--code", "--yes")
        checkout.go(1)
        slurm.wait_until(lambda: checkout.told(1)["state"] == "done")
        checkout.wait_until_over()
    finally:
        slurm.start_node(node)
    assert checkout.starts() == {1: 1, 2: 1, 3: 1}
    assert checkout.states() == {1: "done", 2: "done", 3: "done"}
    lives = {event.seed: event.restart for event in checkout.history("start")}
    assert (lives[1], lives[3]) == (0, 1)


def test_the_shells_of_runs_are_killed_and_the_runs_are_not(slurm: Slurm, tmp_path: Path) -> None:
    # The first script goes on with the third run.  The second has none: its job ends, and SLURM has lost sight of the
    # process.
    checkout = stand_in(tmp_path / "checkout", slurm, 3, dict.fromkeys((1, 2, 3), "wait"))
    job = checkout.submit("--per_script", "2")
    checkout.wait_for_starts({1: 1, 2: 1})
    for seed in (1, 2):
        shell = int(Path(f"/proc/{checkout.told(seed)['pid']}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(shell, signal.SIGKILL)
    slurm.wait_until(lambda: queued(slurm, job)[f"{job}_1"] == "FAILED")
    assert checkout.states() == {1: "running", 2: "running", 3: "running"}
    assert "it lives on: its script noted exit code 137" in checkout.status()
    told = checkout.run("retry", "--code", "--yes")
    assert "left alone: 2 runs" in told and "nothing to retry" in told, (told, checkout.states())
    assert "nothing to submit" in checkout.run("plan")
    checkout.go()
    checkout.wait_until_over()
    slurm.wait_until(lambda: set(checkout.states().values()) == {"done"})
    assert checkout.starts() == {1: 1, 2: 1, 3: 1}


def test_a_node_dies(slurm: Slurm, tmp_path: Path) -> None:
    # Two fit each node.  Those of n2: one that SLURM may start again, and one that it may not.
    checkout = stand_in(tmp_path / "checkout", slurm, 4, dict.fromkeys(ONCE, "wait ok"))
    job = checkout.submit("--cpus", "4")
    checkout.wait_for_starts(ONCE)
    there = [event for event in checkout.history("start") if event.node == "n2"]
    assert len(there) == 2
    again, given_up = there
    slurm.run("scontrol", "update", f"JobId={given_up.element}", "Requeue=0")
    slurm.kill_node("n2")
    try:
        seen: set[str] = set()

        def is_given_up() -> bool:
            states = checkout.states()
            seen.update((states[again.seed], states[given_up.seed]))
            return queued(slurm, job)[given_up.element] == "NODE_FAIL"

        slurm.wait_until(is_given_up)
        assert seen <= {"running", "unknown", "pending"}
        assert checkout.states()[again.seed] == "pending"
        assert checkout.states()[given_up.seed] == "unknown"
        late = 0.2  # the silence of a node is certain after ten minutes: until then its processes may live
        told = checkout.call("failures", "sweeps.py", "some", hours_later=late).out
        assert "1 run: node_failure" in told, (told, checkout.states())
        done = checkout.call("retry", "sweeps.py", "some", "--yes", hours_later=late)
        assert done.code == 0, done.out
        assert "without n2" in done.out
        assert checkout.records()[-1]["chunks"][0]["resources"]["exclude"] == "n2"
        retried = checkout.ids()[-1]
        assert slurm.run("squeue", "-h", "-j", retried, "-o", "%x").strip() == "n2"
    finally:
        slurm.start_node("n2")
    checkout.go()
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(ONCE, "done")
    siblings = set(ONCE) - {again.seed, given_up.seed}
    assert checkout.starts() == {**dict.fromkeys(siblings, 1), again.seed: 2, given_up.seed: 2}
    lives = {(event.seed, event.restart): event for event in checkout.history("start")}
    assert lives[again.seed, 1].element == again.element
    assert [event.node for event in checkout.history("start") if event.element.startswith(retried)] == ["n1"]
    states = accounted(slurm, [job])
    assert states[given_up.element] == "NODE_FAIL"
    assert states[again.element] == "COMPLETED"


def test_a_run_eats_the_memory_of_those_that_share_its_job(slurm: Slurm, tmp_path: Path) -> None:
    # Three at a time with 100 MB each: SLURM finds more than 300 MB in the job, and kills all of it before the fourth
    # has its turn.
    site = SITE.replace("2G", "100M") + "sbatch: [--acctg-freq=1]\n"
    checkout = stand_in(tmp_path / "checkout", slurm, 4, {1: "wait ok", 2: "wait ok", 3: "eats ok"}, site)
    job = checkout.submit("--per_script", "4", "--parallel", "3")
    slurm.wait_until(lambda: queued(slurm, job)[f"{job}_0"] in OVER | {"OUT_OF_MEMORY"})
    late = 0.1
    told = checkout.call("failures", "sweeps.py", "some", hours_later=late).out
    assert "1 run: host_oom: " in told, (told, checkout.states())
    assert " of 100 MB; slurmstepd" in told, "what it had taken, and what it had asked for"
    assert "2 runs: killed: killed when another run of its script ran out of memory" in told, (told, checkout.states())
    assert "1 run: killed: its turn had not come when another run of its script ran out of memory" in told, (
        told,
        checkout.states(),
    )
    (eater,) = set(re.findall(r"out of memory: (\S+)", told))
    assert "-s3-" in eater
    done = checkout.call("retry", "sweeps.py", "some", "--yes", hours_later=late)
    assert done.code == 0, done.out
    again = [(run, chunk) for chunk in checkout.records()[-1]["chunks"] for runs in chunk["elements"] for run in runs]
    asked = {Path(run).name: chunk["resources"]["mem"] for run, chunk in again}
    assert len(asked) == 4
    assert {run for run, mem in asked.items() if mem != "100M"} == {eater}
    assert asked[eater] == "200M"
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(ONCE, "done")
    assert checkout.starts() == {1: 2, 2: 2, 3: 2, 4: 1}
