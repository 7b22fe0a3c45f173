"""sbatch text: its record, its behaviour under a stand-in scontrol, submission."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from grid.engine import slurm
from grid.engine.runs import Run
from grid.engine.script import from_script, job_script
from grid.engine.site import Mail, Site
from grid.engine.slurm import Resources, array_spec, chunk_text, sbatch_text
from tests.grid import fake, record


def _normalised(root: Path, text: str) -> str:
    return text.replace(str(root), "/ROOT")


def test_text_is_that_on_record(tmp_path: Path) -> None:
    record.check("slurm.sbatch", _normalised(tmp_path, sbatch_text("exp", tmp_path, 0, 38, Resources(partition="p100"))))
    every = Resources(
        ranks=2, gpus=4, cpus=8, mem="40GB", time="12:00:00", account="lab", qos="long", constraint="v100|a100", exclude="bad[1-2]"
    )
    record.check("slurm_every_option.sbatch", _normalised(tmp_path, sbatch_text("e.2", tmp_path, 5, 3, every, 2)))


SITE = Site(
    modules=("cuda/12.4",),
    environment={"NUQ_DATA": "$HOME/data"},
    mail=Mail("me@example.org", ("FAIL", "END")),
    signal_s=300,
    max_requeues=7,
    sbatch=("--licenses=a", "--exclusive", "--cpus-per-task=9"),
)


def _chunk(root: Path, resources: Resources = Resources(), site: Site = Site(), **more: Any) -> str:  # noqa: B008
    return chunk_text("t-1-c0", root, Path("jobs/t"), "c0", 3, resources, site, **{"code": "jobs/code/abc", **more})


def test_texts_of_chunks_are_those_on_record(tmp_path: Path) -> None:
    record.check("chunk.sbatch", _normalised(tmp_path, _chunk(tmp_path)))
    resources = Resources(gpus=0.5, mem="10G", time="2:00:00", partition="gpu", account="lab", qos="long")
    every = _chunk(tmp_path, resources, SITE, parallel=3, cap=2, comment="c", dependency="afterok:5")
    record.check("chunk_every_option.sbatch", _normalised(tmp_path, every))


def _options(text: str) -> dict[str, str]:
    words = (line.removeprefix("#SBATCH --").partition("=") for line in text.splitlines() if line.startswith("#SBATCH"))
    return {name: value for name, _, value in words}


SHAPES = [
    # nodes, ranks, gpus, parallel -> tasks per node, cores per task, GPUs per node, memory per node
    ((1, 1, None, 1), ("1", "3", "1", "18GB")),
    ((1, 4, None, 1), ("4", "3", "4", "18GB")),
    ((1, 2, None, 3), ("6", "3", "6", "55296M")),
    ((1, 1, 0.5, 3), ("3", "3", "2", "55296M")),
    ((1, 1, 0, 2), ("2", "3", None, "36864M")),
    ((2, 8, None, 1), ("1", "12", "4", "18GB")),  # one torchrun per node has the cores of all its ranks
]


@pytest.mark.parametrize(("asked", "expected"), SHAPES)
def test_a_script_asks_for_what_its_runs_need(asked: tuple[int, int, float | None, int], expected: tuple[str | None, ...]) -> None:
    nodes, ranks, gpus, parallel = asked
    options = _options(_chunk(Path("/r"), Resources(nodes=nodes, ranks=ranks, gpus=gpus), parallel=parallel))
    assert options["nodes"] == str(nodes)
    names = ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem")
    assert tuple(options.get(name) for name in names) == expected


def test_what_a_site_adds_wins_and_nothing_is_said_twice() -> None:
    text = _chunk(Path("/r"), Resources(cpus=4), SITE, dependency="afterok:5")
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert "#SBATCH --exclusive" in lines
    options = _options(text)
    assert len(options) == len(lines)
    assert (options["cpus-per-task"], options["licenses"], options["signal"]) == ("9", "a", "B:USR2@300")
    assert (options["dependency"], options["kill-on-invalid-dep"]) == ("afterok:5", "yes")
    assert "export NUQ_SHUTDOWN_S=280" in text


def test_chunks_below_awkward_roots() -> None:
    text = _chunk(Path("/a b/100%"))
    assert "#SBATCH --output='/a b/100%%/jobs/t/logs/c0_%A_%a.log'" in text
    assert "export NUQ_CODE='/a b/100%/jobs/code/abc'" in text
    assert "NUQ_CODE" not in _chunk(Path("/r"), code="")


def test_defaults_of_a_script() -> None:
    text = sbatch_text("exp", Path("/r"), 0, 38, Resources(partition="p100")).splitlines()
    for line in ("array=0-37", "partition=p100", "ntasks=1", "gpus-per-node=1", "cpus-per-task=3", "mem=18GB", "nodes=1", "requeue",
                 "open-mode=append", "signal=B:USR2@120", "output=/r/jobs/logs/exp_%A_%a.log", "job-name=exp"):  # fmt: skip
        assert f"#SBATCH --{line}" in text
    assert not any(word in line for line in text for word in ("time", "mail", "account", "wckey", "error=") if line.startswith("#SBATCH"))


def test_gpus_follow_the_ranks_and_can_be_none() -> None:
    assert "--gpus-per-node=3" in sbatch_text("e", Path("/r"), 0, 1, Resources(ranks=3))
    assert "gpus" not in sbatch_text("e", Path("/r"), 0, 1, Resources(gpus=0))


def test_array_spec() -> None:
    assert array_spec(0, 38, None) == "0-37"
    assert array_spec(7, 1, 4) == "7-7%4"


def test_awkward_roots() -> None:
    text = sbatch_text("e", Path("/a b/100%"), 0, 1, Resources())
    assert "#SBATCH --output='/a b/100%%/jobs/logs/e_%A_%a.log'" in text
    assert "cd '/a b/100%' || exit 2" in text


def test_another_submitit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.6.0")
    with pytest.raises(RuntimeError, match=r"submitit 1\.6\.0 .* >=1\.5,<1\.6"):
        sbatch_text("e", Path("/r"), 0, 1, Resources())


def _batch(root: Path, restarts: int | None, state: str = "RUNNING") -> tuple[subprocess.Popen[str], Path]:
    """The batch script as element 0 of array 40, with an scontrol that tells ``state`` and notes what it is asked to do."""
    binaries, asked = root / "bin", root / "asked"
    binaries.mkdir(exist_ok=True)
    show = f"if [ \"$*\" = 'show job -o 40_0' ]; then echo 'JobId=41 ArrayTaskId=0 JobState={state} Reason=None'; exit; fi"
    (binaries / "scontrol").write_text(f'#!/bin/sh\n{show}\necho "$@" >>"{asked}"\n')
    (binaries / "scontrol").chmod(0o755)
    script = root / "batch.sh"
    script.write_text(sbatch_text("x", root, 0, 1, Resources()))
    more = {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "40"}
    more |= {} if restarts is None else {"SLURM_RESTART_COUNT": str(restarts)}
    environment = fake.environment(PATH=f"{binaries}:{os.environ['PATH']}", **more)
    return subprocess.Popen(["bash", str(script)], env=environment, cwd="/", stdout=subprocess.PIPE, text=True), asked


def _prepared(root: Path, behaviour: dict[int, int | str]) -> list[Run]:
    fake.checkout(root, behaviour)
    runs = fake.runs(root, 1)
    (root / "jobs").mkdir()
    (root / "jobs" / "x_0.sh").write_text(job_script("s", [runs[0].run_dir], from_script(1), 1))
    return runs


REQUEUES = [(0, None, 0, False), (3, None, 1, False), (75, None, 0, True), (75, 99, 0, True), (75, 100, 75, False)]


@pytest.mark.parametrize(("code", "restarts", "ended", "requeued"), REQUEUES)
def test_requeue_names_the_element_and_is_bounded(tmp_path: Path, code: int, restarts: int | None, ended: int, requeued: bool) -> None:
    root = tmp_path / "it's here"
    _prepared(root, {1: code})
    process, asked = _batch(root, restarts)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == ended
    assert (asked.read_text() if asked.exists() else "") == ("requeue 40_0\n" if requeued else "")
    assert ("submit this file again" in output) == (restarts == 100)


ENDS = [
    (signal.SIGTERM, "COMPLETING", False),  # scancel, or SLURM's own requeue
    (signal.SIGTERM, "PENDING", False),
    (signal.SIGTERM, "RUNNING", True),  # preemption with a grace time
    (signal.SIGUSR2, "RUNNING", True),
    (signal.SIGUSR2, "COMPLETING", True),  # the time limit came before the checkpoint was written
]


@pytest.mark.parametrize(("number", "state", "requeued"), ENDS)
def test_the_last_word_is_slurms_when_it_ends_a_job_itself(tmp_path: Path, number: signal.Signals, state: str, requeued: bool) -> None:
    (run,) = _prepared(tmp_path, {1: "wait"})
    process, asked = _batch(tmp_path, None, state)
    end = time.monotonic() + 15
    while not (run.folder.path / "started").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == (0 if requeued else 75)
    assert ("if it was cancelled, submit this file again" in output) == (not requeued)
    assert (asked.read_text() if asked.exists() else "") == ("requeue 40_0\n" if requeued else "")
    assert run.state().word == "preempted"


def test_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no sbatch on this machine"):
        slurm.submit(tmp_path / "x")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n[ \"$1\" = --parsable ] && echo '4711;cluster'\n")
    sbatch.chmod(0o755)
    assert slurm.submit(tmp_path / "x") == "4711"
    sbatch.write_text("#!/bin/sh\necho 'invalid partition specified: p100' >&2\nexit 1\n")
    with pytest.raises(ValueError, match="invalid partition specified: p100"):
        slurm.submit(tmp_path / "x")
