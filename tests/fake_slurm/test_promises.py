"""The fake SLURM keeps the promises of its README: what a test with it proves is worth no more than these."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fake_slurm import processes
from tests.fake_slurm.cluster import cluster
from tests.grid.fake_jobs import LISTEN, appear, states, submit

ROOT = Path(__file__).parents[2]


def test_an_array_keeps_its_throttle_and_its_last_element_has_the_arrays_id(tmp_path):
    # The first three start only together, so three at once are proved; the globs count how many there are.
    count = """task=$SLURM_ARRAY_TASK_ID; mkdir run.$task
if [ $task -lt 3 ]; then until [ -d run.0 ] && [ -d run.1 ] && [ -d run.2 ]; do sleep 0.01; done; : > met.$task
until [ -e met.0 ] && [ -e met.1 ] && [ -e met.2 ]; do sleep 0.01; done; fi
set -- run.*; sleep 0.05; rmdir run.$task; echo $# $SLURM_JOB_ID"""
    with cluster(tmp_path, cpus=8) as slurm:
        slurm.hold_all("Resources")
        job = submit(slurm, tmp_path, f"#!/bin/bash\n{count}\n", "-a", "0-6%3")
        pending = slurm.run("squeue", "-h", "--me", "-o", "%i %K %T %r").stdout
        each = slurm.run("squeue", "-h", "--me", "-r", "-o", "%i").stdout.split()
        slurm.release_all()
        slurm.wait(job)
        told = slurm.run("sacct", "-X", "-P", "-n", "-o", "JobID,JobIDRaw,State").stdout.splitlines()
    assert pending == f"{job}_[0-6%3] 0-6%3 PENDING Resources\n"
    assert each == [f"{job}_{task}" for task in range(7)]
    most, ids = zip(*((tmp_path / f"{job}_{task}.log").read_text().split() for task in range(7)), strict=True)
    assert max(map(int, most)) <= 3
    assert sorted(ids, key=int) == [str(int(job) + offset) for offset in range(7)]
    assert ids[6] == job  # so that `scontrol requeue $SLURM_JOB_ID` there means the whole array
    assert told == [f"{job}_{task}|{ids[task]}|COMPLETED" for task in range(7)]


@pytest.mark.slow
def test_one_element_is_requeued_and_its_siblings_stay(tmp_path):
    with cluster(tmp_path, requeue_delay_s=3600) as slurm:
        job = submit(slurm, tmp_path, LISTEN, "-a", "0-2", "--open-mode=append")
        appear(*(tmp_path / f"started.{task}.0" for task in range(3)))
        assert slurm.run("scontrol", "requeue", f"{job}_1").returncode == 0
        slurm.wait(f"{job}_1", state="PENDING", restarts=1)
        reason = slurm.run("squeue", "-h", "-t", "PD", "-o", "%i %r").stdout
        slurm.run("scontrol", "update", f"JobId={job}_1", "StartTime=now")
        slurm.wait(f"{job}_1", restarts=1)
        others = [(item["state"], item["restarts"]) for item in slurm.jobs(job) if item["task"] != 1]
        shown = slurm.run("scontrol", "show", "job", "-o", f"{job}_1").stdout
        again = slurm.run("sacct", "-D", "-X", "-P", "-n", "-o", "JobID,State", "-j", f"{job}_1").stdout
        number = next(item["id"] for item in slurm.jobs(job) if item["task"] == 2)
        assert str(number) == job
        assert (
            slurm.run("scontrol", "requeue", job).returncode == 0
        )  # the trap: the id of the last element is the array's
        slurm.wait(job, state="PENDING", restarts=1)
    assert reason == f"{job}_1 BeginTime\n"
    assert others == [("RUNNING", 0), ("RUNNING", 0)]
    assert " JobState=COMPLETED " in shown and " Restarts=1 " in shown
    assert again == f"{job}_1|REQUEUED\n{job}_1|COMPLETED\n"
    log = (tmp_path / f"{job}_1.log").read_text().splitlines()
    assert [line.split(" id")[0] for line in log if not line.startswith("slurmstepd")][:3] == [
        "start 1 restart none",
        "heard TERM",
        "start 1 restart 1",
    ]
    assert "DUE TO JOB REQUEUE" in (tmp_path / f"{job}_1.log").read_text()


@pytest.mark.slow
def test_preempted_jobs_are_requeued_only_where_they_may_be(tmp_path):
    with cluster(tmp_path) as slurm:
        may = submit(slurm, tmp_path, LISTEN, "-a", "1", "--requeue", "--open-mode=append")
        must_not = submit(slurm, tmp_path, LISTEN, "-a", "2", "--no-requeue")
        appear(tmp_path / "started.1.0", tmp_path / "started.2.0")
        slurm.preempt(f"{may}_1")
        slurm.preempt(f"{must_not}_2")
        slurm.wait(may, restarts=1)
        slurm.wait(must_not)
        assert states(slurm, f"{may},{must_not}") == [f"{may}_1|COMPLETED|0:0", f"{must_not}_2|PREEMPTED|0:0"]
    log = (tmp_path / f"{may}_1.log").read_text()
    assert "heard TERM" in log and "DUE TO PREEMPTION" in log and "restart 1" in log


@pytest.mark.slow
def test_a_time_limit_warns_the_batch_shell_alone_then_ends_the_job(tmp_path):
    child = (
        'python3 -c \'import signal, time; signal.signal(signal.SIGUSR2, lambda *a: print("child heard", '
        "flush=True)); time.sleep(60)'"
    )
    script = LISTEN.replace("sleep 60 &", f"{child} &").replace("exit 75", "wait")
    with cluster(tmp_path, second=0.01) as slurm:
        job = submit(slurm, tmp_path, script, "--time=2", "--signal=B:USR2@60")
        began = time.monotonic()
        ended = slurm.wait(job)[0]
        took = time.monotonic() - began
        assert states(slurm, job) == [f"{job}|TIMEOUT|0:0"]
        elapsed = slurm.run("sacct", "-X", "-P", "-n", "-o", "Elapsed,Timelimit", "-j", job).stdout
    log = (tmp_path / f"{job}.log").read_text().splitlines()
    assert [line for line in log if line.startswith("heard")] == ["heard USR2", "heard TERM"]
    assert "child heard" not in log
    assert 1.0 < took < 4.0  # two minutes at 0.01 s a second, plus what passes between SIGTERM and SIGKILL
    assert ended["reason"] == "TimeLimit"
    assert elapsed.startswith("00:0") and elapsed.endswith("|00:02:00\n")


@pytest.mark.slow
def test_a_node_fails_and_another_has_no_memory_left(tmp_path):
    with cluster(tmp_path, nodes=2, cpus=1) as slurm:
        kept = submit(slurm, tmp_path, LISTEN, "-a", "1", "-w", "n1", "--requeue")
        lost = submit(slurm, tmp_path, LISTEN, "-a", "2", "-w", "n2", "--no-requeue")
        appear(tmp_path / "started.1.0", tmp_path / "started.2.0")
        slurm.fail_node("n1")
        slurm.wait(kept, state="PENDING", restarts=1)
        time.sleep(0.05)  # the scheduler looks again
        reason = slurm.run("squeue", "-h", "-j", kept, "-o", "%R").stdout
        slurm.fail_node("n2")
        slurm.wait(lost)
        slurm.resume_node("n1")
        slurm.wait(kept, restarts=1)
        slurm.resume_node("n2")
        third = submit(slurm, tmp_path, LISTEN, "-a", "3")
        appear(tmp_path / "started.3.0")
        slurm.oom(f"{third}_3")
        slurm.wait(third)
        found = states(slurm, f"{kept},{lost},{third}")
    assert reason.startswith("(Nodes required for job are DOWN, DRAINED")
    assert found == [f"{kept}_1|COMPLETED|0:0", f"{lost}_2|NODE_FAIL|1:0", f"{third}_3|OUT_OF_MEMORY|0:125"]
    assert "oom-kill event" in (tmp_path / f"{third}_3.log").read_text()


def test_dependencies_holds_and_cancelling(tmp_path):
    with cluster(tmp_path) as slurm:
        bad = submit(slurm, tmp_path, "#!/bin/sh\n[ $SLURM_ARRAY_TASK_ID = 0 ] || exit 3\n", "-a", "0-1")
        waiting = submit(slurm, tmp_path, "#!/bin/sh\n", f"--dependency=afterok:{bad}")
        killed = submit(slurm, tmp_path, "#!/bin/sh\n", f"--dependency=afterok:{bad}", "--kill-on-invalid-dep=yes")
        anyway = submit(slurm, tmp_path, "#!/bin/sh\n", "-d", f"afterany:{bad}")
        held = submit(slurm, tmp_path, "#!/bin/sh\n", "--hold", "-a", "3-5")
        for job in (bad, killed, anyway):
            slurm.wait(job)
        reasons = slurm.run("squeue", "-h", "-o", "%i %r").stdout.splitlines()
        slurm.run("scontrol", "release", f"{held}_4")
        slurm.wait(f"{held}_4")
        slurm.run("scancel", held, waiting)
        slurm.wait()
        found = states(slurm, f"{bad},{waiting},{killed},{anyway},{held}")
        unknown = [
            slurm.run(*words)
            for words in (["scancel", "99"], ["scontrol", "requeue", "99"], ["scontrol", "requeue", "99_1"])
        ]
        unseen = slurm.run("sacct", "-X", "-P", "-n", "-o", "JobID").stdout.split()
    assert reasons == [f"{waiting} DependencyNeverSatisfied", f"{held}_[3-5] JobHeldUser"]
    by = f"CANCELLED by {os.getuid()}|0:0"
    assert found[:5] == [
        f"{bad}_0|COMPLETED|0:0",
        f"{bad}_1|FAILED|3:0",
        f"{waiting}|{by}",
        f"{killed}|{by}",
        f"{anyway}|COMPLETED|0:0",
    ]
    assert found[5:] == [f"{held}_4|COMPLETED|0:0", f"{held}_[3,5]|{by}"]
    assert [(done.returncode, done.stderr) for done in unknown] == [
        (0, ""),
        (1, "Invalid job id specified for job 99\n"),
        (1, "99_1: Invalid job id specified\n"),
    ]
    assert waiting not in unseen and bad + "_0" in unseen  # what was never eligible is shown only by its id


@pytest.mark.slow
def test_steps_run_one_task_per_rank_and_forward_signals(tmp_path):
    script = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2
srun bash -c 'echo "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURMD_NODENAME"' | sort
scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1
srun -n 4 --job-name x --kill-on-bad-exit=1 bash -c 'if [ $SLURM_PROCID = 1 ]; then exit 7; fi; sleep 60'
srun -n1 bash -c 'trap "echo task heard; exit 4" USR2; sleep 60 & : > waiting; wait' &
trap '' USR2
wait $!
echo "code $?"
"""
    with cluster(tmp_path, nodes=["a1", "a2"]) as slurm:
        job = submit(slurm, tmp_path, script)
        appear(tmp_path / "waiting")
        slurm.run("scancel", "--signal=USR2", job)  # to the steps, not to the batch shell
        slurm.wait(job)
    lines = (tmp_path / f"{job}.log").read_text().splitlines()
    assert lines[:5] == ["0 0 0 4 a1", "1 1 0 4 a1", "2 0 1 4 a2", "3 1 1 4 a2", "a1"]
    assert (
        "srun: error: a1: task 1: Exited with exit code 7" in lines and "task heard" in lines and lines[-1] == "code 4"
    )


def test_nothing_is_left_behind_not_even_by_a_test_that_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), cluster(tmp_path) as slurm:
        submit(
            slurm,
            tmp_path,
            "#!/bin/bash\nsetsid sleep 61 &\ntrap '' TERM\n(trap '' TERM; : > started.x.0; sleep 61) & wait\n",
        )
        appear(tmp_path / "started.x.0")
        assert len(processes.of_job(f"{slurm.folder}:")) >= 3
        raise ZeroDivisionError
    assert processes.of_job(f"{slurm.folder}:") == []
    assert slurm.run("squeue").returncode == 1
    assert "connect failure" in slurm.run("squeue").stderr


def test_nothing_is_left_behind_when_the_test_process_is_killed(tmp_path):
    program = """import os, sys; from pathlib import Path; from tests.fake_slurm.cluster import cluster
with cluster(Path(sys.argv[1])) as slurm:
    slurm.run("sbatch", "--output=/dev/null", "--wrap", "sleep 62")
    slurm.wait(state="RUNNING")
    os.kill(os.getpid(), 9)"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, timeout=20, check=False)
    assert done.returncode == -9
    server = int((tmp_path / "slurm" / "server.pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{server}/cmdline").exists() and Path(f"/proc/{server}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes.of_job(f"{tmp_path / 'slurm'}:") == []


@pytest.mark.slow
def test_from_a_shell(tmp_path):
    program = f"""set -e; folder="$1"; shift
exports="$({sys.executable} -m tests.fake_slurm up "$folder" --cpus 2)"; eval "$exports"
trap '{sys.executable} -m tests.fake_slurm down "$folder"' EXIT
sbatch --parsable --output=/dev/null --wrap 'sleep 60'; scancel 1; squeue -h -t all -o %i"""
    done = subprocess.run(
        ["bash", "-c", program, "bash", str(tmp_path / "it's here")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n1\n", "")
    assert processes.of_job(f"{tmp_path}") == []
