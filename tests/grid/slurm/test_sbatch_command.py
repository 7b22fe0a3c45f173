"""Submission by sbatch: its answers, its refusals, and no answer."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grid.engine.slurm import sbatch_command
from grid.engine.slurm.scheduler_cache import Full, Unreachable


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Sets what a stand-in sbatch does; gives a file to submit."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def does(lines: str) -> Path:
        (tmp_path / "sbatch").write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/asked"\n{lines}\n')
        (tmp_path / "sbatch").chmod(0o755)
        return tmp_path / "x.sbatch"

    return does


def test_submission_needs_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"^there is no sbatch on this machine: submit on a login node"):
        sbatch_command.submit(tmp_path / "x")


@pytest.mark.parametrize(
    "answer",
    [
        "4711",
        "4711;cluster",
        "a notice of the site\\n4711",
        "Bienvenue au 1er n\\351ud: 12 jobs\\n\\n4711\\nprojet d\\351bit\\351: 3 heures",
        "4711;cluster\\r\\n  \\n",
    ],
)
def test_the_answer_is_the_jobs_id(answer: str, sbatch: Callable[[str], Path]) -> None:
    path = sbatch(f"printf '{answer}\\n'")
    assert sbatch_command.submit(path) == "4711"
    assert (path.parent / "asked").read_text() == f"--parsable {path}\n"


REFUSED = [
    "invalid partition specified: p100",
    "Batch job submission failed: Job violates accounting/QOS policy",
    "Batch job submission failed: Requested node configuration is not available",
]
UNKNOWN = [
    "Unable to contact slurm controller (connect failure)",
    "error: fetch_config: DNS SRV lookup failed fatal: Could not establish a configuration source",
    "Batch job submission failed: Socket timed out on send/recv operation",
    "Batch job submission failed: Unexpected message received",
    "Batch job submission failed: Zero Bytes were transmitted or received",
    "Slurm temporarily unable to accept job, sleeping and retrying",
]


@pytest.mark.parametrize("words", REFUSED)
def test_what_slurm_refuses_is_told_in_its_words(words: str, sbatch: Callable[[str], Path]) -> None:
    path = sbatch(f"echo 'sbatch: error: {words}' >&2; exit 1")
    for ask in (sbatch_command.submit, sbatch_command.test_only):
        with pytest.raises(ValueError, match=f"sbatch refused .*{words}"):
            ask(path)


@pytest.mark.parametrize("words", ["AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit"])
def test_too_many_jobs_are_a_matter_of_waiting(words: str, sbatch: Callable[[str], Path]) -> None:
    path = sbatch(f"echo 'sbatch: error: {words}' >&2; exit 1")
    with pytest.raises(ValueError, match=f"{words}; when some of your jobs have ended, the same command goes on"):
        sbatch_command.submit(path)


@pytest.mark.parametrize("words", UNKNOWN)
def test_no_answer_is_no_refusal(words: str, sbatch: Callable[[str], Path]) -> None:
    path = sbatch(f"echo 'sbatch: error: {words}' >&2; exit 1")
    for ask in (sbatch_command.submit, sbatch_command.test_only):
        with pytest.raises(Unreachable, match=re.escape(words)):
            ask(path)


@pytest.mark.parametrize(
    "lines",
    [
        *("", "echo 'Submitted to the queue'", "kill -9 $$", "echo 47 11", "printf '47\\n11\\n'", "printf '\\351\\n'"),
        *("echo 4711; echo 'the mail could not be sent' >&2; exit 1", "exit 137"),
    ],
)
def test_an_answer_that_is_no_id_says_nothing(lines: str, sbatch: Callable[[str], Path]) -> None:
    with pytest.raises(Unreachable, match="whether SLURM took the job is not known"):
        sbatch_command.submit(sbatch(lines))


@pytest.mark.parametrize("error", [ValueError("nobody expects it"), OSError(28, "No space left on device")])
def test_whatever_goes_wrong_once_sbatch_runs_is_not_known(
    error: Exception, sbatch: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*args: object) -> None:
        raise error

    path = sbatch("echo 4711")
    monkeypatch.setattr(sbatch_command, "_heard", breaks)
    with pytest.raises(Unreachable, match="whether SLURM took the job is not known"):
        sbatch_command.submit(path)


def test_an_answer_that_does_not_come_is_not_waited_for(
    sbatch: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbatch_command, "ANSWER_S", 0.2)
    with pytest.raises(Unreachable, match="no answer within"):
        sbatch_command.submit(sbatch("exec sleep 20"))


def test_a_full_controller_is_no_missing_answer(sbatch: Callable[[str], Path]) -> None:
    path = sbatch(
        "echo 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying' >&2; exec sleep 20"
    )
    began = time.monotonic()
    with pytest.raises(Full, match="temporarily unable to accept job"):
        sbatch_command.submit(path)
    assert time.monotonic() - began < 10, "it is not waited for"


def test_slurms_opinion(sbatch: Callable[[str], Path]) -> None:
    path = sbatch("echo 'sbatch: Job 9 to start at 2026-01-01T00:00:00' >&2")
    sbatch_command.test_only(path)
    assert (path.parent / "asked").read_text() == f"--test-only {path}\n"


def test_the_callers_job_and_step_do_not_reach_the_job(
    sbatch: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {
        "SLURM_CONF": "c",
        "SLURM_CLUSTERS": "here",
        "SLURM_JWT": "j",
        "NUQ_DATA": "d",
        "NUQ_PYTHON": "p",
        "HINT": "h",
    }
    gone = {"SLURM_CPU_BIND": "map_cpu:0", "SLURM_JOB_ID": "7", "SLURM_HINT": "x", "NUQ_NPROC": "8", "NUQ_CODE": "x"}
    gone |= {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for name, value in {**kept, **gone, "SBATCH_ARRAY_INX": "0-9", "SBATCH_PARTITION": "fast"}.items():
        monkeypatch.setenv(name, value)
    path = sbatch('env >"${0%/*}/seen"; echo 4711')
    sbatch_command.submit(path)
    seen = dict(line.split("=", 1) for line in (path.parent / "seen").read_text().splitlines() if "=" in line)
    assert {**kept, "SBATCH_PARTITION": "fast"}.items() <= seen.items()
    assert not {*gone, "SBATCH_ARRAY_INX"} & set(seen)


def test_what_of_a_shell_decides_about_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    shell = {"SBATCH_PARTITION": "fast", "SBATCH_TIMELIMIT": "5", "OMP_NUM_THREADS": "3", "NUQ_PYTHON": "p"}
    for name, value in {
        **shell,
        "HOME": "/h",
        "SLURM_CPU_BIND": "x",
        "SBATCH_SIGNAL": "USR1",
        "NUQ_NPROC": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert sbatch_command.of_the_shell("#!/bin/bash\n#SBATCH --mem=1G\n") == shell
    del shell["SBATCH_PARTITION"]
    assert sbatch_command.of_the_shell("#SBATCH --partition=slow\n") == shell
