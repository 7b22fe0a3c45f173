"""The fake SLURM keeps the promises of its README: what a test with it proves is worth no more than these."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fake_slurm import processes
from tests.fake_slurm.cluster import Slurm, cluster
from tests.fake_slurm.text import (
    expand_hosts,
    fold_hosts,
    parse_array,
    parse_limit,
    parse_megabytes,
    short_duration,
    tasks_text,
)

ROOT = Path(__file__).parents[2]
# Tells what it hears, then waits for more; a child does the waiting, so that the trap runs at once.
LISTEN = """#!/bin/bash
trap 'echo "heard USR2"' USR2
trap 'echo "heard TERM"; exit 75' TERM
echo "start ${SLURM_ARRAY_TASK_ID-} restart ${SLURM_RESTART_COUNT-none} id $SLURM_JOB_ID"
: > "started.${SLURM_ARRAY_TASK_ID-x}.${SLURM_RESTART_COUNT-0}"
if [ "${SLURM_RESTART_COUNT-0}" -ge 1 ]; then exit 0; fi
sleep 60 & wait; wait; wait
"""

BASH = "#!/bin/bash\n"

CUT = ("0,10,21,33,47", "0,10,2...", "0,...", "...", "")


def submit(slurm: Slurm, folder: Path, script: str, *options: str) -> str:
    path = folder / "script.sh"
    path.write_text(script)
    done = slurm.run(
        "sbatch",
        "--parsable",
        "--output=%A_%a.log" if "-a" in options else "--output=%j.log",
        *options,
        str(path),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def appear(*paths: Path) -> None:
    """Until a script has set its traps and said so."""
    deadline = time.monotonic() + 10
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, [path.name for path in paths if not path.exists()]
        time.sleep(0.01)


def states(slurm: Slurm, job: str) -> list[str]:
    """As sacct tells them."""
    return slurm.run("sacct", "-X", "-P", "-n", "-o", "JobID,State,ExitCode", "-j", job).stdout.splitlines()


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


def test_what_is_refused_and_what_is_recorded(tmp_path):
    refusals = {
        ("--partition=gpu",): "Invalid partition name specified",
        ("--cpus-per-task=5",): "Requested node configuration is not available",
        ("--gpus-per-node=1",): "Requested node configuration is not available",
        ("--mem=300G",): "Requested node configuration is not available",
        ("--time=2:00:00",): "Requested time limit is invalid (missing or exceeds some limit)",
        ("--array=0-20",): "Invalid job array specification",
    }
    with cluster(tmp_path, max_array_size=20, partitions={"short": {"max_time": "1:00:00"}, "long": {}}) as slurm:
        (tmp_path / "script.sh").write_text("#!/bin/sh\n")
        for options, words in refusals.items():
            done = slurm.run("sbatch", "--test-only", *options, "script.sh", cwd=tmp_path)
            assert (done.returncode, done.stdout) == (1, ""), options
            assert done.stderr.splitlines()[-1] == f"allocation failure: {words}"
        good = slurm.run("sbatch", "--test-only", "--time=59", "script.sh", cwd=tmp_path)
        assert good.returncode == 0 and "to start at" in good.stderr and "in partition short" in good.stderr
        assert slurm.jobs() == []
        slurm.refuse_sbatch(after=1)
        slurm.swallow_reply(after=2)
        first, second, third = (slurm.run("sbatch", "script.sh", cwd=tmp_path) for _ in range(3))
        assert first.stdout == "Submitted batch job 1\n"
        assert second.stderr.splitlines()[0] == "sbatch: error: AssocMaxSubmitJobLimit"
        assert (third.returncode, third.stdout) == (1, "") and "Socket timed out" in third.stderr
        assert [job["name"] for job in slurm.jobs()] == ["1", "2"]  # the third was accepted
        assert len(slurm.calls("sbatch")) == len(refusals) + 4
        assert slurm.calls("sbatch")[-1] == ["sbatch", "script.sh"] and slurm.calls("squeue") == []


def test_without_accounting_and_without_a_controller(tmp_path):
    with cluster(tmp_path, accounting=False) as slurm:
        job = submit(slurm, tmp_path, LISTEN, "-a", "0")
        sacct = slurm.run("sacct", "-X", "-j", job)
        assert (sacct.returncode, sacct.stderr) == (1, "Slurm accounting storage is disabled\n")
        assert slurm.run("scontrol", "update", f"JobId={job}", "ArrayTaskThrottle=many").returncode == 1
        assert slurm.run("sbatch", stdin='#!/bin/sh\n#SBATCH --comment "open\n').returncode == 1
        assert "accounting_storage/none" in slurm.run("scontrol", "show", "config").stdout
        unknown = slurm.run("squeue", "-h", "-j", "99")
        assert (unknown.returncode, unknown.stderr) == (1, "slurm_load_jobs error: Invalid job id specified\n")
        assert slurm.run("squeue", "-h", "-j", f"99,{job}", "-o", "%i").stdout == f"{job}_0\n"
        slurm.controller_down()
        for words in (
            ["squeue"],
            ["scontrol", "show", "job", job],
            ["scancel", job],
            ["sinfo"],
            ["sbatch", str(tmp_path / "script.sh")],
        ):
            done = slurm.run(*words)
            assert done.returncode == 1 and "Unable to contact slurm controller (connect failure)" in done.stderr, words
        slurm.controller_up()
        assert slurm.run("squeue", "-h", "-o", "%i %T").stdout == f"{job}_0 RUNNING\n"


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


def test_notations():
    limits = ("90", "1:30", "1:00:00", "1-0", "1-2:03:04", "UNLIMITED")
    assert [parse_limit(text) for text in limits] == [5400, 120, 3600, 86400, 93840, None]
    assert [parse_megabytes(text) for text in ("18GB", "500M", "2000", "1T")] == [18432, 500, 2000, 1 << 20]
    assert parse_array("1,5-9:2%4") == ((1, 5, 7, 9), 4)
    assert tasks_text((1, 5, 6, 7, 9), 4) == "1,5-7,9%4"
    # as a real 22.05 prints them; a text that is cut may end within a number
    assert [tasks_text((0, 10, 21, 33, 47), 4, length) for length in (0, 10, 6, 4, 1)] == [f"{text}%4" for text in CUT]
    regular = (range(0, 12, 2), range(0, 14, 2), range(1, 30, 7), range(1, 40, 7))
    assert [tasks_text(tasks, 0) for tasks in regular] == ["0,2,4,6,8,10", "0-12:2", "1,8,15,22,29", "1-36:7"]
    assert expand_hosts("n[1-3,07],m") == ["n1", "n2", "n3", "n07", "m"]
    assert fold_hosts(["n1", "n2", "n4", "m"]) == "n[1-2,4],m"
    assert fold_hosts(["127.0.0.1", "127.0.0.2"]) == "127.0.0.[1-2]"
    assert [short_duration(seconds) for seconds in (9, 3600, 90000, None)] == [
        "0:09",
        "1:00:00",
        "1-01:00:00",
        "UNLIMITED",
    ]


# --- limits, nodes and ids ----------------------------------------------------------------------------------------


def test_as_many_jobs_as_the_controller_keeps(tmp_path: Path) -> None:
    with cluster(tmp_path, max_job_count=6) as slurm:
        slurm.hold_all()
        assert slurm.run("sbatch", "--array=0-4", stdin=f"{BASH}true\n").returncode == 0, "five of six"
        told = slurm.run("sbatch", "--test-only", stdin=f"{BASH}true\n")
        assert (told.returncode, told.stderr) == (1, "allocation failure: Resource temporarily unavailable\n")
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(
                [slurm.folder / "bin/sbatch"],
                input=f"{BASH}true\n",
                text=True,
                env=slurm.environ,
                timeout=1.5,
                check=False,
            )
        slurm.configure(max_job_count=7)
        assert slurm.run("sbatch", stdin=f"{BASH}true\n").returncode == 0


def test_nodes_on_which_nothing_may_start(tmp_path: Path) -> None:
    with cluster(tmp_path, nodes=2) as slurm:
        slurm.run("scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=repair")
        assert (
            slurm.run("sinfo", "-h", "-N", "-o", "%N|%T|%c|%m|%G").stdout
            == "n1|drained|4|256000|(null)\nn2|drained|4|256000|(null)\n"
        )
        assert "node configuration is not available" in slurm.run("sbatch", "--test-only", stdin=f"{BASH}true\n").stderr
        assert slurm.run("sbatch", stdin=f"{BASH}true\n").returncode == 0, "and waits"
        slurm.resume_node("n2")
        assert slurm.run("sbatch", "--test-only", stdin=f"{BASH}true\n").returncode == 0
        assert slurm.wait()[0]["nodes"] == ["n2"]


def test_suspended_dropped_and_forgotten(tmp_path: Path) -> None:
    with cluster(tmp_path, cpus=1) as slurm:
        slurm.run("sbatch", "--array=0-3", stdin=f"{BASH}sleep 30\n")
        slurm.wait("1_0", state="RUNNING")
        slurm.run("scancel", "1_2")
        assert [job["name"] for job in slurm.jobs()] == ["1_[1,3]", "1_0"], (
            "an element that waited beside others leaves no trace"
        )
        slurm.run("scontrol", "suspend", "1_0")
        assert slurm.run("squeue", "-h", "-j", "1_0", "-o", "%T").stdout == "SUSPENDED\n"
        slurm.run("scontrol", "resume", "1_0")
        assert slurm.jobs("1_0")[0]["state"] == "RUNNING"
        slurm.run("scancel", "1")
        assert {job["state"] for job in slurm.wait()} == {"CANCELLED"}
        slurm.begin_anew()
        assert slurm.run("sbatch", "--parsable", stdin=f"{BASH}true\n").stdout == "1\n"
