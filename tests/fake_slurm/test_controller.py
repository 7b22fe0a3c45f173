"""The fake SLURM's controller: what it refuses, records, abbreviates and forgets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fake_slurm.cluster import cluster
from tests.fake_slurm.text import (
    expand_hosts,
    fold_hosts,
    parse_array,
    parse_limit,
    parse_megabytes,
    short_duration,
    tasks_text,
)
from tests.grid.fake_jobs import BASH, LISTEN, submit

CUT = ("0,10,21,33,47", "0,10,2...", "0,...", "...", "")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
