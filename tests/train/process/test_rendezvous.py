"""Ranks that wait for each other: they hear signals, torchrun's end and the refusals of others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from nuq.errors import RankLost
from tests.ports import free_port
from tests.train.process.test_lost_rank import ROOT
from train.process import rendezvous
from train.process.signals import Preempted, StopSignal
from train.process.status import read

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
WORDS = ["data=digits", "model=cnn", "batch_size=8", "steps=100000", "eval_every=0", "optim.lr=0.001", "workers=2"]
CPU = torch.device("cpu")


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[StopSignal]:
    """The first of two ranks, alone; it listens."""
    told = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "as torchrun sets it")
    monkeypatch.setattr(rendezvous, "_threads", [])  # they wait on: a later `leave` would end this process
    stop = StopSignal()
    yield stop
    stop._heard = None
    stop.let_go()


def _waits(stop: StopSignal, timeout_s: float = 60.0) -> None:
    with rendezvous.process_group(CPU, timeout_s, stop, lambda _: 1):
        raise AssertionError("a group of one of two ranks")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (signal.SIGUSR2, Preempted, "stopped while it was starting"),
        (
            signal.SIGTERM,
            RankLost,
            r"the 2 ranks did not come together before this one was asked to stop \(rank 0 saw: no rank 1\)",
        ),
    ],
)
def test_a_signal(
    number: int, error: type[Exception], words: str, stop: StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal may come while it waits: torchrun may mean by SIGTERM that another rank has failed."""
    monkeypatch.setattr(rendezvous, "GRACE_S", 0.3)
    signals = threading.Timer(0.5, os.kill, (os.getpid(), number))
    signals.start()
    with pytest.raises(error, match=f"^{words}"):
        _waits(stop)
    signals.join()


def test_the_end_of_torchrun(stop: StopSignal) -> None:
    stop._orphan = True
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Preempted):
        _waits(stop)


@pytest.mark.slow
def test_sigterm_without_torchrun(stop: StopSignal) -> None:
    """Nobody sends it because another rank failed."""
    stop._parent = None
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Preempted):
        _waits(stop)


def test_a_rank_that_came_and_left(stop: StopSignal) -> None:
    store = rendezvous._store(5.0)
    store.set("here/1", "")
    together = r"the 2 ranks did not come together within exchange.timeout_s=0.5 seconds \(rank 0 saw: "
    with pytest.raises(RankLost, match=rf"^{together}(a rank came and left|wait timeout)"):
        _waits(stop, timeout_s=0.5)


def test_words_of_an_earlier_attempt(stop: StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun keeps the store when it starts ranks again."""
    monkeypatch.setattr(rendezvous, "GRACE_S", 0.1)
    store = rendezvous._store(5.0)
    store.set("refused", '{"exit_code": 2, "rank": 1, "message": "of the first attempt", "signature": "Old"}')
    with pytest.raises(rendezvous.Refused, match=r"^rank 1: of the first attempt$"):
        _waits(stop)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(RankLost):
        _waits(stop, timeout_s=0.5)


def test_what_is_wrong_here_is_not_said_of_others(stop: StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "none7")
    with pytest.raises(RankLost, match=r"^the 2 ranks did not come together \(rank 0 saw: .*none7"):
        _waits(stop)


def test_a_backend_that_waits_for_nobody(stop: StopSignal) -> None:
    """NCCL's is such a backend, which connects at the first collective."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers itself

    with pytest.raises(RuntimeError, match=r"^no rank 1$"):
        rendezvous._join("fake", 0, 2, 0.5, stop)
    dist.destroy_process_group()


@pytest.mark.slow
def test_nowhere_to_meet(stop: StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    lost = "the 2 ranks did not come together within exchange.timeout_s=0.5 seconds (rank 1 saw: "
    with pytest.raises(RankLost, match=f"^{re.escape(lost)}nobody is at "):
        _waits(stop, timeout_s=0.5)
    with (
        socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))),
        pytest.raises(RankLost, match=f"^{re.escape(lost)}what is at "),
    ):
        _waits(stop, timeout_s=0.5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MASTER_PORT", None, "WORLD_SIZE=2 but no MASTER_PORT: start the ranks with torchrun"),
        ("MASTER_PORT", "http", "MASTER_PORT='http'; legal: 0 to 65535; torchrun sets it"),
        ("MASTER_PORT", "65536", "MASTER_PORT='65536'; legal: 0 to 65535; torchrun sets it"),
        ("RANK", "2", "RANK='2'; legal: 0 to 1; torchrun sets it"),
        ("WORLD_SIZE", "two", "WORLD_SIZE='two', which is no number of ranks; torchrun sets it"),
    ],
)
def test_an_odd_environment(
    name: str, value: str | None, words: str, stop: StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with pytest.raises(ValueError, match=f"^the environment has {words}$"):
        rendezvous.num_ranks()


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield
    os.close(lock)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_refuses_tells_the_other(who: int, tmp_path: Path) -> None:
    """The first because the folder is held, the other because its machine has no GPU."""
    other = ["device=$( [ $RANK = 1 ] && echo cuda || echo cpu )"] if who else ["device=cpu"]
    command = f"exec {sys.executable} {ROOT / 'main.py'} {' '.join(WORDS + other)} run_dir={tmp_path}"
    with contextlib.nullcontext() if who else _held(tmp_path):
        begin = time.monotonic()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [*TORCHRUN, "--no-python", "bash", "-c", command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode != 0 and time.monotonic() - begin < 60
    reason = ["another process is training in this folder", "this machine has no CUDA device that torch can use"][who]
    assert (
        len(re.findall(f"^main.py: .*{reason}", done.stderr, re.M)) == 2 and f"main.py: rank {who}: " in done.stderr
    ), done.stderr
    if who:
        status = read(tmp_path)
        assert (status["state"], status["exit_code"]) == ("failed", 2) and status["failure"]["message"].startswith(
            f"rank 1: device='cuda': {reason}"
        )
    else:
        assert not (tmp_path / "status.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_setting_that_is_refused_before_torch_is_there(who: int, tmp_path: Path) -> None:
    """The ranks were started without torchrun, so that the first one keeps the store and nobody ends the others."""
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "main.py"), *WORDS, f"run_dir={tmp_path}"]
    ranks = [
        subprocess.Popen(
            [*command, "optim.lr=-1"] if rank == who else command,
            env=os.environ | told | {"RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=60)[1].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [2, 2], said
    assert (
        said[who].startswith("main.py: optim.lr=-1")
        and said[1 - who] == f"main.py: rank {who}: {said[who].removeprefix('main.py: ')}"
    )
    assert read(tmp_path).get("exit_code") == (2 if who else None)


@pytest.mark.slow
def test_several_runs_are_for_one_process() -> None:
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "0"}
    command = [sys.executable, str(ROOT / "main.py"), "-m", *WORDS, "seed=1,2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    said = "main.py: -m: one run after another is for a single process; start each with a torchrun of its own\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
def test_several_runs_leave_nothing_beside_the_code(tmp_path: Path) -> None:
    """Hydra keeps a multirun.yaml of its own; a file more in the checkout would be other code to the orchestrator."""
    command = [sys.executable, str(ROOT / "main.py"), "-m", "steps=1", "batch_size=4", "eval_every=0", "seed=1,2"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert len(list((tmp_path / "runs" / "main").iterdir())) == 2


def test_an_evaluation_that_is_refused_is_no_word_to_the_ranks_of_a_run(stop: StopSignal) -> None:
    store = rendezvous._store(5.0)
    command = [sys.executable, str(ROOT / "main.py"), "mode=evaluate", "run=nowhere", "bogus=1"]
    done = subprocess.run(
        command, env=os.environ | {"RANK": "1"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "unknown setting of mode=evaluate" in done.stderr and not store.check(["refused"])


@pytest.mark.slow
def test_ranks_whose_torchrun_is_killed_while_they_start(tmp_path: Path) -> None:
    """A run can be started again in the folder."""
    started = subprocess.Popen(
        [*TORCHRUN, str(ROOT / "main.py"), *WORDS, f"run_dir={tmp_path}"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    try:
        while not (ranks := _children(started.pid)):
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        started.kill()
        started.wait()
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        if time.monotonic() > deadline:
            os.killpg(started.pid, signal.SIGKILL)
            raise AssertionError("ranks outlive their torchrun")
        time.sleep(0.1)
    assert read(tmp_path).get("state") in (None, "preempted")


@pytest.mark.slow
def test_torchrun_starts_the_ranks_again(tmp_path: Path) -> None:
    """One is killed; the second attempt goes on from the checkpoint."""
    words = [*WORDS, "steps=150", "checkpoint_every=20", f"run_dir={tmp_path}"]
    started = subprocess.Popen(
        [*TORCHRUN, "--max-restarts=1", str(ROOT / "main.py"), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    try:
        while not (tmp_path / "checkpoint.pt").exists():
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(int(_children(started.pid)[-1]), signal.SIGKILL)
        assert started.wait(90) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    status = read(tmp_path)
    assert (status["state"], status["step"], status["attempt"]) == ("done", 150, 2)


def _children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()
