"""sbatch text: its record and its behaviour under a stand-in scontrol."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import grid_run
from grid.engine.scripts.script import from_script, job_script
from grid.engine.slurm.sbatch_script import array_spec, sbatch_text
from grid.engine.slurm.site import Mail, Site
from grid.engine.states.runs import Run
from settings.resources import Resources
from tests.grid import fake, record


def _original(
    prefix: str, root: Path, first: int, count: int, resources: Resources, max_running: int | None = None
) -> str:
    """The file of the original command."""
    base, indices = Path("jobs", prefix), range(first, first + count)
    return sbatch_text(prefix, root, base, indices, resources, cap=max_running, is_original=True)


def _normalised(root: Path, text: str) -> str:
    return text.replace(str(root), "/ROOT")


def test_text_is_that_on_record(tmp_path: Path) -> None:
    record.check("slurm.sbatch", _normalised(tmp_path, _original("exp", tmp_path, 0, 38, Resources(partition="p100"))))
    every = Resources(
        ranks=2,
        gpus=4,
        cpus=8,
        mem="40GB",
        time="12:00:00",
        account="lab",
        qos="long",
        constraint="v100|a100",
        exclude="bad[1-2]",
    )
    record.check("slurm_every_option.sbatch", _normalised(tmp_path, _original("e.2", tmp_path, 5, 3, every, 2)))


SITE = Site(
    modules=("cuda/12.4",),
    environment={"NUQ_DATA": "$HOME/data"},
    mail=Mail("me@example.org", ("FAIL", "END")),
    signal_s=300,
    max_requeues=7,
    sbatch=("--licenses=a", "--exclusive", "--cpus-per-task=9"),
)


def _chunk(root: Path, resources: Resources = Resources(), site: Site = Site(), **more: Any) -> str:  # noqa: B008
    more = {"code": "jobs/code/abc", **more}
    return sbatch_text("t-1-c0", root, Path("jobs/t/c0"), range(3), resources, site, **more)


def test_texts_of_chunks_are_those_on_record(tmp_path: Path) -> None:
    record.check("chunk.sbatch", _normalised(tmp_path, _chunk(tmp_path)))
    resources = Resources(gpus=0.5, mem="10G", time="2:00:00", partition="gpu", account="lab", qos="long")
    every = _chunk(tmp_path, resources, SITE, parallel=3, cap=2, dependency="afterok:5")
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
def test_a_script_asks_for_what_its_runs_need(
    asked: tuple[int, int, float | None, int], expected: tuple[str | None, ...]
) -> None:
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
    text = _original("exp", Path("/r"), 0, 38, Resources(partition="p100")).splitlines()
    for line in ("array=0-37", "partition=p100", "ntasks=1", "gpus-per-node=1", "cpus-per-task=3", "mem=18GB",
                 "nodes=1", "requeue", "open-mode=append", "signal=B:USR2@120", "output=/r/jobs/logs/exp_%A_%a.log",
                 "job-name=exp"):  # fmt: skip
        assert f"#SBATCH --{line}" in text
    assert not any(
        word in line
        for line in text
        for word in ("time", "mail", "account", "wckey", "error=")
        if line.startswith("#SBATCH")
    )


def test_gpus_follow_the_ranks_and_can_be_none() -> None:
    assert "--gpus-per-node=3" in _original("e", Path("/r"), 0, 1, Resources(ranks=3))
    assert "gpus" not in _original("e", Path("/r"), 0, 1, Resources(gpus=0))


def test_array_spec() -> None:
    assert array_spec(range(38), None) == "0-37"
    assert array_spec(range(7, 8), 4) == "7-7%4"


def test_awkward_roots() -> None:
    text = _original("e", Path("/a b/100%"), 0, 1, Resources())
    assert "#SBATCH --output='/a b/100%%/jobs/logs/e_%A_%a.log'" in text
    assert "cd '/a b/100%' || exit 2" in text


def test_another_submitit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.6.0")
    with pytest.raises(ValueError, match=r"submitit 1\.6\.0 .* >=1\.5,<1\.6"):
        _original("e", Path("/r"), 0, 1, Resources())


@pytest.mark.parametrize("change", ["moved", "other parameters"])
def test_a_submitit_that_has_moved_its_function_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.5.99")
    if change == "moved":
        monkeypatch.delattr("submitit.slurm.slurm._make_sbatch_string")
    else:
        monkeypatch.setattr("submitit.slurm.slurm._make_sbatch_string", lambda command, folder: "")
    assert grid_run.main(["--grid", "nuq", "--run_name", "mnist"], tmp_path) == 2
    assert capsys.readouterr().err == (
        "grid_run.py: submitit 1.5.99 is installed, but sbatch files are written with a private function of submitit "
        ">=1.5,<1.6, and this one may have changed it: pip install submitit==1.5.4\n"
    )
    assert not list(tmp_path.iterdir()), "nothing is written"


def _batch(
    root: Path, restarts: int | None, state: str = "RUNNING", reason: str = "None"
) -> tuple[subprocess.Popen[str], Path]:
    """The batch script as element 0 of array 40, with an scontrol that tells a state and notes what it is asked."""
    binaries, asked = root / "bin", root / "asked"
    binaries.mkdir(exist_ok=True)
    told = (
        f"JobId=41 ArrayTaskId=0 JobName=a JobState={state} Reason={reason} Dependency=(null) Comment=Reason=TimeLimit"
    )
    show = f"if [ \"$*\" = 'show job -o 40_0' ]; then echo '{told}'; exit; fi"
    (binaries / "scontrol").write_text(f'#!/bin/sh\n{show}\necho "$@" >>"{asked}"\n')
    (binaries / "scontrol").chmod(0o755)
    script = root / "batch.sh"
    script.write_text(_original("x", root, 0, 1, Resources()))
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
def test_requeue_names_the_element_and_is_bounded(
    tmp_path: Path, code: int, restarts: int | None, ended: int, requeued: bool
) -> None:
    root = tmp_path / "it's here"
    _prepared(root, {1: code})
    process, asked = _batch(root, restarts)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == ended
    assert (asked.read_text() if asked.exists() else "") == ("requeue 40_0\n" if requeued else "")
    assert ("submit this file again" in output) == (restarts == 100)


USR2, TERM = signal.SIGUSR2, signal.SIGTERM
ENDS = [
    ((TERM,), "COMPLETING", "None", False),  # scancel, or SLURM's own requeue
    ((TERM,), "PENDING", "None", False),
    ((TERM,), "RUNNING", "None", False),  # SLURM knows nothing of it
    ((TERM,), "COMPLETING", "TimeLimit", True),
    ((USR2,), "RUNNING", "None", True),
    ((USR2,), "COMPLETING", "TimeLimit", True),  # the time limit came before the checkpoint was written
    ((USR2,), "COMPLETING", "None", False),  # scancel, whose signal is still to come
    ((USR2, TERM), "COMPLETING", "None", False),  # scancel while the checkpoint is written
    ((USR2, TERM), "RUNNING", "None", False),
    ((TERM, USR2), "RUNNING", "None", False),
    ((USR2, TERM), "COMPLETING", "TimeLimit", True),
]
LATE = 'time.sleep(0.7)\n    tell("preempted", 75)'  # a checkpoint takes its time


@pytest.mark.parametrize(("numbers", "state", "reason", "requeued"), ENDS)
def test_after_a_term_only_the_time_limit_is_a_reason_to_go_on(
    tmp_path: Path, numbers: tuple[signal.Signals, ...], state: str, reason: str, requeued: bool
) -> None:
    (run,) = _prepared(tmp_path, {1: "wait"})
    ignoring = "for each in (signal.SIGUSR2, signal.SIGTERM):\n        signal.signal(each, signal.SIG_IGN)\n    "
    (tmp_path / "main.py").write_text(fake.MAIN.replace('tell("preempted", 75)', ignoring + LATE))
    process, asked = _batch(tmp_path, None, state, reason)
    fake.until((run.folder.path / "started").exists, "the run did not start")
    for number in numbers:
        process.send_signal(number)
        fake.until(lambda: "heard" in run.folder.log.read_text(), "the run heard nothing")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == (0 if requeued else 75)
    assert ("not requeued after a SIGTERM" in output) == (not requeued and state != "PENDING")
    assert (asked.read_text() if asked.exists() else "") == ("requeue 40_0\n" if requeued else "")
    assert run.state().word == "preempted"


# --- a chunk, executed --------------------------------------------------------------------------------------------


def _element(root: Path, text: str, *, scontrol: str, silent: int = 0, **more: str) -> subprocess.Popen[str]:
    """The batch script as element 0 of array 40.

    ``scontrol`` is what its stand-in does beside telling a job's state, of which it says nothing the first ``silent``
    times.
    """
    binaries = root / "bin"
    binaries.mkdir(exist_ok=True)
    show = 'if [ "$1" = show ]; then echo "JobId=41 JobState=RUNNING Reason=None Dependency=(null)"; exit; fi'
    pause = f'if [ "$(wc -l <"{root}/slept")" -le {silent} ]; then exit 1; fi'
    for name, lines in (("scontrol", f"{pause}\n{show}\n{scontrol}"), ("sleep", f'echo "$1" >>"{root}/slept"')):
        (binaries / name).write_text(f"#!/bin/sh\n{lines}\n")
        (binaries / name).chmod(0o755)
    (root / "batch.sh").write_text(text)
    element = {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "41"}
    environment = fake.environment(PATH=f"{binaries}:{os.environ['PATH']}", **{**element, **more})
    return subprocess.Popen(
        ["bash", str(root / "batch.sh")], env=environment, cwd="/", stdout=subprocess.PIPE, text=True
    )


def _chunk_of_one(root: Path, behaviour: dict[int, int | str], **more: Any) -> tuple[Run, str]:
    fake.checkout(root, behaviour)
    (run,) = fake.runs(root, 1)
    (root / "jobs" / "t").mkdir(parents=True)
    (root / "jobs" / "t" / "c0_0.sh").write_text(job_script("s", [run.run_dir], from_script(2), 1))
    return run, _chunk(root, **{"code": "", **more})


def test_an_element_runs_the_snapshot_after_the_sites_lines(tmp_path: Path) -> None:
    root = tmp_path / "it's here"
    site = Site(activate=("export GREETING=hello",))
    run, text = _chunk_of_one(root, {}, code="jobs/code/abc", site=site)
    pinned = fake.checkout(root / "jobs" / "code" / "abc")
    (pinned / "runs").symlink_to(root / "runs")
    (pinned / "main.py").write_text(
        "import os\nprint(os.environ['GREETING'], os.environ['NUQ_SHUTDOWN_S'])\n" + fake.MAIN
    )
    (root / "main.py").write_text("raise SystemExit(9)\n")
    process = _element(root, text, scontrol="exit 1")
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert run.folder.log.read_text().startswith("hello 100\n")
    assert (root / "jobs" / "t" / "c0.job").read_text() == "40\n"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), set()),
        (("--gpu-bind=closest",), {"SLURM_GPU_BIND", "SLURM_TRES_BIND"}),
        (("--mem-bind=local", "--hint=nomultithread"), {"SLURM_MEM_BIND_TYPE", "SLURM_THREADS_PER_CORE"}),
    ],
)
def test_what_binds_a_step_around_sbatch_does_not_bind_the_job(
    options: tuple[str, ...], kept: set[str], tmp_path: Path
) -> None:
    # salloc and srun leave these variables; sbatch overwrites those that options of the file's own are the source of.
    binding = (
        "SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_MEM_BIND_TYPE SLURM_GPU_BIND SLURM_TRES_BIND SLURM_GPUS_PER_TASK "
        "SLURM_THREADS_PER_CORE"
    )
    around = dict.fromkeys([*binding.split(), "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_NODE"], "1")
    site = Site(activate=(f"env >{tmp_path}/seen", "exit 0"), sbatch=options)
    _, text = _chunk_of_one(tmp_path, {}, site=site)
    process = _element(tmp_path, text, scontrol="exit 1", silent=0, **around)
    process.communicate(timeout=20)
    seen = {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}
    assert seen & around.keys() == kept | {"SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_NODE"}


def test_lines_of_the_site_that_fail_end_the_element(tmp_path: Path) -> None:
    run, text = _chunk_of_one(tmp_path, {}, site=Site(activate=("false",)))
    process = _element(tmp_path, text, scontrol="exit 1")
    process.communicate(timeout=20)
    assert process.returncode == 2
    assert run.state().word == "new"


def test_a_signal_while_the_site_prepares_is_a_requeue(tmp_path: Path) -> None:
    run, text = _chunk_of_one(
        tmp_path, {}, site=Site(activate=(f"touch {tmp_path}/preparing; exec 3<>{tmp_path}/pipe; read -r word <&3",))
    )
    os.mkfifo(tmp_path / "pipe")
    process = _element(tmp_path, text, scontrol=f'echo "$@" >>"{tmp_path}/asked"')
    fake.until((tmp_path / "preparing").exists, "the preparation did not start")
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert (tmp_path / "asked").read_text() == "requeue 40_0\n"
    assert run.state().word == "new"


@pytest.mark.parametrize(("failures", "ended"), [(0, 0), (2, 0), (4, 75)])
def test_a_requeue_waits_for_a_controller_that_is_down(tmp_path: Path, failures: int, ended: int) -> None:
    _, text = _chunk_of_one(tmp_path, {1: 75})
    count = f'echo x >>"{tmp_path}/asked"; [ "$(wc -l <"{tmp_path}/asked")" -gt {failures} ]'
    process = _element(tmp_path, text, scontrol=count)
    process.communicate(timeout=20)
    assert process.returncode == ended
    assert (tmp_path / "slept").read_text().split() == ["0", "5", "20", "60"][: failures + 1]


@pytest.mark.parametrize(("silent", "stopped", "ended"), [(0, 1, 75), (2, 1, 75), (4, 1, 75), (2, 0, 0), (4, 0, 75)])
def test_silence_is_no_answer(tmp_path: Path, silent: int, stopped: int, ended: int) -> None:
    # A mass cancel, and a controller that is down just then: its silence does not bring a cancelled run back.
    run, text = _chunk_of_one(tmp_path, {1: "wait" if stopped else 75})
    process = _element(tmp_path, text, scontrol=f'echo "$@" >>"{tmp_path}/asked"', silent=silent)
    if stopped:
        fake.until((run.folder.path / "started").exists, "the run did not start")
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == ended
    assert (tmp_path / "asked").exists() == (ended == 0)
    assert (tmp_path / "slept").read_text().split() == ["0", "5", "20", "60"][: silent + 1]


def test_restarts_of_an_element_are_bounded_by_the_site(tmp_path: Path) -> None:
    _, text = _chunk_of_one(tmp_path, {1: 75}, site=Site(max_requeues=2))
    process = _element(tmp_path, text, scontrol=f'echo x >>"{tmp_path}/asked"', SLURM_RESTART_COUNT="2")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 75
    assert "not requeued after 2 restarts" in output
    assert not (tmp_path / "asked").exists()


def test_looking_again_for_a_run_in_other_hands_is_no_restart_of_it(tmp_path: Path) -> None:
    run, text = _chunk_of_one(tmp_path, {1: 75}, site=Site(max_requeues=2))
    held = os.open(run.folder.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    codes = []
    for restarts in range(6):
        if restarts == 3:
            os.close(held)
        process = _element(tmp_path, text, scontrol=f'echo x >>"{tmp_path}/asked"', SLURM_RESTART_COUNT=str(restarts))
        process.communicate(timeout=20)
        codes.append(process.returncode)
    assert codes == [0, 0, 0, 0, 0, 75], "requeued three times to look, twice from a checkpoint, then no more"
    assert (tmp_path / "asked").read_text().split() == ["x"] * 5
    ledger = (tmp_path / "jobs" / "t" / "c0_0.ended").read_text().split("\n")
    assert ledger[:4] == ["held@0", "held@1", "held@2", f"75@3 {run.run_dir}"]
