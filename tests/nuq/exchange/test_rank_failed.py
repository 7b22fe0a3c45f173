"""A rank that meets an error of its own is named by the others at once, with the error, whatever they did together."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.errors import RankFailed, RankLost
from nuq.exchange.collectives.collective import ExchangeStats
from nuq.exchange.collectives.reduce_scatter import ReduceScatter, SentShards
from nuq.exchange.payload import PayloadCodec
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers
from tests.nuq.small_training import assert_same_bits, backward, hooked, net, parameters
from tests.tiers import few

QUICKLY_S = 10.0  # where a group waits for 20 s or more
BROKEN = "broken on purpose"
VICTIM = 1


def _hook(group: dist.ProcessGroup, method: str, **how: Any) -> Callable[[int], object]:
    if how["collective"] == "hierarchical":
        how["per_machine"] = 2
    model, _ = hooked(group, net(), method=method, ddp={"bucket_cap_mb": 0.002}, **how)
    return lambda step: backward(model, dist.get_rank(group), step)


def _all_reduce(group: dist.ProcessGroup, method: str, **how: Any) -> Callable[[int], object]:
    return lambda step: nuq.all_reduce(torch.ones(60, 50), method, group, step=step, **how)


def _outer(group: dist.ProcessGroup, method: str, **how: Any) -> Callable[[int], object]:
    model = net()
    loop = nuq.OuterLoop(model, torch.optim.SGD(model.parameters()), group=group, method=method, every=1, **how)

    def step(number: int) -> None:
        backward(model, dist.get_rank(group), number)
        loop.step()

    return step


def _fsdp(group: dist.ProcessGroup, method: str, collective: str) -> Callable[[int], object]:
    del collective  # both; which of them breaks
    model = net()
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    nuq.compress_fsdp(model, method)
    nuq.compress_fsdp_weights(model, method)
    return lambda step: backward(model, dist.get_rank(group), step)


def _simulation(group: dist.ProcessGroup, method: str, **how: Any) -> Callable[[int], object]:
    shapes, rank = {"x": torch.Size([60, 50])}, dist.get_rank(group)
    settings = METHODS[method].settings()
    cpu, exchange = torch.device("cpu"), Exchange(**how)
    workers = Workers(method, settings, dist.get_world_size(group), shapes, 0, cpu, group, exchange)
    return lambda step: workers.exchange({rank: torch.ones(3000)}, {rank: 0.0}, step)


ENTRIES = {"hook": _hook, "all_reduce": _all_reduce, "outer": _outer, "fsdp": _fsdp, "simulation": _simulation}


def breaks(patch: pytest.MonkeyPatch, collective: str, where: str, error: type[BaseException]) -> None:
    """Let this rank meet an error where it encodes or decodes."""

    def broken(*_: Any) -> Any:
        raise error(BROKEN)

    if collective == "reduce-scatter":
        of, name = (ReduceScatter, "send") if where == "encode" else (SentShards, "mean")
        patch.setattr(of, name, broken)
    elif collective == "dense" or where == "local":  # without a codec
        timed = ExchangeStats.time
        patch.setattr(ExchangeStats, "time", lambda self, what: broken() if what == where else timed(self, what))
    else:
        patch.setattr(PayloadCodec, "encode" if where == "encode" else "add", broken)


def meets_an_error(_, world, entry, how, where, error, victims):
    """Steps of the first so many ranks, of which the third one breaks on the victims: the errors, and their times."""
    group = dist.new_group(range(world))  # which is closed with it
    if not isinstance(group, dist.ProcessGroup):
        return None
    step, found = ENTRIES[entry](group, **how), None
    for number in range(2):
        step(number)
    with pytest.MonkeyPatch.context() as patch:
        if dist.get_rank(group) in victims:
            breaks(patch, how["collective"], where, error)
        for number in range(2, 5):
            began = time.monotonic()
            try:
                step(number)
            except BaseException as met:  # noqa: BLE001 - returned
                found = met
                break
    return type(found).__name__, str(found), isinstance(found, RankFailed), began, time.monotonic()


CASES = [
    *(("hook", {"method": "qsgdinf", "collective": name}, 2) for name in ("gather", "two_stage", "server")),
    ("hook", {"method": "qsgdinf", "collective": "dense"}, 4),
    ("hook", {"method": "alq", "collective": "two_stage"}, 3),
    ("hook", {"method": "powersgd", "collective": "auto"}, 3),
    ("hook", {"method": "qsgdinf", "collective": "server"}, 3),
    ("hook", {"method": "qsgdinf", "collective": "hierarchical"}, 4),
    *(("all_reduce", {"method": "qsgdinf", "collective": name}, 3) for name in ("gather", "two_stage", "server")),
    ("all_reduce", {"method": "powersgd", "collective": "auto"}, 2),
    ("outer", {"method": "topk", "collective": "auto"}, 3),
    *(("fsdp", {"method": "qsgdinf", "collective": name}, 2) for name in ("reduce-scatter", "gather")),
    ("fsdp", {"method": "ecdq", "collective": "reduce-scatter"}, 3),
    *(("simulation", {"method": "qsgdinf", "collective": name}, 3) for name in ("gather", "two_stage", "server")),
]


@few(
    3,
    ("entry", "how", "world", "where"),
    [
        *((*case, where) for case in CASES for where in ("encode", "decode")),
        ("hook", {"method": "qsgdinf", "collective": "hierarchical"}, 4, "local"),
    ],
    ids=str,
)
def test_the_others_name_the_rank_and_its_error(ranks, entry, how, world, where):
    victim = 2 if how["collective"] == "hierarchical" and where != "local" else 1  # the first rank of a machine encodes
    outcomes = ranks.run(meets_an_error, world, entry, how, where, AssertionError, [victim])[:world]
    failed = outcomes[victim]
    assert failed[:2] == ("AssertionError", BROKEN)
    for rank, (_, text, is_failed, began, ended) in enumerate(outcomes):
        if rank != victim:
            assert is_failed and f"rank {victim} of 4 failed: AssertionError: {BROKEN}" in text, text
            assert ended - max(began, failed[3]) < QUICKLY_S


def all_meet_it(group, entry, how, error):
    """An error of the same step on all ranks, and whether they go on together after it."""
    step, found = ENTRIES[entry](group, **how), None
    with pytest.MonkeyPatch.context() as patch:
        breaks(patch, how["collective"], "encode", error)
        try:
            step(0)
        except error as met:
            found = str(met)
    return found, float(nuq.all_reduce(torch.ones(100), "supersgd", group, step=1).sum())


@pytest.mark.parametrize("entry", ["all_reduce", "simulation"])
def test_an_error_of_all_ranks_is_each_ones_own_and_leaves_the_group_open(ranks, entry):
    how = {"method": "qsgdinf", "collective": "two_stage"}
    assert ranks.run(all_meet_it, entry, how, KeyError, world=2) == [(repr(BROKEN), 100.0)] * 2


def _new_group() -> Any:
    return dist.new_group()


def goes_on(group):
    """An outer loop that is interrupted on one rank, and goes on with a new group: its parameters, after each."""
    rank, model = dist.get_rank(), net()
    loop = nuq.OuterLoop(model, torch.optim.SGD(model.parameters(), lr=0.1), group=_new_group(), every=1)
    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            breaks(patch, loop.collective, "encode", KeyboardInterrupt)
        backward(model, rank, 0)
        kind, words = (KeyboardInterrupt, BROKEN) if rank == 0 else (RankLost, "rank 0 of 4 failed: KeyboardInterrupt")
        with pytest.raises(kind, match=words):
            loop.step()
    loop.attach(_new_group())
    with pytest.raises(ValueError, match="all ranks need the same"):  # and not the error before
        nuq.all_reduce(torch.ones(100), group=_new_group(), step=rank)
    backward(model, rank, 1)
    loop.step()
    assert_same_bits(group, parameters(model))


@pytest.mark.slow
def test_an_outer_loop_goes_on_with_a_new_group(ranks):
    ranks.run(goes_on)


def late_and_broken(_: dist.ProcessGroup) -> list[str]:
    """What rank 0 is told of ranks 1 and 2, which break or come late, in one group after another."""
    rank, told = dist.get_rank(), []
    hows = [(1, "breaks"), (1, "is late"), (1, "breaks"), (2, "is late"), (2, "breaks")]
    groups = [dist.new_group([0, who], timeout=timedelta(seconds=1.5)) for who, _ in hows]  # by all ranks of the pool
    for group, (who, how) in zip(groups, hows, strict=True):
        dist.barrier()
        if isinstance(group, dist.ProcessGroup):
            with pytest.MonkeyPatch.context() as patch:
                if rank == who and how == "breaks":
                    breaks(patch, "gather", "encode", KeyError)
                if rank == who and how == "is late":
                    time.sleep(3)
                try:
                    nuq.all_reduce(torch.ones(100), "qsgdinf", group, step=0)
                except (KeyError, RankLost) as error:
                    told.append(str(error))
        dist.barrier()
    return told


@pytest.mark.slow
def test_what_was_told_of_a_rank_explains_nothing_in_the_next_group(ranks: Any) -> None:
    told = ranks.run(late_and_broken)[0]
    for text, who, how in zip(told, (1, 1, 1, 2, 2), ("failed", "late", "failed", "late", "failed"), strict=True):
        words = f"failed: KeyError: '{BROKEN}'" if how == "failed" else "did not answer in time ("
        assert text.startswith(f"rank {who} of 4 {words}"), told
