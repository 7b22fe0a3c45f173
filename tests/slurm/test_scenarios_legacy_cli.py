"""The original command line, on a partition of that name."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.checkout import accounted, most_at_once, stand_in
from tests.slurm.cluster import Slurm

LINE = [
    "--prefix",
    "exp",
    "--cluster",
    "slurm",
    "--run_name",
    "cifar10_full_resnet32",
    "--grid",
    "nuq",
    "--cluster_args",
    "38,1,p100",
]
EXPERIMENTS = 9
GPUS = 4  # of the cluster; every script asks for one


@pytest.mark.parametrize("by_hand", [False, True], ids=["--submit", "sbatch"])
@pytest.mark.parametrize("cap", [None, 2], ids=["no cap", "cap 2"])
def test_the_original_line(slurm: Slurm, tmp_path: Path, cap: int | None, by_hand: bool) -> None:
    checkout = stand_in(tmp_path / "checkout", slurm, 1, {1: "wait"})
    words = [*LINE, *(["--max_running", str(cap)] if cap else []), *([] if by_hand else ["--submit"])]
    done = checkout.call(*words)
    assert done.code == 0, done.out
    if by_hand:
        done = checkout.shell("sbatch", "jobs/exp_slurm.sbatch")
    job = done.out.split("ubmitted ")[-1].split()[-1]
    at_once = cap or GPUS
    checkout.wait_for_starts(at_once)
    time.sleep(1.5)
    assert checkout.starts().total() == at_once
    checkout.go()
    slurm.wait_until(lambda: accounted(slurm, [job]) == {f"{job}_{index}": "COMPLETED" for index in range(38)})
    events = checkout.history()
    assert most_at_once(events) == at_once
    for what in ("start", "end"):
        assert Counter(Counter(event.run for event in events if event.what == what).values()) == {1: EXPERIMENTS}
    assert f"\n{EXPERIMENTS} done" in checkout.call("status", "nuq", "cifar10_full_resnet32").out
