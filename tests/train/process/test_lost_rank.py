"""Ranks that die or fall silent in a training of several processes: the others end in time, with its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.ports import free_port
from tests.train.models.test_models import build
from train.process.status import read

ROOT = Path(__file__).parents[3]
WORLD = 3
SETTINGS = [
    "data=digits",
    "model=cnn",
    "batch_size=8",
    "steps=100000",
    "eval_every=100000",
    "optim.lr=0.001",
    f"workers={WORLD}",
]


def _launched(run_dir: Path, *more: str, ranks: range = range(WORLD)) -> list[subprocess.Popen[str]]:
    """Ranks as torchrun starts them, but with nobody who ends the others when one ends."""
    told = {
        "WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "main.py"), *SETTINGS, f"run_dir={run_dir}", *more]
    return [
        subprocess.Popen(
            command,
            env=os.environ | told | {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(WORLD)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def _started(run_dir: Path, *more: str) -> list[subprocess.Popen[str]]:
    """All three, after their first steps."""
    ranks = _launched(run_dir, *more)
    deadline = time.monotonic() + 90
    while not read(run_dir).get("step", 0):
        ended = [rank.communicate()[1] for rank in ranks if rank.poll() is not None]
        assert not ended and time.monotonic() < deadline, ended
        time.sleep(0.1)
    return ranks


EVALUATING = ("eval_every=1", "eval_batch_size=1", "eval_train=true")  # most of the time, on the first rank


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "victim", "number", "words"),
    [
        (("exchange.collective=two_stage",), 2, signal.SIGKILL, "rank 2 of 3 is gone ("),
        # With rank 0 the store that the ranks share is gone.
        (("exchange.collective=gather",), 0, signal.SIGKILL, "rank 0 of 3 is gone ("),
        (("exchange.collective=server",), 1, signal.SIGSTOP, "rank 1 of 3 did not answer in time (timeout_s=4;"),
        (EVALUATING, 0, signal.SIGSTOP, "rank 0 of 3 did not answer in time (timeout_s=4;"),
    ],
)
def test_a_lost_rank_is_named_by_the_others(
    more: tuple[str, ...], victim: int, number: int, words: str, tmp_path: Path
) -> None:
    ranks = _started(tmp_path, *more, "exchange.timeout_s=4")
    try:
        ranks[victim].send_signal(number)
        for rank, process in enumerate(ranks):
            if rank != victim:
                _, errors = process.communicate(timeout=40)
                last = errors.strip().splitlines()[-1]
                assert last.startswith(f"main.py: {words}") and f"rank {rank} saw: " in last, errors
                assert process.returncode == 1
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    if victim:
        status = read(tmp_path)
        assert (
            status["state"] == "failed" and status["exit_code"] == 1 and status["failure"]["message"].startswith(words)
        )
    else:  # nobody is left to write it
        assert read(tmp_path)["state"] == "running"


@pytest.mark.slow
def test_ranks_that_never_come(tmp_path: Path) -> None:
    """The third rank died before the group was complete."""
    ranks = _launched(tmp_path, "exchange.timeout_s=4", ranks=range(2))
    try:
        for rank, process in enumerate(ranks):
            _, errors = process.communicate(timeout=90)
            last = errors.strip().splitlines()[-1]
            together = "main.py: the 3 ranks did not come together within exchange.timeout_s=4 seconds"
            assert last.startswith(f"{together} (rank {rank} saw: "), errors
            assert process.returncode == 1
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    status = read(tmp_path)
    assert (status["state"], status["exit_code"], status["phase"]) == ("failed", 1, "starting")


def _torchrun(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Three ranks, of a shell each, which knows $RANK in the folder's name and in the words."""
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={WORLD}",
        "--no-python",
    ]
    command = f"cd {folder} && exec {sys.executable} {ROOT / 'main.py'} {' '.join(SETTINGS)} {words}"
    return subprocess.run([*torchrun, "bash", "-c", command], capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.slow
def test_ranks_with_other_settings_end_before_the_first_step(tmp_path: Path) -> None:
    done = _torchrun(tmp_path, "method=alq method.bits=$((3 + RANK / 2))")
    assert done.returncode != 0
    assert "rank 0 has method.bits=3 and rank 2 has method.bits=4: all ranks need the same" in done.stderr
    (run_dir,) = (tmp_path / "runs" / "main").iterdir()
    assert read(run_dir)["exit_code"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("third", ["missing", "another"])
def test_a_file_that_one_rank_lacks_or_has_otherwise(third: str, tmp_path: Path) -> None:
    """The rank that is alone with it tells the first one why it leaves."""
    for rank in range(WORLD):
        (tmp_path / f"{rank}").mkdir()
        if rank < 2 or third == "another":
            torch.save(build("cnn", (1, 8, 8), 10, seed=rank // 2).state_dict(), tmp_path / f"{rank}" / "start.pt")
    run_dir = tmp_path / "run"
    done = _torchrun(tmp_path / "$RANK", f"model.weights_file=start.pt run_dir={run_dir}")
    status = read(run_dir)
    words = {
        "missing": "rank 2: model.weights_file=start.pt: no such file; expected a state_dict of cnn",
        "another": "rank 0 has the SHA-256 of model.weights_file=start.pt='",
    }
    assert status["failure"]["message"].startswith(words[third]) and f"main.py: {words[third]}" in done.stderr
    assert (status["state"], status["exit_code"], status["step"]) == ("failed", 2, 0)
    assert status["failure"]["signature"].startswith("WeightsError at ")
