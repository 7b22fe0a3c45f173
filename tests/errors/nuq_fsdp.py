"""Errors of compressed FSDP2, on one rank."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import nuq
from nuq import fsdp_overlap
from nuq.fsdp import CompressedReduceScatter
from nuq.fsdp_between import MeanBetween
from nuq.fsdp_gather import CompressedGather
from tests.errors.nuq_ranks import net, on_one_rank
from tests.errors.rows import Row, row


def sharded(*shape: int) -> Any:
    """A model under FSDP2 on a mesh of this shape."""
    model, names = net(), ("machines", "ranks")[2 - len(shape or (1,)) :]
    fully_shard(model, mesh=init_device_mesh("cpu", shape or (1,), mesh_dim_names=names))
    return model


def fsdp(key: str, given: str, model: Callable[[], Any] = sharded, **settings: Any) -> Row:
    return on_one_rank(f"nuq.compress_fsdp({key})", given, lambda: nuq.compress_fsdp(model(), **settings))


def weights(key: str, given: str, model: Callable[[], Any] = sharded, **settings: Any) -> Row:
    call = f"nuq.compress_fsdp_weights({key})"
    return on_one_rank(call, given, lambda: nuq.compress_fsdp_weights(model(), **settings))


def between(given: str, method: str = "qsgdinf", group: Any = None, bits: float = 4) -> Row:
    def make() -> None:
        how: dict[str, Any] = {"bits": bits, "seed": 0, "timeout_s": None, "settings": {}}
        MeanBetween(method, "layer", _world() if group is None else group, **how)

    return on_one_rank("nuq.compress_fsdp(between=)", given, make)


def _other_torch(without: str) -> None:
    """Another version of torch, which lacks FSDP2 or one of its methods."""
    model = sharded()
    if without == "FSDPModule":
        with mock.patch.dict(sys.modules, {"torch.distributed.fsdp": ModuleType("fsdp")}):
            nuq.compress_fsdp(model)
    of = getattr(FSDPModule, without)
    delattr(FSDPModule, without)
    try:
        nuq.compress_fsdp(model)
    finally:
        setattr(FSDPModule, without, of)


def _scattered(number: float, op: Any) -> None:
    whole, own = torch.full((64,), number), torch.empty(64)
    CompressedReduceScatter("qsgdinf", "layer")(own, whole, _world(), op)


def _world() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _gathered(*shards: torch.Tensor, groups: int = 1) -> None:
    """The gathers of these shards, one after another, from one group of ranks or two."""
    gather = CompressedGather("qsgdinf", "layer")
    own: list[Any] = [_world(), *(dist.new_group([0]) for _ in range(groups - 1))]
    for number, shard in enumerate(shards):
        gather(torch.empty_like(shard), shard, own[number % groups])


def _copied_gradient() -> None:
    gradient = SimpleNamespace(to_local=lambda: torch.ones(4))
    fsdp_overlap.check_views("layer", [SimpleNamespace(grad=gradient)], torch.ones(4))


def state(given: str, model: Callable[[Any], Any], installed: Callable[[list[Any]], Any]) -> Row:
    """A state of a model and of what was installed in it, or of others."""

    def make() -> None:
        own = sharded()
        found = nuq.compress_fsdp(own, feedback="average")
        nuq.FsdpState(model(own), installed(found))

    return on_one_rank("nuq.FsdpState(model, installed)", given, make)


def loaded(given: str, change: Callable[[dict[str, Any]], Any]) -> Row:
    def make() -> None:
        model = sharded()
        of = nuq.FsdpState(model, nuq.compress_fsdp(model, feedback="average"))
        model(torch.ones(2, 40)).sum().backward()
        of.load_state_dict(change(of.state_dict()))

    return on_one_rank("nuq.FsdpState.load_state_dict(state)", given, make)


def _of_no_shard(model: Any) -> Any:
    """The model with parameters that say that they lie whole."""
    for parameter in model.parameters():
        parameter._spec = SimpleNamespace(placements=("Replicate()",), mesh=parameter.device_mesh)
    return model


def _part(saved: dict[str, Any]) -> dict[str, Any]:
    (kind,) = saved
    (name,) = saved[kind]
    return saved[kind][name]


ROWS = [
    fsdp("model", "not sharded", net),
    fsdp("model", "3.0", lambda: 3.0),
    fsdp("bits_between=", "3, without between", bits_between=3),
    fsdp("between=", "of a model on one rank", between=3),
    fsdp("between=", "of a model with replicas", lambda: sharded(1, 1), between=3),
    fsdp("method=", "'sgd'", method="sgd"),
    fsdp("feedback=", "'average', which nothing leaves out", method="supersgd", feedback="average"),
    fsdp("bitz=", "a name that is none", bitz=1),
    fsdp("beta=", "0.1, without feedback", beta=0.1),
    fsdp("beta=", "0", feedback="average", beta=0),
    fsdp("feedback=", "'error'", feedback="error"),
    fsdp("seed=", "1.5", seed=1.5),
    fsdp("timeout_s=", "'x'", timeout_s="x"),
    between("bits_between=0", bits=0),
    between("a method without bits", "topk"),
    between("bits_between=99", bits=99),
    between("a number", group=3),
    between("a group of one rank"),
    on_one_rank("nuq.compress_fsdp", "a torch without FSDP2", lambda: _other_torch("FSDPModule")),
    on_one_rank("nuq.compress_fsdp", "a torch without the method", lambda: _other_torch("set_custom_reduce_scatter")),
    on_one_rank("FSDP2's reduce-scatter", "by MAX", lambda: _scattered(1.0, dist.ReduceOp.MAX)),
    on_one_rank("FSDP2's reduce-scatter", "nan", lambda: _scattered(torch.nan, dist.ReduceOp.AVG)),
    row("loss.backward() under FSDP2", "a gradient that was copied, with overlap", _copied_gradient),
    weights("method=", "'sgd'", method="sgd"),
    weights("model", "not sharded", net),
    weights("full_every=", "0", full_every=0),
    weights("seed=", "-1", seed=-1),
    weights("timeout_s=", "0", timeout_s=0),
    on_one_rank("FSDP2's gather", "uint8", lambda: _gathered(torch.ones(8, dtype=torch.uint8))),
    on_one_rank("FSDP2's gather", "two groups", lambda: _gathered(torch.ones(8), torch.ones(8), groups=2)),
    on_one_rank("FSDP2's gather", "nan", lambda: _gathered(torch.full((8,), torch.nan))),
    on_one_rank("FSDP2's gather", "nan after a step", lambda: _gathered(torch.ones(8), torch.full((8,), torch.nan))),
    state("a number", lambda model: model, lambda installed: 3),
    state("twice", lambda model: model, lambda installed: installed * 2),
    state("of another model", lambda model: net(), lambda installed: installed),
    state("of parameters that lie whole", _of_no_shard, lambda installed: installed),
    loaded("empty", lambda saved: {}),
    loaded("of other parameters", lambda saved: (_part(saved)["shards"].pop("0.bias"), saved)[1]),
]
