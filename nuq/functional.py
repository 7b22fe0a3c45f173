"""One tensor's mean over the ranks, from compressed messages: for DiLoCo-style outer loops and whatever is no DDP training."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.choice import Method, build
from nuq.collectives import Account, Hosts
from nuq.links import Links
from nuq.ops import Key
from nuq.payload import Part
from nuq.registry import Exchange, check, unknown
from nuq.registry import method as entry_of
from nuq.statistics import Statistics


def all_reduce(
    tensor: Tensor,
    method: str = "alq",
    group: dist.ProcessGroup | None = None,
    *,
    step: int,
    seed: int = 0,
    timeout_s: float = 300.0,
    **settings: Any,
) -> Tensor:
    """The mean of the ranks' tensors, the same bits on every rank, as a new float32 tensor of the same shape.

    tensor: float32, bfloat16 or float16, any shape, alike on all ranks.  step: a number that differs from call to call and is the same on
    all ranks; with seed it keys the random roundings.  settings: of the method (``bits=4``) and of ``nuq.registry.Exchange``
    (``collective="two_stage"``; auto unless told otherwise).  Adaptive methods fit their levels to the tensor at hand: levels travel with
    the messages, so there is nothing to agree on.

    ValueError for settings that do not exist; NonFiniteError, on all ranks, where one rank's tensor is not finite; RankLost.
    """
    own, exchange = split_settings(method, settings)
    if exchange.collective == "hierarchical":
        raise ValueError(
            "collective='hierarchical': its groups are made once, by a CompressionState; legal here: auto, gather, two_stage, server"
        )
    coders = Method(method, own, exchange.second_bits)
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("nuq.all_reduce exchanges between processes: call torch.distributed.init_process_group first")
    links = Links(group, timeout_s=timeout_s)
    hosts = Hosts.of(1 if coders.single_worker else links.world, links.world)
    flat = tensor.detach().reshape(-1).contiguous()
    parts, key = [Part("tensor", 0, flat.numel())], Key(seed, step, links.rank)
    fit_levels(coders, flat, parts, key)
    out = torch.empty(flat.numel(), dtype=torch.float32, device=tensor.device)
    _, collective = build(coders, exchange, links, hosts, Account(), per_machine=1)
    collective.mean({links.rank: flat}, parts, key, out)
    settle = getattr(collective, "settle", None)
    if settle is not None:
        settle()
    return out.view(tensor.shape)


def split_settings(method: str, settings: dict[str, Any]) -> tuple[Any, Exchange]:
    """The method's and the collective's settings, checked; the collective is chosen automatically unless it is given."""
    schemas = (entry_of(method).settings, Exchange)
    fields = [{item.name for item in dataclasses.fields(schema)} for schema in schemas]
    for name in settings:
        if name not in fields[0] | fields[1]:
            raise unknown(f"setting of method={method}", name, sorted(fields[0] | fields[1]))
    made: list[Any] = []
    for schema, names in zip(schemas, fields, strict=True):
        defaults: dict[str, Any] = {"collective": "auto"} if schema is Exchange else {}
        made.append(schema(**defaults | {name: value for name, value in settings.items() if name in names}))
        check(schema, vars(made[-1]), "")
    return made[0], made[1]


def fit_levels(coders: Method, vector: Tensor, parts: list[Part], key: Key) -> None:
    """Adaptive methods' levels, from the vector that is about to be sent; one that is not finite is left to the encoder to name."""
    if not coders.adaptive or not bool(torch.isfinite(vector).all()):
        return
    statistics = Statistics.empty(coders.settings.num_components)
    for part in parts:
        coders.adaptive[0].observe(vector[part.start : part.start + part.size], key.of("statistics"), statistics)
    for compressor in coders.adaptive:
        compressor.update(statistics)
