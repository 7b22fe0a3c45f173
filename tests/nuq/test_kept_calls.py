"""What ``nuq.all_reduce`` keeps for the next call: it spares time, and nobody can tell by anything else."""

from __future__ import annotations

import gc
import random
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq import functional
from nuq.errors import NonFiniteError
from nuq.exchange.level_updates import fit_levels
from nuq.registry import METHODS
from tests.nuq.small_training import assert_same_bits

all_reduce: Any = nuq.all_reduce  # whose settings lie in dictionaries here
VARIANTS = [
    ("amq", {"solver": "paper"}),  # which begins where the update before ended
    ("alq", {"collective": "two_stage", "fit": "mixture"}),
    ("alq", {"collective": "server", "coding": "rans"}),
    ("casq", {"refresh_every": 3}),
    ("powersgd", {"collective": "two_stage", "scope": "tensor"}),
    ("eden", {"collective": "two_stage"}),
]


def vector(rank: int, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(shape, generator=generator) * torch.rand(shape, generator=generator).pow(-0.5)


def outcome(*given: Any, **settings: Any) -> Any:
    """The mean, or the error with its sentence."""
    try:
        return all_reduce(*given, **settings)
    except (ValueError, NonFiniteError) as error:
        return f"{type(error).__name__}: {error}"


def same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else type(other) is str and one == other


# --- bits ---


def calls_one_after_another(group: dist.ProcessGroup, cases: list[tuple[str, dict[str, Any]]]) -> None:
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    not_finite = vector(rank, 30, 20)
    not_finite[3, 4] = torch.inf if rank == world - 1 else 1.0
    tensors = [
        vector(rank, 30, 20),
        torch.zeros(30, 20),  # to which no levels are fitted
        vector(rank, 700, seed=1) * 1e3,
        vector(rank, 700, seed=2).bfloat16(),
        not_finite,
        vector(rank, 0),
        vector(rank, 30, 20, seed=3),
    ]
    for name, settings in cases:
        how = {"timeout_s": 30.0, **settings}
        if "bucket_size" in METHODS[name].settings.__dataclass_fields__:
            how.setdefault("bucket_size", 128)
        alone = []
        for step, tensor in enumerate(tensors):
            functional._kept.pop(group, None)  # of other groups other ranks keep theirs
            alone.append(outcome(tensor, name, group, step=step, **how))
        for _ in range(2):
            for step, (tensor, wanted) in enumerate(zip(tensors, alone, strict=True)):
                found = outcome(tensor, name, group, step=step, **how)
                assert same(found, wanted), (name, settings, step, found, wanted)
        assert sum(isinstance(found, str) for found in alone) <= 1


METHOD_CASES = [(name, {}) for name in METHODS]


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_call_leaves_anything_to_the_next_one(ranks: Any, world: int) -> None:
    """Every mean has the bits of a first call's, whatever was called before."""
    quick = [("alq", {}), ("topk", {}), ("casq", {}), *VARIANTS[:3]]
    ranks.run(calls_one_after_another, quick if world == 2 else [*METHOD_CASES, *VARIANTS], world=world)


# --- calls of Python ---


def counted(call: Callable[[], object], *, fits: bool) -> int:
    """The functions written in Python that a call enters, in this thread, of any package.

    fits: with those that fit the levels to the tensor at hand.
    """
    entered, inside = 0, 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal entered, inside
        if not fits and frame.f_code is fit_levels.__code__:
            inside += {"call": 1, "return": -1}.get(event, 0)
        entered += event == "call" and not inside

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def calls_of_python(group: dist.ProcessGroup, name: str, fits: bool) -> list[int]:
    functional._kept.pop(group, None)  # of other groups other ranks keep theirs
    tensor = vector(dist.get_rank(group), 100_000)
    return [counted(lambda: all_reduce(tensor, name, group, step=step), fits=fits) for step in range(3)]  # noqa: B023


@pytest.mark.parametrize("world", [1, 2])
def test_a_second_call_is_short(ranks: Any, world: int) -> None:
    """At most 400 calls of functions in Python; ALQ's fit to the tensor, which every call needs, comes on top."""
    for name, fits in (("qsgdinf", True), ("alq", False)):
        for first, *later in ranks.run(calls_of_python, name, fits, world=world):
            assert first > 450 and max(later) <= 400, (name, first, later)


# --- agreement ---


def differ_after_both_were_kept(group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    asked: dict[str, tuple[dict[str, Any], ...]] = {
        "bits": ({"bits": 3}, {"bits": 4}),
        "method": ({"method": "qsgdinf"}, {"method": "qsgd"}),
        "collective": ({"collective": "gather"}, {"collective": "two_stage"}),
        "shape": ({"tensor": vector(rank, 64)}, {"tensor": vector(rank, 65)}),
        "type": ({"tensor": vector(rank, 64)}, {"tensor": vector(rank, 64).half()}),
        "step": ({"step": 1}, {"step": 2}),
        "seed": ({"seed": 1}, {"seed": 2}),
    }
    for name, both in asked.items():
        ways: list[dict[str, Any]] = [
            {"tensor": vector(rank, 64), "method": "alq", "group": group, "step": 0, **each} for each in both
        ]
        means = [all_reduce(**way) for way in ways * 2]
        began = time.monotonic()
        with pytest.raises(ValueError, match=rf"rank 0 has {name}=.* and rank 1 has {name}="):
            all_reduce(**ways[rank % 2])
        assert time.monotonic() - began < 20
        for way, wanted in zip(ways, means, strict=False):
            assert torch.equal(all_reduce(**way), wanted), name  # the ranks go on


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_kept_differing_calls_say_so(ranks: Any, world: int) -> None:
    ranks.run(differ_after_both_were_kept, world=world)


def of_first(size: int) -> dist.ProcessGroup | None:
    """A new group of the first ranks; None on the others, which have to take part in making it."""
    made = dist.new_group(range(size))
    return made if isinstance(made, dist.ProcessGroup) else None


def random_histories(everyone: dist.ProcessGroup, size: int, seeds: range) -> None:
    rank = dist.get_rank(everyone)
    ways: list[dict[str, Any]] = [
        {"method": method, "tensor": vector(rank, *shape, seed=len(shape)).to(dtype), "bucket_size": 128, **settings}
        for method, settings in (
            ("alq", {}),
            ("alq", {"bits": 4, "collective": "two_stage"}),
            ("qsgdinf", {"collective": "server"}),
            ("topk", {}),
            ("amq_n", {"coding": "rans"}),
        )
        for shape, dtype in (((300,), torch.float32), ((20, 15), torch.float32), ((300,), torch.bfloat16))
    ]
    known: dict[int, torch.Tensor] = {}
    for seed in seeds:
        shared, own = random.Random(seed), random.Random(1000 * seed + rank)
        here = of_first(size)
        for _ in range(25):
            number, odd = shared.randrange(len(ways)), shared.randrange(size)
            happens = shared.choice(["alike", "alike", "alike", "differ", "not finite", "forget", "anew"])
            if happens == "anew":
                if here is not None:
                    dist.destroy_process_group(here)
                here = of_first(size)
            if here is None:
                continue
            way: dict[str, Any] = {"group": here, "step": 7, "timeout_s": 30.0, **ways[number]}
            began = time.monotonic()
            if happens == "forget":  # on some ranks, some of it
                for kept in functional._kept.get(here, {}).values():
                    for name in list(kept.calls):
                        if own.random() < 0.5:
                            del kept.calls[name]
            if happens == "differ":
                with pytest.raises(ValueError, match="rank 0 has"):
                    all_reduce(**way | ({"step": 8} if rank == odd else {}))
            elif happens == "not finite":
                tensor = torch.full_like(way["tensor"], torch.nan) if rank == odd else way["tensor"]
                with pytest.raises(NonFiniteError, match=f"worker {odd}"):
                    all_reduce(**way | {"tensor": tensor})
            else:
                mean = all_reduce(**way)
                assert torch.equal(known.setdefault(number, mean), mean)
                assert_same_bits(here, mean)
            assert time.monotonic() - began < 20
        if here is not None:
            dist.destroy_process_group(here)


@pytest.mark.parametrize(("size", "count"), [(2, 2), (3, 2), pytest.param(3, 12, marks=pytest.mark.slow)])
def test_ranks_of_different_histories_neither_wait_nor_differ(ranks: Any, size: int, count: int) -> None:
    ranks.run(random_histories, size, range(100 * size, 100 * size + count))


# --- memory ---


def groups_come_and_go(everyone: dist.ProcessGroup) -> None:
    rank, here = dist.get_rank(everyone), of_first(2)
    if here is None:
        return
    for step in range(functional.MOST_KEPT + 8):
        all_reduce(vector(rank, 50), "qsgdinf", here, step=step, bucket_size=step + 1)
    for collective in ("server", "two_stage"):
        all_reduce(vector(rank, 50), "alq", here, step=0, collective=collective)
    with pytest.raises(NonFiniteError):
        all_reduce(torch.full((50,), torch.nan), "alq", here, step=0)
    with pytest.raises(ValueError, match="bits=0"):
        all_reduce(vector(rank, 50), "alq", here, step=0, bits=0)
    (kept,) = functional._kept[here].values()
    assert len(kept.calls) == functional.MOST_KEPT
    last = list(kept.calls.values())[-1]
    watched = [weakref.ref(each) for each in (here, kept, last, last.driver)]
    dist.destroy_process_group(here)
    del here, kept, last
    gc.collect()
    assert [each() for each in watched] == [None] * 4


def test_what_is_kept_goes_with_its_group(ranks: Any) -> None:
    ranks.run(groups_come_and_go)
