"""The cluster itself does what the scenarios of the product rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import cluster, processes
from tests.slurm.cluster import Slurm


def submit(slurm: Slurm, folder: Path, body: str, *options: str) -> str:
    """The id of a job that runs ``body`` in bash; %A_%a.out in ``folder`` is its log."""
    (folder / "job.sh").write_text(f"#!/bin/bash\n{body}\n")
    return slurm.run(
        "sbatch", "--parsable", "--open-mode=append", "--output=%A_%a.out", *options, "job.sh", cwd=folder
    ).strip()


def states(slurm: Slurm, job: str) -> dict[str, str]:
    """State of every element as squeue tells it."""
    rows = slurm.run("squeue", "--array", "-h", "-t", "all", "-j", job, "-o", "%K %T").splitlines()
    return dict(row.split() for row in rows)


def test_an_array_runs_on_both_nodes_and_sacct_knows_it(quiet: Slurm, tmp_path: Path) -> None:
    # Five CPUs of eight: two elements do not fit one node.
    job = submit(
        quiet, tmp_path, "sleep 1; exit $((SLURM_ARRAY_TASK_ID / 3 * 3))", "--array=0-3", "-c5", "--gpus-per-node=1"
    )
    quiet.wait_until(lambda: set(states(quiet, job).values()) <= {"COMPLETED", "FAILED"})

    def recorded() -> list[str]:
        return sorted(
            quiet.run("sacct", "-X", "-P", "-n", "-j", job, "-o", "JobID,State,ExitCode,NodeList").splitlines()
        )

    quiet.wait_until(lambda: Counter(row.split("|")[1] for row in recorded()) == {"COMPLETED": 3, "FAILED": 1})
    rows = [row.split("|") for row in recorded()]
    assert [row[0] for row in rows] == [f"{job}_{number}" for number in range(4)]
    assert rows[3][1:3] == ["FAILED", "3:0"]
    assert {row[3] for row in rows} == {"n1", "n2"}


def test_a_requeued_element_leaves_its_siblings_alone(quiet: Slurm, tmp_path: Path) -> None:
    body = """echo start ${SLURM_RESTART_COUNT:-0}
    if [ $SLURM_ARRAY_TASK_ID = 1 ] && [ ${SLURM_RESTART_COUNT:-0} = 0 ]; then
      scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; sleep 30
    fi"""
    job = submit(quiet, tmp_path, body, "--array=0-2", "--requeue")
    quiet.wait_until(lambda: states(quiet, job) == {"0": "COMPLETED", "1": "COMPLETED", "2": "COMPLETED"})

    def starts(element: int) -> list[str]:
        log = (tmp_path / f"{job}_{element}.out").read_text()
        return [line for line in log.splitlines() if line.startswith("start")]

    assert [starts(element) for element in range(3)] == [["start 0"], ["start 0", "start 1"], ["start 0"]]


def test_a_higher_partition_preempts_by_signal_and_requeues(quiet: Slurm, tmp_path: Path) -> None:
    """A step is told at once; the batch shell only where slurmctld looks at it between GraceTime and SIGKILL."""
    body = """echo start ${SLURM_RESTART_COUNT:-0}
    [ ${SLURM_RESTART_COUNT:-0} = 0 ] || exit 0
    srun --nodes=1 --ntasks=1 bash -c "trap 'echo heard TERM' TERM; echo ready; while :; do sleep 100 & wait; done\""""
    low = submit(quiet, tmp_path, body, "--partition=low", "--requeue", "--nodes=2", "--exclusive")
    quiet.wait_until(lambda: "ready" in "".join(path.read_text() for path in tmp_path.glob(f"{low}_*.out")))
    high = submit(quiet, tmp_path, "true", "--partition=high", "--nodes=2", "--exclusive")
    quiet.wait_until(lambda: states(quiet, high) == {"N/A": "COMPLETED"})
    quiet.wait_until(lambda: states(quiet, low) == {"N/A": "COMPLETED"})
    log = next(tmp_path.glob(f"{low}_*.out")).read_text()
    told = dict.fromkeys(line for line in log.splitlines() if line.startswith(("start", "heard")))  # TERM comes twice
    assert list(told) == ["start 0", "heard TERM", "start 1"]


def test_a_killed_node_ends_its_jobs_and_comes_back(quiet: Slurm, tmp_path: Path) -> None:
    job = submit(quiet, tmp_path, "echo $$; sleep 100", "--array=0", "--no-requeue", "--nodelist=n2")
    log = tmp_path / f"{job}_0.out"
    quiet.wait_until(lambda: log.exists() and log.read_text())
    quiet.kill_node("n2")
    assert not processes.alive(int(log.read_text()))  # the pid alone: the shell saw nothing
    quiet.wait_until(lambda: states(quiet, job) == {"0": "NODE_FAIL"})
    quiet.start_node("n2")
    assert quiet.run("srun", "--nodelist=n2", "printenv", "SLURMD_NODENAME").strip() == "n2"


def test_jobs_outlive_the_controller(quiet: Slurm, tmp_path: Path) -> None:
    job = submit(quiet, tmp_path, "sleep 2; echo over", "--array=0")
    quiet.wait_until(lambda: states(quiet, job) == {"0": "RUNNING"})
    quiet.stop_controller()
    try:
        assert not quiet.run("squeue", "-h", check=False)
        quiet.wait_until(lambda: "over" in (tmp_path / f"{job}_0.out").read_text())
    finally:
        quiet.start_controller()
    quiet.wait_until(lambda: states(quiet, job) == {"0": "COMPLETED"})


CRASH = """
import sys
from pathlib import Path
from tests.slurm import cluster
with cluster.started(Path(sys.argv[1]), accounting=sys.argv[3] == "accounting") as slurm:
    deaf = "trap '' TERM; echo $$ > pid; sleep 987 & wait; sleep 987"
    slurm.run("sbatch", "--output=/dev/null", "--wrap", deaf, cwd=Path(sys.argv[2]))
    slurm.wait_until((Path(sys.argv[2]) / "pid").exists)
    print(*(child.pid for child in slurm.children.values()), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("number", "accounting", "daemons"),
    [(signal.SIGTERM, "accounting", 6), (signal.SIGINT, "none", 4)],
    ids=["SIGTERM", "SIGINT"],
)
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: int, accounting: str, daemons: int) -> None:
    folder = tmp_path / "c"
    words = [sys.executable, "-c", CRASH, str(folder), str(tmp_path), accounting]
    # a shell's background jobs, this test's own process among them, ignore SIGINT
    how: dict[str, Any] = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL), "text": True}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **how
    ) as process:
        assert process.stdout
        pids = [int(word) for word in (process.stdout.readline() + (tmp_path / "pid").read_text()).split()]
        assert len(pids) == daemons + 1
        # Those that a later session of the same folder would find: daemons, a slurmstepd and the job's shell.
        assert set(pids) < processes.find(folder)
        os.kill(process.pid, number)
        process.wait(cluster.PATIENCE_S)
    assert [pid for pid in pids if processes.alive(pid)] == []
    assert processes.find(folder) == set()


def test_without_accounting_sacct_says_so(tmp_path: Path) -> None:
    with cluster.started(tmp_path / "c", accounting=False) as slurm:
        done = subprocess.run(["sacct"], env=slurm.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "disabled" in done.stderr


def test_what_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(cluster.ClusterError, match=r"is not empty: choose a new folder"):
        cluster.up(tmp_path)
    with pytest.raises(cluster.ClusterError, match=r"need at most 75"):
        cluster.up(tmp_path / ("x" * 75))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(cluster.ClusterError, match=r"needs root"):
        cluster.up(tmp_path / "new")
