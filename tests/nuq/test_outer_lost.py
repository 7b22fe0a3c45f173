"""A rank of an outer loop dies, and another process takes its place; nothing is lost, and nothing counts twice."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import nuq
from tests.nuq.small_training import own_entry
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


# --- what a lost exchange leaves ----------------------------------------------------------------------------------


TOPK = {"method": "topk", "ratio": 0.1}


def _pulled(group: dist.ProcessGroup, **settings: Any) -> tuple[nuq.OuterLoop, torch.Tensor]:
    """A loop whose optimizer does nothing, and a vector for the model to move by."""
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(6, 10)) for name in ("first", "second")})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    how = {"every": 4, "outer_lr": 1.0, "outer_momentum": 0.0, "nesterov": False, "min_size": 0, "timeout_s": 30.0}
    loop = nuq.OuterLoop(model, optimizer, group=group, **how, **settings)
    return loop, torch.linspace(0.5, 1.5, 120)


def _move(loop: nuq.OuterLoop, by: torch.Tensor) -> None:
    with torch.no_grad():
        for p, piece in zip(loop.model.parameters(), by.split(60), strict=True):
            p.sub_(piece.view(6, 10))


def _moved(loop: nuq.OuterLoop) -> torch.Tensor:
    """What the outer parameters have moved by in the end."""
    for _ in range(100):
        loop.step()
    return -torch.cat([fragment.outer for fragment in loop._fragments])


def counts_once(group, settings):
    loop, by = _pulled(group, **settings)
    for _ in range(4):
        loop.step()
    _move(loop, by)
    real = loop._driver.mean

    def lost(*what: Any) -> None:
        real(*what)  # it has left the memory
        raise nuq.RankLost("rank 2 of 3 is gone")

    loop._driver.mean = lost  # type: ignore[method-assign]
    for number in range(1, 5):
        if number % (4 // len(loop._fragments)):
            loop.step()
        else:
            with pytest.raises(nuq.RankLost):
                loop.step()
    loop.attach(group)
    torch.testing.assert_close(_moved(loop), by)
    loop.close()


@pytest.mark.parametrize(
    "settings",
    [
        TOPK,
        {**TOPK, "scope": "model", "fragments": 2},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                {**TOPK, "collective": "two_stage"},
                {**TOPK, "collective": "server"},
                {"method": "powersgd", "rank": 1},
            )
        ),
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_a_move_whose_exchange_fails_counts_once(settings, ranks):
    ranks.run(counts_once, settings, world=2)


def counts_where_others_have_it(group, settings):
    """The exchange fails on the last rank alone, once all have its message: the others have taken the mean."""
    loop, by = _pulled(group, **settings)
    _move(loop, by)
    real = loop._driver.mean

    def lost(*what: Any) -> None:
        real(*what)
        raise nuq.RankLost("rank 2 of 3 is gone")

    for _ in range(3):
        loop.step()
    if dist.get_rank(group) == 1:
        loop._driver.mean = lost  # type: ignore[method-assign]
        with pytest.raises(nuq.RankLost):
            loop.step()
    else:
        loop.step()
    loop.attach(group)
    assert loop.taken == 1
    torch.testing.assert_close(_moved(loop), by)
    loop.close()


@pytest.mark.parametrize("settings", [TOPK, {**TOPK, "scope": "model"}])
def test_a_move_that_only_the_others_have_counts_once(settings, ranks):
    ranks.run(counts_where_others_have_it, settings, world=2)


def dropped(group):
    """Two means are on their way when the ranks attach anew: before it, and after they have been saved."""
    for again in (False, True):
        loop, by = _pulled(group, **TOPK, fragments=2, overlap=3, mixing=0.0)
        for steps, moves in (
            (5, [1.0, 0.0]),
            (2, [0.0, 1.0]),
            (1, [0.0, 0.0]),
        ):  # each after its last mean
            for _ in range(steps):
                loop.step()
            _move(loop, by * torch.tensor(moves).repeat_interleave(60))
        taken, saved = loop.taken, copy.deepcopy(own_entry(loop))
        assert len(saved["pending"]) == 2
        if again:
            model = copy.deepcopy(loop.model)
            loop.close()
            loop, by = _pulled(group, **TOPK, fragments=2, overlap=3, mixing=0.0)
            loop.load_state_dict(saved)
            loop.model.load_state_dict(model.state_dict())
        loop.attach(group)
        assert loop.taken == taken
        torch.testing.assert_close(_moved(loop), by)
        loop.close()


@pytest.mark.slow
def test_a_move_whose_mean_is_dropped_counts_once(ranks):
    ranks.run(dropped, world=2)
