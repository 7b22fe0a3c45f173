"""SIGTERM and SIGUSR2 at any moment of a process: before it has imported anything, in the middle of a step, and when
torchrun is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from settings import resolving
from train.launch import launch
from train.process.signals import StopSignal
from train.process.status import read
from train.steps import trainer
from train.steps.gradients import Gradients

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "workers": 2,
    "method": "qsgdinf",
    "eval_every": 0,
    "checkpoint_every": 1000,
}

# main.py, which is told to stop when it first asks for a module.
TOLD_AT_AN_IMPORT = """
import os, runpy, sys
module, number, *sys.argv = sys.argv[1:]
class Told:
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Told)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "number"), [("hydra", signal.SIGTERM), ("torch", signal.SIGUSR2), ("torch", signal.SIGHUP)]
)
def test_before_the_run_has_begun(module: str, number: int, tmp_path: Path) -> None:
    words = [f"{name}={value}" for name, value in (SETTINGS | {"run_dir": tmp_path}).items()]
    command = [sys.executable, "-c", TOLD_AT_AN_IMPORT, module, str(int(number)), str(ROOT / "main.py"), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, preexec_fn=_hears_signals
    )
    assert done.returncode == 75, done.stderr
    assert done.stderr.startswith(
        "main.py: stopped while it was starting; started again, it goes on from its last checkpoint"
    )
    assert (read(tmp_path)["state"], read(tmp_path)["step"]) == ("preempted", 0)


def test_nohup_means_no_hangup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopSignal()
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.requested
        stop.let_go()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def _hears_signals() -> None:
    for ignored in (signal.SIGINT, signal.SIGHUP):  # by a shell's background jobs, and under nohup
        signal.signal(ignored, signal.SIG_DFL)


@pytest.mark.parametrize("module", ["hydra", "torch"])
def test_ctrl_c_before_the_run_has_begun(module: str, tmp_path: Path) -> None:
    words = [f"{name}={value}" for name, value in (SETTINGS | {"run_dir": tmp_path}).items()]
    command = [sys.executable, "-c", TOLD_AT_AN_IMPORT, module, str(int(signal.SIGINT)), str(ROOT / "main.py"), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, preexec_fn=_hears_signals
    )
    assert (done.returncode, done.stderr) == (130, "main.py: interrupted before the run began\n")


@pytest.mark.parametrize("words", [["mode=evaluate", "run=nowhere"], ["--help"]])
def test_what_saves_nothing_dies_of_it_as_ever(words: list[str]) -> None:
    command = [
        sys.executable,
        "-c",
        TOLD_AT_AN_IMPORT,
        "hydra",
        str(int(signal.SIGTERM)),
        str(ROOT / "main.py"),
        *words,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


@pytest.mark.slow
def test_help_whose_reader_has_gone() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as out:
        done = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), "--help"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("owner", "name"), [(Gradients, "one"), (trainer, "update")])
def test_the_step_in_which_it_is_heard_is_the_last(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes among the workers' turns, and after the exchange."""
    whole, calls = getattr(owner, name), []
    fatal = 5 if name == "one" else 3  # in the third step

    def told(*rest: Any, **more: Any) -> Any:
        calls.append(name)
        if len(calls) == fatal:
            os.kill(os.getpid(), signal.SIGTERM)
        return whole(*rest, **more)

    monkeypatch.setattr(owner, name, told)
    stop = StopSignal()
    try:
        assert launch(resolving.resolve(SETTINGS | {"run_dir": str(tmp_path)}), stop) == 75
    finally:
        stop._heard = None
        stop.let_go()
    assert (read(tmp_path)["step"], read(tmp_path)["saved_step"]) == (3, 3)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 3


@pytest.mark.parametrize(
    ("first", "gone"), [(b"/sbin/init\0", True), (b"/usr/bin/python3\0/usr/bin/torchrun\0", False)]
)
def test_a_rank_whose_torchrun_was_gone_before_it_listened(
    first: bytes, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process of a container may be torchrun."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: {"/proc/1/cmdline": first}[str(path)])
    for name, value, expected in (("WORLD_SIZE", "2", False), ("TORCHELASTIC_RUN_ID", "x", gone)):
        monkeypatch.setenv(name, value)
        stop = StopSignal()
        stop.let_go()
        assert stop.requested is expected


@pytest.mark.slow
def test_ranks_do_not_outlive_torchrun(tmp_path: Path) -> None:
    """It dies of a SIGUSR2, which it hands to nobody."""
    words = [
        f"{name}={value}"
        for name, value in (SETTINGS | {"run_dir": tmp_path, "steps": 100000, "optim.lr": 0.001}).items()
    ]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(ROOT / "main.py"),
        *words,
    ]
    with subprocess.Popen(
        torchrun, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + 90
            while not read(tmp_path).get("step", 0):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(signal.SIGUSR2)
            assert process.wait(30) == -signal.SIGUSR2
            while read(tmp_path)["state"] == "running":
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            if read(tmp_path).get("state") == "running":
                os.killpg(process.pid, signal.SIGKILL)
    ended = read(tmp_path)
    assert (ended["state"], ended["exit_code"], ended["step"]) == ("preempted", 75, ended["saved_step"])
    assert ended["failure"]["message"].startswith(f"stopped after step {ended['step']} of")
