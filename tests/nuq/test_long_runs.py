"""A thousand steps take no more memory, threads and open files than half of them."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from tests.nuq.small_training import backward, descend, hooked, net

BUCKETS: dict[str, Any] = {"bucket_size": 64}
HOOKS: dict[str, dict[str, Any]] = {
    "alq": {"method": "alq", **BUCKETS, "update_at": [5], "update_every": 20, "num_samples": 2},
    "two_stage": {
        "method": "qsgdinf",
        **BUCKETS,
        "coding": "rans",
        "feedback": "error",
        "both": True,
        "collective": "two_stage",
    },
}
Step = Callable[[int], None]


class _Mallinfo2(ctypes.Structure):
    """What glibc's allocator says of itself, from 2.33 on: ``man mallinfo``."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def _allocated() -> int:
    """Bytes that are allocated and not freed, in all arenas and by mmap.

    Pages would not do: an arena may grow at any time, for what was freed elsewhere.
    """
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Mallinfo2
    found = ask()
    return found.uordblks + found.hblkhd


class Usage(NamedTuple):
    """What this process has at a time: allocated bytes, Python's objects, threads and open files."""

    memory: int
    objects: int
    threads: int
    files: int

    @classmethod
    def now(cls) -> Usage:
        gc.collect()
        threads, files = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd"))
        return cls(_allocated(), len(gc.get_objects()), threads, files)


def growth(step: Step, begun: int, steps: int) -> Usage:
    """The least growth over the halves of the steps that come after those it takes to begin.

    A leak is in both; what is made once is in one.
    """
    known = []
    for number in range(steps):
        if number in (begun, (begun + steps) // 2):
            known.append(Usage.now())
        step(number)
    first, middle, last = *known, Usage.now()
    each = (zip(before, after, strict=True) for before, after in ((first, middle), (middle, last)))
    return Usage(*map(min, zip(*([y - x for x, y in half] for half in each), strict=True)))


def of_hook(group: dist.ProcessGroup, begun: int, steps: int, settings: dict[str, Any]) -> Usage:
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), ddp={"bucket_cap_mb": 0.002}, **settings)
    found = growth(lambda number: descend(model, lambda: backward(model, rank, number), rate=0.01), begun, steps)
    state.close()
    return found


def of_fsdp(group: dist.ProcessGroup, begun: int, steps: int) -> Usage:
    rank, mesh = dist.get_rank(group), DeviceMesh.from_group(group, "cpu")
    model: Any = net()
    for module in (model[2], model):
        fully_shard(module, mesh=mesh)
    nuq.compress_fsdp(model, "alq", feedback="average", timeout_s=60, **BUCKETS)
    nuq.compress_fsdp_weights(model, timeout_s=60, **BUCKETS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return growth(lambda number: trained(model, optimizer, optimizer.step, rank, number), begun, steps)


def of_loop(group: dist.ProcessGroup, begun: int, steps: int) -> Usage:
    rank, model = dist.get_rank(group), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    settings: dict[str, Any] = {"every": 4, "fragments": 2, "overlap": 2, "feedback": "error", **BUCKETS}
    loop = nuq.OuterLoop(model, optimizer, group=group, method="qsgdinf", timeout_s=60.0, **settings)
    found = growth(lambda number: trained(model, optimizer, loop.step, rank, number), begun, steps)
    loop.close()
    return found


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], object], rank: int, number: int
) -> None:
    optimizer.zero_grad()
    backward(model, rank, number)
    step()


def assert_flat(found: list[Usage], steps: int) -> None:
    """No thread, no file and next to no object more, and less than 500 bytes a step; a gradient has 9,500."""
    for more in found:
        assert more.threads <= 0 and more.files <= 0, more
        assert more.objects < steps // 100 + 20, more
        assert more.memory < 500 * steps, more


@pytest.mark.slow
def test_a_leak_is_seen() -> None:
    kept: list[bytearray] = []
    with pytest.raises(AssertionError, match="memory"):
        assert_flat([growth(lambda _: kept.append(bytearray(b"x") * (1 << 20)), 20, 60)], 20)
    lists: list[list[int]] = []
    with pytest.raises(AssertionError, match="objects"):
        assert_flat([growth(lambda _: lists.append([]), 500, 2000)], 750)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOOKS)
def test_a_thousand_steps_of_the_hook(name: str, ranks: Any) -> None:
    assert_flat(ranks.run(of_hook, 500, 1000, HOOKS[name], world=2, timeout_s=900.0), 250)


@pytest.mark.slow
@pytest.mark.parametrize("which", [of_fsdp, of_loop])
def test_a_thousand_steps_of_others(which: Callable[..., Usage], ranks: Any) -> None:
    assert_flat(ranks.run(which, 500, 1000, world=2, timeout_s=900.0), 250)
