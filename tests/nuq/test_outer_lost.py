"""A rank of an outer loop dies, and another process takes its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
RANK = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
import nuq
from tests.nuq.small_training import backward, net, parameters

rank, first, second, is_new = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "new"

def join(port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)

def train(steps):
    for step in steps:
        optimizer.zero_grad()
        backward(model, rank, step)
        loop.step()

model = net(rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
join(second if is_new else first)
loop = nuq.OuterLoop(model, optimizer, every=4, method="topk", ratio=0.1, min_size=0, timeout_s=20)
if not is_new:
    train(range(6))
    if rank == 2:
        os._exit(7)
    try:
        train(range(6, 9))
    except nuq.RankLost as lost:
        print(lost, flush=True)
    dist.destroy_process_group()
    join(second)
    loop.attach()
print("goes on at", loop.count, flush=True)
train(range(loop.count, 16))
rows = [torch.empty_like(parameters(model)) for _ in range(3)]
dist.all_gather(rows, parameters(model))
assert all(torch.equal(row, rows[0]) for row in rows)
loop.close()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_another_process_takes_the_place_of_a_lost_rank() -> None:
    ports = [str(free_port()), str(free_port())]

    def start(rank: int, kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RANK, str(rank), *ports, kind]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    ranks = [start(rank, "old") for rank in range(3)]
    ranks[2].communicate(timeout=60)
    assert ranks[2].returncode == 7
    ranks[2] = start(2, "new")
    for rank, process in enumerate(ranks):
        told, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        assert "goes on at 8" in told
        assert ("rank 2 of 3 is gone" in told) == (rank < 2), told
