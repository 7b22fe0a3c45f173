"""FSDP2's collectives in several pieces: the same figures, and an error in a late piece reaches all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from nuq import fsdp_gather
from nuq.errors import NonFiniteError
from nuq.fsdp import CompressedReduceScatter
from nuq.fsdp_gather import CompressedGather
from tests.nuq.ranks import first_ranks
from tests.nuq.small_training import assert_same_bits
from tests.nuq.test_fsdp_gather import in_backward

SIZE = 1000  # coordinates of a shard
FOUR_BITS: dict[str, Any] = {"bits": 4, "bucket_size": 64, "timeout_s": 30}


@contextmanager
def pieces_of(size: int) -> Iterator[None]:
    whole, fsdp_gather.PIECE = fsdp_gather.PIECE, size
    try:
        yield
    finally:
        fsdp_gather.PIECE = whole


def scattered(group, method, settings):
    """The shard of a sum, its error as a part of it, and what the memory holds."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    mine = torch.randn(world * SIZE, generator=torch.Generator().manual_seed(rank))
    exact = mine.clone()
    dist.all_reduce(exact, group=group)
    exact = exact[rank * SIZE : (rank + 1) * SIZE]
    scatter, out = CompressedReduceScatter(method, "test", **settings), torch.empty(SIZE)
    scatter(out, mine, group, dist.ReduceOp.SUM)
    error = float((out - exact).norm() / exact.norm())
    memory = scatter._compressors.memories
    broken = mine.clone()
    broken[-1] = torch.nan if rank == 1 else 0  # of the last piece of the last rank
    before = [each.memory() for each in memory]
    with pytest.raises(NonFiniteError, match="'test' on worker 1"):
        scatter(out, broken, group, dist.ReduceOp.SUM)
    assert str(before) == str([each.memory() for each in memory])
    scatter(out, mine, group, dist.ReduceOp.SUM)  # nothing of the failed call is left on its way
    assert float((out - exact).norm() / exact.norm()) < max(2 * error, 1e-6)
    return len(scatter._rounds), error


def in_pieces_and_whole(group):
    found = {}
    for how, settings in (
        ("supersgd", {"timeout_s": 30}),
        ("qsgdinf", {**FOUR_BITS, "feedback": "average"}),
        ("qsgdinf", {**FOUR_BITS, "coding": "huffman"}),  # lengths that the ranks tell each other
    ):
        with pieces_of(256):
            rounds, error = scattered(group, how, settings)
        whole, of_whole = scattered(group, how, settings)
        assert (rounds, whole) == (3, 1)
        found[str((how, settings))] = (error, of_whole)
    return found


@pytest.mark.parametrize("world", [2, 3])
def test_a_reduce_scatter_in_pieces(world, ranks):
    for found in ranks.run(in_pieces_and_whole, world=world):
        for error, of_whole in found.values():
            assert error < max(1.2 * of_whole, 1e-6)


def gathered_in_pieces(group, dtype):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    shard = nn.Parameter(torch.randn(SIZE, generator=torch.Generator().manual_seed(rank)))
    gather = CompressedGather("qsgdinf", "test", **FOUR_BITS)

    def now() -> torch.Tensor:
        """As FSDP calls it: the shard lies in the memory of the output."""
        out = gather.allocate((world * SIZE,), dtype=dtype, device=torch.device("cpu"))
        mine = out[rank * SIZE : (rank + 1) * SIZE]
        mine.copy_(shard.detach())
        gather(out, mine, group)
        assert_same_bits(group, out)
        return out.view(world, SIZE)[rank].float().clone()

    with pieces_of(256):
        assert torch.equal(now(), shard.to(dtype))
        for _ in range(3):
            with torch.no_grad():
                shard += 0.1 * torch.randn(SIZE, generator=torch.Generator().manual_seed(rank))
            near = now()
            assert 0 < float((near - shard.detach()).norm()) < 0.02 * SIZE**0.5  # of a change of 0.1 * SIZE**0.5
            assert torch.equal(in_backward(now), near)
        with torch.no_grad():
            shard[-1] = torch.inf if rank == 1 else 0
        with pytest.raises(NonFiniteError, match="'test' on rank 1"):
            now()
        with torch.no_grad():
            shard[-1] = 1
        assert torch.equal(now(), shard.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gather_in_pieces(dtype, ranks):
    ranks.run(gathered_in_pieces, dtype, world=2)


def scattered_over_two_groups(everyone):
    rank, scatter = dist.get_rank(everyone), CompressedReduceScatter("supersgd", "test", timeout_s=30)
    for group, world in ((everyone, 3), (first_ranks(2), 2), (everyone, 3)):
        if rank < world:
            mine, out = torch.arange(1.0, 6 * world + 1) * (rank + 1), torch.empty(6)
            scatter(out, mine, group, dist.ReduceOp.SUM)
            total = sum(range(1, world + 1)) * torch.arange(1.0, 6 * world + 1)
            assert torch.equal(out, total[6 * rank : 6 * rank + 6])


def test_another_group_has_a_driver_of_its_own(ranks):
    ranks.run(scattered_over_two_groups, world=3)
