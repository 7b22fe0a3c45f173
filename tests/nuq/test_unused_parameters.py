"""A parameter that no rank used in a step: DDP throws away what comes of it, so all that is remembered of it stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import nuq
from nuq.settings.exchange import Exchange
from nuq.simulation import Memory, Workers
from tests.nuq.small_training import hooked, of_all, wrapped

SHAPES = {"a": (24, 20), "b": (24, 20), "c": (30,)}
SIZES = {name: math.prod(shape) for name, shape in SHAPES.items()}
FINDS: dict[str, Any] = {"find_unused_parameters": True, "bucket_cap_mb": 1e-3}  # several buckets
TOPK: dict[str, Any] = {"method": "topk", "ratio": 0.1, "collective": "gather"}
SIGNS: dict[str, Any] = {"method": "sign", "scope": "model", "collective": "two_stage"}


class Experts(nn.Module):
    """Parameters whose gradients are those that are asked for; one that is not asked for is not used."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, wanted: Mapping[str, Tensor]) -> list[Tensor]:
        return [(self.get_parameter(name) * own).sum() for name, own in wanted.items()]


def backward(model: nn.Module, wanted: Mapping[str, Tensor]) -> None:
    torch.stack(model(wanted)).sum().backward()


def drawn(worker: int, step: int, names: Collection[str]) -> dict[str, Tensor]:
    """A worker's gradients of a step."""
    generator = torch.Generator().manual_seed(1000 * step + worker)
    every = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return {name: every[name] for name in every if name in names}


def remembered(state: nuq.CompressionState, name: str) -> dict[str, Tensor]:
    """All that this rank remembers of a parameter, or of its part of a vector of the whole model."""
    coders, found = state._here.driver.compressors.state_dict(), {}
    start = sum(SIZES[before] for before in SIZES if before < name)
    own = {f"{mean}{vector}" for mean in ("", "mean/") for vector in (name, "model")}
    for number, memory in enumerate(coders["memories"]):
        kinds = {"means": memory.get("means", {})}
        kinds |= {f"{kind} of {w}": vectors for w, of in memory["workers"].items() for kind, vectors in of.items()}
        for kind, vectors in kinds.items():
            for vector in own & set(vectors):
                part = slice(start, start + SIZES[name]) if "model" in vector else slice(None)
                found[f"{number}, {kind}, {vector}"] = vectors[vector][part].clone()
    starts = {key: own for key, own in coders["compressor"].items() if key == f"start of {name}"}
    return found | starts


def gradient(model: nn.Module, name: str) -> Tensor:
    found = model.get_parameter(f"module.{name}").grad
    assert found is not None
    return found.reshape(-1)


def bits(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: tensor.reshape(-1).view(torch.int32).tolist() for name, tensor in tensors.items()}


def tensors(tree: Any, path: str = "") -> dict[str, Tensor]:
    """The tensors of a state by where they are in it."""
    if isinstance(tree, Tensor):
        return {path: tree}
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return {where: own for key, value in pairs for where, own in tensors(value, f"{path}/{key}").items()}


KINDS: dict[str, tuple[dict[str, Any], int]] = {  # and how many tensors are remembered of a matrix
    "error": (TOPK, 1),
    "decay": (TOPK | {"decay": 0.9}, 1),
    "momentum": (TOPK | {"feedback": "momentum", "momentum": 0.9, "nesterov": True, "clip_norm": 3.0}, 2),
    "dgc": ({"method": "dgc", "ratio": 0.1, "collective": "gather"}, 2),
    "ef21": (TOPK | {"feedback": "ef21"}, 2),
    "ef21, both": (TOPK | {"feedback": "ef21", "both": True, "collective": "two_stage"}, 3),
    "both": ({"method": "qsgdinf", "bits": 2, "feedback": "error", "both": True, "collective": "two_stage"}, 2),
    "server": (
        TOPK | {"collective": "server", "both": True},
        0,
    ),  # 2 on the first rank, which remembers means, 1 on the other
    "powersgd": ({"method": "powersgd", "rank": 2}, 2),
    "a vector of all": (SIGNS | {"feedback": "error"}, 1),
    "a vector of all, both": (SIGNS | {"feedback": "ef21", "both": True}, 3),
    "undone": (TOPK | {"feedback": "ef21", "on_non_finite": "propagate"}, 2),
}


def keeps(group: dist.ProcessGroup, kinds: Collection[str]) -> None:
    rank = dist.get_rank(group)
    for kind in kinds:
        settings, count = KINDS[kind]
        model, state = hooked(group, Experts(), ddp=FINDS, **settings)
        for step in range(3):
            backward(model, drawn(rank, step, "abc"))
        before = remembered(state, "b")
        assert len(before) == (count or 2 - rank), (kind, list(before))
        assert any(tensor.any() for tensor in before.values())
        others = remembered(state, "a")
        for step in range(3, 7):
            model.zero_grad()
            bad = math.inf if kind == "undone" and step == 5 else 1.0
            backward(model, {name: bad * own for name, own in drawn(rank, step, "ac").items()})
            assert model.module.b.grad is None, kind
            assert bits(remembered(state, "b")) == bits(before), (kind, step)
        assert bits(remembered(state, "a")) != bits(others), kind
        state.close()


@pytest.mark.parametrize("kinds", [list(KINDS)[::2], list(KINDS)[1::2]], ids=" ".join)
def test_what_is_remembered_of_a_parameter_that_no_rank_used_stays_bit_for_bit(kinds, ranks):
    ranks.run(keeps, kinds, world=2)


def of_machines(group: dist.ProcessGroup) -> None:
    how: dict[str, Any] = TOPK | {"collective": "hierarchical", "per_machine": 2}
    model, state = hooked(group, Experts(), ddp=FINDS, **how)
    rank, before = dist.get_rank(group), {}
    for step in range(4):
        backward(model, drawn(rank, step, "abc" if step < 2 else "a"))
        before = before if step > 1 else remembered(state, "b")
        assert bits(remembered(state, "b")) == bits(before)
    assert len(before) == (rank % 2 == 0)  # a machine's first rank remembers for all
    state.close()


def test_so_it_does_on_machines(ranks):
    ranks.run(of_machines, world=4)


# --- what arrives ---


def every_way(group: dist.ProcessGroup, ways: Collection[str]) -> None:
    """Whatever way DDP hands buckets over: what arrived and what is left are all of b's gradient."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    for way in ways:
        options = FINDS | {"gradient_as_bucket_view": "views" in way}
        model = wrapped(group, Experts(), **options)
        state = nuq.CompressionState(model.module if "wraps" in way else model, group=group, min_size=0, **TOPK)
        model.register_comm_hook(state, nuq.compress_hook)
        arrived, whole = torch.zeros(SHAPES["b"]), torch.zeros(SHAPES["b"])
        for step in range(6):
            model.zero_grad(set_to_none="zeros" not in way)
            users = range(0) if step % 3 == 1 else range(step % 2, world)
            mine, at = drawn(rank, step, "abc" if rank in users else "ac"), "ac" if "no_sync" in way else "abc"
            if "no_sync" in way:
                with model.no_sync():
                    backward(model, mine)
            backward(model, {name: own for name, own in mine.items() if name in at})
            whole += sum((drawn(user, step, "b")["b"] for user in users), torch.zeros(SHAPES["b"])) / world
            found = model.module.b.grad
            if users:
                arrived += found
            else:
                assert found is None or not found.any(), way
        left = torch.stack(of_all(group, remembered(state, "b").popitem()[1])).mean(dim=0)
        torch.testing.assert_close(arrived.reshape(-1) + left, whole.reshape(-1), rtol=1e-5, atol=1e-5, msg=way)
        state.close()


WAYS = ["buckets", "views, zeros", "no_sync", "no_sync, views, zeros", "wraps"]


def test_all_of_a_gradient_arrives_whoever_used_the_parameter(ranks):
    ranks.run(every_way, WAYS, world=2)


def joins(group: dist.ProcessGroup) -> None:
    """A rank that has no more batches uses nothing."""
    rank, arrived, whole = dist.get_rank(group), torch.zeros(SHAPES["b"]), torch.zeros(SHAPES["b"])
    model, state = hooked(group, Experts(), ddp=FINDS, **TOPK)
    steps = {step: "abc" if step in (0, 2, 5) else "ac" for step in range(6)}
    with model.join():
        for step in range(6 if rank == 0 else 2):
            model.zero_grad()
            backward(model, drawn(rank, step, steps[step]))
            if model.module.b.grad is not None:
                arrived += model.module.b.grad
    for user, last in ((0, 6), (1, 2)):
        for step in range(last):
            whole += drawn(user, step, steps[step]).get("b", torch.zeros(SHAPES["b"])) / 2
    left = torch.stack(of_all(group, remembered(state, "b").popitem()[1])).mean(dim=0)
    if rank == 0:
        torch.testing.assert_close(arrived.reshape(-1) + left, whole.reshape(-1), rtol=1e-5, atol=1e-5)
    state.close()


def test_ranks_that_join(ranks):
    ranks.run(joins, world=2)


def stale(group: dist.ProcessGroup) -> None:
    """A gradient that nobody has emptied is neither sent again nor touched; so a static graph leaves what was saved."""
    rank = dist.get_rank(group)
    model, state = hooked(group, Experts(), ddp=FINDS | {"gradient_as_bucket_view": True}, **TOPK)
    backward(model, drawn(rank, 0, "abc"))
    before, kept = model.module.b.grad.clone(), remembered(state, "b")
    backward(model, drawn(rank, 1, "a"))
    assert torch.equal(model.module.b.grad, before)
    model.zero_grad()
    model(drawn(rank, 2, "ab"))[0].backward()  # computes with b, and the loss does without
    assert model.module.b.grad is None
    assert bits(remembered(state, "b")) == bits(kept)
    static, other = hooked(group, Experts(), ddp={"static_graph": True}, **TOPK)
    other.load_state_dict(state.state_dict())
    for step in range(3):
        static.zero_grad()
        backward(static, drawn(rank, step, "ac"))
        assert bits(remembered(other, "b")) == bits(kept)
    state.close()
    other.close()


def test_a_stale_gradient_and_a_static_graph(ranks):
    ranks.run(stale, world=2)


# --- what is sent ---

USERS = [{0, 1}, {0}, set(), {1}, set(), {0}, {0, 1}, {1}]  # of b, by step


def top(vector: Tensor) -> Tensor:
    kept = vector.abs().topk(math.ceil(0.1 * vector.numel())).indices
    return torch.zeros_like(vector).index_copy(0, kept, vector[kept])


def error(memory: dict[str, Tensor], gradient: Tensor) -> Tensor:
    wanted = gradient + memory["error"]
    sent = top(wanted)
    memory["error"] = wanted - sent
    return sent


def momentum(memory: dict[str, Tensor], gradient: Tensor) -> Tensor:
    momentum = 0.9 * memory["momentum"] + gradient
    sent = error(memory, momentum)
    memory["momentum"] = momentum * (sent == 0)
    return sent


def ef21(memory: dict[str, Tensor], gradient: Tensor) -> Tensor:
    sent = top(gradient - memory["estimate"])
    memory["estimate"] = memory["estimate"] + sent
    return memory["estimate"]


RULES: dict[str, tuple[dict[str, Any], Callable[[dict[str, Tensor], Tensor], Tensor]]] = {
    "error": (TOPK, error),
    "momentum": (TOPK | {"feedback": "momentum", "momentum": 0.9}, momentum),
    "dgc": ({"method": "dgc", "ratio": 0.1, "collective": "gather", "selection": "exact"}, momentum),
    "ef21": (TOPK | {"feedback": "ef21"}, ef21),
}


def follows(group: dist.ProcessGroup, case: str) -> None:
    """b's gradients are those of each rule by itself: a step without a user is none, one of zeros is."""
    rank = dist.get_rank(group)
    for name, (settings, rule) in RULES.items():
        model, state = hooked(group, Experts(), ddp=FINDS if "finds" in case else {"bucket_cap_mb": 1e-3}, **settings)
        nothing = torch.zeros(SIZES["b"])
        memories: list[dict[str, Tensor]] = [{"error": nothing, "momentum": nothing, "estimate": nothing} for _ in "01"]
        for step, users in enumerate(USERS):
            model.zero_grad()
            mine = drawn(rank, step, "abc" if rank in users else "ac")
            backward(model, mine if case == "finds" else {"b": torch.zeros(SHAPES["b"])} | mine)
            if case == "finds" and not users:
                assert model.module.b.grad is None
                continue
            gradients = [drawn(user, step, "b" if user in users else "").get("b", nothing) for user in range(2)]
            sent = [rule(memory, own.reshape(-1)) for memory, own in zip(memories, gradients, strict=True)]
            found, expected = gradient(model, "b"), (sent[0] + sent[1]) / 2
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=f"{name}, step {step}")
        state.close()


@pytest.mark.parametrize("case", ["finds", "finds, zeros", "plain, zeros"])
def test_an_expert_of_one_rank_and_a_gradient_of_zeros_are_ordinary(case, ranks):
    ranks.run(follows, case, world=2)


# --- hook and simulation ---


def simulated(state: nuq.CompressionState, group: dist.ProcessGroup | None) -> Workers:
    own, shapes = state.settings, {name: torch.Size(shape) for name, shape in SHAPES.items()}
    memory = Memory(own.feedback.settings(), own.feedback.momentum, own.feedback.nesterov)
    how = Exchange(**{**vars(own.exchange), "collective": own.exchange.collective})
    device, seed = torch.device("cpu"), own.hook.seed
    return Workers(own.method, own.of_method, 2, shapes, seed, device, group, how, memory=memory)


def alike(group: dist.ProcessGroup, kinds: Collection[str]) -> None:
    rank = dist.get_rank(group)
    for kind in kinds:
        model, state = hooked(group, Experts(), ddp=FINDS, **KINDS[kind][0])
        every = [simulated(state, None), simulated(state, group)]
        for step, users in enumerate(USERS[:5]):
            model.zero_grad()
            backward(model, drawn(rank, step, "abc" if rank in users else "ac"))
            for workers in every:
                given = {of: drawn(of, step, "abc" if of in users else "ac") for of in workers.hosted}
                whole = {
                    of: {name: torch.zeros(shape) for name, shape in SHAPES.items()} | own for of, own in given.items()
                }
                vectors = {of: torch.cat([piece.reshape(-1) for piece in own.values()]) for of, own in whole.items()}
                unused = {of: set(SHAPES) - set(own) for of, own in given.items()}
                result = workers.exchange(vectors, dict.fromkeys(vectors, 0.0), step, unused=unused)
                assert result.unused == (frozenset() if users else {"b"})
                for (name, p), piece in zip(
                    model.module.named_parameters(), result.mean.split(list(SIZES.values())), strict=True
                ):
                    assert torch.equal(piece, torch.zeros_like(piece) if p.grad is None else p.grad.reshape(-1)), (
                        kind,
                        step,
                        name,
                    )
        one, other = (workers.state_dict()["memories"] for workers in every)
        assert bits(tensors(one)) == bits(tensors(other))
        state.close()


@pytest.mark.parametrize(
    "kinds", [["ef21", "dgc", "error", "a vector of all, both"], ["momentum", "powersgd", "decay"]]
)
def test_the_simulation_does_the_same_in_every_split(kinds, ranks):
    ranks.run(alike, kinds, world=2)


# --- what it costs ---


def sends(group: dist.ProcessGroup) -> dict[str, int]:
    """The bytes of three steps by purpose, with DDP's looks and without; nothing watches where it does not look."""
    rank, found = dist.get_rank(group), []
    how: dict[str, Any] = {"method": "qsgdinf", "bits": 4, "feedback": "error", "collective": "gather", "min_size": 0}
    for options, inner in (({"find_unused_parameters": True}, False), ({}, False), ({}, True)):
        model = wrapped(group, Experts(), **options)
        state = nuq.CompressionState(model.module if inner else model, group=group, **how)
        model.register_comm_hook(state, nuq.compress_hook)
        watched = [bool(p._post_accumulate_grad_hooks) for p in model.parameters()]
        assert all(watched) if inner or options else not any(watched)
        for step in range(3):
            backward(model, drawn(rank, step, "abc"))
        assert inner is False or not any(p._post_accumulate_grad_hooks for p in model.parameters())
        found.append(dict(state.transport.bytes_sent))
        state.close()
    looks, plain, wrapped_plain = found
    assert plain == wrapped_plain == {"messages": looks["messages"]}
    return looks


def test_without_find_unused_parameters_nothing_more_is_sent(ranks):
    for looks in ranks.run(sends, world=2):
        assert looks["control"] == 3 * 8  # steps of one bucket
