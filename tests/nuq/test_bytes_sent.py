"""Bytes sent, as every interface tells them, are the bytes that torch.distributed was handed, counted by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq
from tests.nuq.small_training import backward, descend, hooked, net

BUCKETS: dict[str, Any] = {"bucket_size": 64}
EVERY: dict[str, dict[str, Any]] = {
    "gather": {"method": "qsgdinf", **BUCKETS, "collective": "gather"},
    "gather, of unknown lengths": {"method": "alq", **BUCKETS, "coding": "rans", "collective": "gather"},
    "two_stage": {"method": "alq", **BUCKETS, "update_at": [1, 3], "num_samples": 1, "collective": "two_stage"},
    "server": {"method": "qsgdinf", **BUCKETS, "collective": "server"},
    "server, of the first": {"method": "qsgdinf", **BUCKETS, "collective": "server", "num_aggregate": 2},
    "hierarchical": {"method": "alq", **BUCKETS, "collective": "hierarchical", "per_machine": 2},
    "power": {"method": "powersgd", "rank": 2},
    "dense": {"method": "alq", "collective": "dense"},
    "layers": {"method": "qsgdinf", **BUCKETS, "layers": ["0.* = topk ratio=0.1"], "feedback": "error"},
}


class Count:
    """The bytes that this rank has handed to torch.distributed; an all-reduce's as a ring of its ranks sends them."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def isend(self, send: Callable[..., Any], tensor: torch.Tensor, *given: Any, **how: Any) -> Any:
        self.num_bytes += tensor.numel() * tensor.element_size()
        return send(tensor, *given, **how)

    def all_reduce(self, reduce: Callable[..., Any], tensor: torch.Tensor, *given: Any, **how: Any) -> Any:
        world = dist.get_world_size(how.get("group"))
        self.num_bytes += 2 * (world - 1) * tensor.numel() * tensor.element_size() // world
        return reduce(tensor, *given, **how)


@contextmanager
def counted() -> Iterator[Count]:
    """A count of what this process sends meanwhile; nothing of this library goes by other ways than these two."""
    count, send, reduce = Count(), dist.isend, dist.all_reduce
    others = ("send", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")

    def refused(*given: Any, **how: Any) -> Any:
        raise AssertionError(f"sends by another way than isend and all_reduce: {given}, {how}")

    with (
        patch.object(dist, "isend", lambda *given, **how: count.isend(send, *given, **how)),
        patch.object(dist, "all_reduce", lambda *given, **how: count.all_reduce(reduce, *given, **how)),
        patch.multiple(dist, **dict.fromkeys(others, refused)),
    ):
        yield count


def of_hook(group: dist.ProcessGroup, settings: dict[str, Any]) -> tuple[str, int]:
    """After the first step, in which the ranks agree on settings beside what is counted."""
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), ddp={"bucket_cap_mb": 0.002}, **settings)
    descend(model, lambda: backward(model, rank, 0))
    before = state.bytes_sent
    with counted() as count:
        for step in range(1, 6):
            descend(model, lambda step=step: backward(model, rank, step))
        state.close()  # which waits for what is on its way
    assert state.bytes_sent - before == count.num_bytes > 0
    return state.collective, count.num_bytes


@pytest.mark.parametrize("settings", EVERY.values(), ids=EVERY.keys())
def test_the_hook(settings: dict[str, Any], ranks: Any) -> None:
    found = ranks.run(of_hook, settings, world=4)
    expected = settings.get("collective", "power" if settings["method"] == "powersgd" else found[0][0])
    assert {collective for collective, _ in found} == {expected}
    if expected == "hierarchical":  # first ranks of machines send messages beside what all send within the machine
        assert min(found[0][1], found[2][1]) > max(found[1][1], found[3][1]) > 0


def of_fsdp(group: dist.ProcessGroup, feedback: str, with_between: bool) -> None:
    """Both collectives of FSDP2, of whose own none is left; on two machines of two ranks, or on four ranks."""
    rank = dist.get_rank(group)
    mesh, between = DeviceMesh.from_group(group, "cpu"), None
    if with_between:
        machines = init_device_mesh("cpu", (2, 2), mesh_dim_names=("machines", "ranks"))
        mesh, between = machines["ranks"], machines.get_group("machines")
    model: Any = net()
    for module in (model[2], model):
        fully_shard(module, mesh=mesh)
    gradients = nuq.compress_fsdp(model, "alq", between=between, feedback=feedback, timeout_s=30, **BUCKETS)
    weights = nuq.compress_fsdp_weights(model, timeout_s=30, **BUCKETS)

    def told() -> int:
        every = [*gradients, *weights, *(each.between for each in gradients if each.between is not None)]
        return sum(each.transport.bytes_sent.total() for each in every if each.transport is not None)

    def step(number: int) -> None:
        model.zero_grad()
        backward(model, rank, number)

    step(0)
    before = told()
    with counted() as count:
        for number in (1, 2, 3):
            step(number)
    assert told() - before == count.num_bytes > 0


@pytest.mark.parametrize("with_between", [False, True])
@pytest.mark.parametrize("feedback", ["none", "average"])
def test_fsdp2(feedback: str, with_between: bool, ranks: Any) -> None:
    ranks.run(of_fsdp, feedback, with_between, world=4)


def of_loop(group: dist.ProcessGroup, settings: dict[str, Any]) -> None:
    rank, model = dist.get_rank(group), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = nuq.OuterLoop(model, optimizer, group=group, every=2, min_size=0, timeout_s=30.0, **settings)
    before = loop.bytes_sent
    with counted() as count:
        for step in range(8):
            optimizer.zero_grad()
            backward(model, rank, step)
            loop.step()
        loop.close()
    assert loop.bytes_sent - before == count.num_bytes > 0


@pytest.mark.parametrize("collective", ["gather", "two_stage", "server"])
def test_local_steps(collective: str, ranks: Any) -> None:
    ranks.run(of_loop, {"method": "qsgdinf", **BUCKETS, "collective": collective, "fragments": 2}, world=4)
