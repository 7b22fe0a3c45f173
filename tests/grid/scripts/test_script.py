"""Generated bash: run.sh and the files of tasks; exit codes, signals, ranks, nodes, pinned code."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from grid.engine.scripts.script import from_script, job_script, run_script, task_script
from grid.engine.sweep import Sweep, find, load, point
from grid.engine.sweeps.overrides import pinned
from settings.resources import Resources
from tests.grid import fake, record
from tests.grid.sweeps.test_overrides import AWKWARD
from tests.tiers import few


def test_texts_are_those_on_record() -> None:
    item = find(load("nuq", "cifar10_full_resnet32").experiments(), "ALQ")[0]
    record.check("run.sh", run_script(item, "runs/x/alq", from_script(3)))
    waits = dataclasses.replace(item, after={"qsgd-s1": "QSGD", "it's": "it"})
    record.check("run_after.sh", run_script(waits, "runs/x/alq", from_script(3)))
    record.check("job.sh", job_script("nuq.x", ["runs/x/alq", "runs/x/it's"], from_script(1), 2))
    three = [f"runs/x/{name}" for name in "abc"]
    record.check(
        "job_slots.sh",
        job_script("nuq.x", three, from_script(3), Resources(ranks=2), parallel=2, preamble=["module load a"]),
    )
    record.check("job_shared_gpu.sh", job_script("nuq.x", three, from_script(3), Resources(gpus=0.5), parallel=3))
    record.check("job_nodes.sh", job_script("nuq.x", three, from_script(3), Resources(nodes=2, ranks=4)))
    record.check("empty.sh", job_script("nuq.x", [], from_script(1), 1))
    record.check("task.sh", task_script("nuq.x", "A doc.", [item], "python grid_run.py pjobs"))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    paths = [str(path) for path in record.GOLDEN.iterdir()]
    done = subprocess.run(
        ["shellcheck", "--exclude=SC1090,SC2016,SC2317", *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_records_are_valid_bash() -> None:
    for path in record.GOLDEN.iterdir():
        subprocess.run(["bash", "-n", str(path)], check=True)


# --- run.sh, executed ---------------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=6)
@given(AWKWARD, st.text(st.sampled_from("a '\"\\$\n`;&*"), min_size=1, max_size=6))
def test_awkward_values_and_folders_reach_main_unharmed(
    tmp_path_factory: pytest.TempPathFactory, value: str, folder: str
) -> None:
    root = fake.checkout(tmp_path_factory.mktemp("co") / f"x{folder}")
    item = Sweep([point("a\nb", method="qsgd", data_dir=value)], folder="s").experiments()[0]
    path = root / "runs" / "s" / "one" / "run.sh"
    path.parent.mkdir(parents=True)
    path.write_text(run_script(item, "runs/s/one", from_script(3)))
    assert fake.bash(path).returncode == 0
    (line,) = [text for text in (path.parent / "stdout.log").read_text().splitlines() if text.startswith("args ")]
    assert json.loads(line.removeprefix("args ")) == pinned(item, "runs/s/one")


@few(2, "code", [0, 1, 2, 3, 75, 77])
def test_run_ends_with_the_code_of_main(tmp_path: Path, code: int) -> None:
    root = fake.checkout(tmp_path / "a checkout", {1: code})
    (run,) = fake.runs(root, 1)
    assert fake.bash(run.folder.script).returncode == code
    assert fake.bash(run.folder.script).returncode == code
    assert run.folder.log.read_text().count("args ") == 2, "the log is appended to"


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("level", ["run", "job"])
def test_signals_reach_main_and_ask_for_a_requeue(tmp_path: Path, number: signal.Signals, level: str) -> None:
    root = fake.checkout(tmp_path, {1: "wait"})
    first, second = fake.runs(root, 2)
    job = root / "jobs" / "x_0.sh"
    job.parent.mkdir()
    job.write_text(job_script("s", [first.run_dir, second.run_dir], from_script(1), 1))
    path = first.folder.script if level == "run" else job
    with fake.started(root, ["bash", str(path)], env=fake.environment()) as process:
        fake.until((first.folder.path / "started").exists, "the run did not start")
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"heard {number.name}" in first.folder.log.read_text()
    assert first.state().word == "preempted"
    assert second.state().word == "new", "nothing new is started after a signal"
    if level == "job":
        assert "2 of 2 left: asking to be requeued" in output


ENDS_AT_ONCE = (
    "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(75))\nopen('up', 'w')\ntime.sleep(60)\n"
)


def test_a_signal_to_the_whole_group_is_a_requeue_every_time(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "main.py").write_text(ENDS_AT_ONCE)
    for _ in range(8):  # bash loses the code of a child that ends together with the signal, more often than not
        (root / "up").unlink(missing_ok=True)
        with fake.started(
            root, ["bash", str(run.folder.script)], env=fake.environment(), start_new_session=True
        ) as process:
            fake.until((root / "up").exists, "the run did not start")
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(timeout=60) == 75


def test_a_signal_before_main_listens_is_a_requeue_too(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "main.py").write_text("import os, time\nopen('up', 'w')\ntime.sleep(60)\n")
    with fake.started(root, ["bash", str(run.folder.script)], env=fake.environment()) as process:
        fake.until((root / "up").exists, "the run did not start")
        process.send_signal(signal.SIGUSR2)
        assert process.wait(timeout=60) == 75


TORCHRUN = """#!/usr/bin/env bash
# Plays `python -m torch.distributed.run`: notes its arguments, runs main.py once, and swallows its exit code.
printf '%s\\n' "$@" >torchrun.args
echo "OMP_DYNAMIC=${OMP_DYNAMIC-unset}" >>torchrun.args
if [ "$1" = -m ]; then
  while [ "$1" != main.py ]; do shift; done
  "$REAL_PYTHON" "$@" &
  trap 'kill -s USR2 $!' USR2
  trap 'kill -s TERM $!' TERM
  until wait $!; do kill -0 $! 2>/dev/null || exit 1; done
else
  exec "$REAL_PYTHON" "$@"
fi
"""


def _ranks(root: Path, nproc: int | str, run: Any, **others: str) -> tuple[int, str]:
    python = root / "torchrun.sh"
    python.write_text(TORCHRUN)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    more = {
        "NUQ_PYTHON": str(python),
        "REAL_PYTHON": fake.environment()["NUQ_PYTHON"],
        "NUQ_NPROC": str(nproc),
        "OMP_DYNAMIC": "true",
    }
    code = fake.bash(run.folder.script, **more, **others).returncode
    return code, (root / "torchrun.args").read_text()


@pytest.mark.parametrize("code", [0, 2, 3, 75])
def test_several_ranks_go_through_torchrun_and_keep_their_exit_code(tmp_path: Path, code: int) -> None:
    root = fake.checkout(tmp_path, {1: code})
    (run,) = fake.runs(root, 1)
    ended, words = _ranks(root, 2, run)
    assert ended == code
    assert words.split("\n")[:4] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert "OMP_DYNAMIC=unset" in words


@pytest.mark.slow
def test_the_real_torchrun_passes_the_signal_on_and_leaves_nobody_behind(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "two ranks", {1: "wait"})
    one_writes = "def tell(state, code):\n    if os.environ['RANK'] != '0': return\n"
    both_start = 'open(folder + "/started" + os.environ["RANK"], "a")'
    main = fake.MAIN.replace("def tell(state, code):\n", one_writes).replace(
        'open(folder + "/started", "a")', both_start
    )
    (root / "main.py").write_text(main)
    (run,) = fake.runs(root, 1)
    with fake.started(
        root, ["bash", str(run.folder.script)], env=fake.environment(NUQ_NPROC="2", OMP_NUM_THREADS="1")
    ) as process:
        fake.until(
            lambda: all((run.folder.path / f"started{rank}").exists() for rank in (0, 1)),
            "the ranks did not start",
            seconds=60,
        )
        process.send_signal(signal.SIGUSR2)
        assert process.wait(timeout=60) == 75
    assert run.folder.log.read_text().count("heard SIGUSR2") == 2
    assert run.state().word == "preempted"


def test_never_more_ranks_than_workers_and_one_rank_needs_no_torchrun(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)  # four workers
    assert "--nproc-per-node=4" in _ranks(root, 8, run)[1]
    assert "torch.distributed" not in _ranks(root, 1, run)[1]


def test_the_names_of_earlier_job_scripts_are_read_in_their_jobs_alone(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    assert "--nproc-per-node=2" in _ranks(root, "", run, NPROC="2", SUBMITIT_EXECUTOR="slurm")[1]
    assert "torch.distributed" not in _ranks(root, "", run, NPROC="2")[1], "a name that others use, too"
    assert "--nproc-per-node=3" in _ranks(root, 3, run, NPROC="2", SUBMITIT_EXECUTOR="slurm")[1]
    (root / "torchrun.args").unlink()
    python = {"NUQ_PYTHON": "", "REAL_PYTHON": sys.executable, "PYTHON": str(root / "torchrun.sh")}
    assert fake.bash(run.folder.script, **python, NPROC="2", SUBMITIT_EXECUTOR="slurm").returncode == 0
    assert "--nproc-per-node=2" in (root / "torchrun.args").read_text()


def test_an_old_exit_code_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 75})
    (run,) = fake.runs(root, 1)
    assert _ranks(root, 2, run)[0] == 75
    (root / "main.py").write_text("raise SystemExit(9)\n")  # crashes before it says anything
    assert _ranks(root, 2, run)[0] == 1


HELD = """
import json, os, sys
settings = dict(word.split("=", 1) for word in sys.argv[1:])
with open(settings["run_dir"] + "/status.json", "w") as file:  # by those who have the folder
    json.dump({"state": "running", "exit_code": 75, "heartbeat": os.getpid()}, file)
open(os.environ["NUQ_EXIT_CODE"], "w").write("4")
sys.exit(4)
"""


def test_the_status_of_others_is_no_exit_code(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "main.py").write_text(HELD)
    assert _ranks(root, 2, run)[0] == 4
    assert not list(run.folder.path.glob(".*")), "nothing is left behind"


# --- pinned code and several nodes --------------------------------------------------------------------------------


def test_a_snapshot_runs_in_the_place_of_the_checkout(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "live")
    (run,) = fake.runs(root, 1)
    pinned_code = fake.checkout(tmp_path / "it's pinned")
    (pinned_code / "runs").symlink_to(root / "runs")
    (root / "main.py").write_text("raise SystemExit(9)\n")  # edited after the submission
    assert fake.bash(run.folder.script).returncode == 9
    assert fake.bash(run.folder.script, NUQ_CODE=str(pinned_code)).returncode == 0
    assert run.state().word == "done"
    assert fake.bash(run.folder.script, NUQ_CODE=str(tmp_path / "gone")).returncode == 2


SRUN = """#!/usr/bin/env bash
# Plays srun: notes its arguments and runs the command once, as the first node would.
printf '%s\\n' "$@" >srun.args
while [[ "$1" == --* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
SCONTROL = """#!/bin/sh
if [ "$*" = 'show hostnames n[1-2]' ]; then printf 'n1\\nn2\\n'; fi
if [ "$*" = 'show node -o n1' ]; then echo 'NodeName=n1 NodeAddr=127.0.0.9 NodeHostName=vm'; fi
"""


def _nodes_environment(root: Path, **more: str) -> dict[str, str]:
    """The environment of a job on two nodes, with a stand-in srun, scontrol and torchrun."""
    binaries = root / "bin"
    binaries.mkdir(exist_ok=True)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("getent", "#!/bin/sh\nexit 2\n"), ("python", TORCHRUN)):
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_ID": "1234",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "6",
    }
    base = {
        "NUQ_PYTHON": str(binaries / "python"),
        "REAL_PYTHON": fake.environment()["NUQ_PYTHON"],
        "NUQ_NODES": "2",
        "NUQ_NPROC": "4",
    }
    return fake.environment(**{"PATH": f"{binaries}:{os.environ['PATH']}", **base, **slurm, **more})


def _on_nodes(root: Path, run: Any, **more: str) -> tuple[int, list[str]]:
    """run.sh as on two nodes; its exit code and the words that srun got."""
    code = fake.bash(run.folder.script, **_nodes_environment(root, **more)).returncode
    return code, (root / "srun.args").read_text().splitlines() if (root / "srun.args").exists() else []


@pytest.mark.parametrize("code", [0, 3, 75])
def test_several_nodes_meet_through_srun_and_keep_their_exit_code(tmp_path: Path, code: int) -> None:
    root = fake.checkout(tmp_path, {1: code})
    (run,) = fake.runs(root, 1)
    ended, words = _on_nodes(root, run, SLURM_RESTART_COUNT="3")
    assert ended == code
    for word in ("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=6", "--export=ALL"):
        assert word in words[: words.index("bash")]
    told = (root / "torchrun.args").read_text().splitlines()
    assert told[:3] == ["-m", "torch.distributed.run", "--node-rank=0"]
    for word in (
        "--nnodes=2",
        "--nproc-per-node=2",
        "--rdzv-backend=static",
        "--signals-to-handle=SIGTERM,SIGINT,SIGUSR2",
    ):
        assert word in told[: told.index("main.py")]
    (rendezvous,) = [word for word in words if word.startswith("--rdzv-id=1234.3.")]
    assert rendezvous.rpartition(".")[2].isdecimal(), "one after another in the same job, they must not meet each other"
    (place,) = [word.partition("=")[2] for word in words if word.startswith("--rdzv-endpoint=")]
    host, _, port = place.partition(":")
    assert host == "127.0.0.9", "where the node's name is not known, its address"
    assert 20000 <= int(port) < 32000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_srun_is_never_sent_a_term(tmp_path: Path, number: signal.Signals) -> None:
    root = fake.checkout(tmp_path, {1: "wait"})
    (run,) = fake.runs(root, 1)
    with fake.started(root, ["bash", str(run.folder.script)], env=_nodes_environment(root)) as process:
        fake.until((run.folder.path / "started").exists, "the run did not start")
        process.send_signal(number)
        assert process.wait(timeout=60) == 75
    assert "heard SIGUSR2" in run.folder.log.read_text()


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    job = 3817
    for _ in range(40):  # some other program may hold the first ones
        first = 20000 + 8 * job % 12000
        with contextlib.suppress(OSError), socket.socket() as taken:
            taken.bind(("", first))
            _, words = _on_nodes(root, run, SLURM_JOB_ID=str(job))
            assert any(word.endswith(f":{first + 1}") for word in words if word.startswith("--rdzv-endpoint="))
            return
        job += 1
    pytest.fail("no free port")


@pytest.mark.parametrize(
    ("more", "nodes"), [({"SLURM_JOB_NUM_NODES": "1"}, 1), ({"NUQ_NPROC": "1"}, 0), ({"NUQ_NODES": "1"}, 1)]
)
def test_one_node_needs_no_srun(tmp_path: Path, more: dict[str, str], nodes: int) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    code, words = _on_nodes(root, run, **more)
    assert (code, words) == (0, [])
    if nodes:
        assert "--standalone" in (root / "torchrun.args").read_text()


def test_nodes_without_a_first_one_are_a_failure(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    assert _on_nodes(root, run, SLURM_JOB_NODELIST="m[1-2]") == (1, [])
    assert "no place to meet" in run.folder.log.read_text()


def test_task_files_run_every_experiment(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 0, 2: 2})
    item, other = (run.experiment for run in fake.runs(root, 2))
    path = root / "pjobs" / "t.sh"
    path.parent.mkdir()
    path.write_text(task_script("s", "doc", [other, item], "x"))
    assert fake.bash(path).returncode == 1
    assert all((root / "runs" / "tiny" / one.name / "started").exists() for one in (item, other))
