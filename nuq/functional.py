"""The mean of one tensor over the ranks, from compressed messages: for DiLoCo's outer loops, or without DDP."""

from __future__ import annotations

from typing import Unpack

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors.message import in_a_row
from nuq.exchange.agreement import check_settings
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.driver import Driver
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import told_plainly
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.settings.exchange import Exchange
from nuq.settings.typed import OfExchange

AUTO = {"collective": "auto"}  # where nothing is said


def all_reduce(
    tensor: Tensor,
    method: str = "alq",
    group: dist.ProcessGroup | None = None,
    *,
    step: int,
    seed: int = 0,
    timeout_s: float = 300.0,
    **settings: Unpack[OfExchange],
) -> Tensor:
    """The mean of the ranks' tensors as a new float32 tensor of the same shape, with the same bits on every rank.

    tensor: float32, bfloat16 or float16, any shape, alike on all ranks.  step: a number that differs from call to call
    and is the same on all ranks; with seed it keys the random roundings.  settings: of the method (``bits=4``) and of
    ``nuq.settings.exchange.Exchange`` (``collective="two_stage"``; auto unless told otherwise).  Adaptive methods fit
    their levels to the tensor at hand: levels travel with the messages, so there is nothing to agree on.

    It remembers nothing of what messages leave out (``feedback``, of a CompressionState): biased methods stay biased.

    ValueError for settings that do not exist, and where ranks differ in what they ask for; NonFiniteError, on all
    ranks, where one rank's tensor is not finite; RankLost.
    """
    own, exchange = sorted_settings(method, (Exchange,), settings, AUTO)
    if exchange.collective == "hierarchical":
        raise ValueError(
            "collective='hierarchical': its groups are made once, by a CompressionState; legal here: auto, gather, "
            "two_stage, server"
        )
    compressors = CompressorMap(method, own, exchange.second_bits)
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("nuq.all_reduce exchanges between processes: call torch.distributed.init_process_group first")
    transport = Transport(group, timeout_s=timeout_s, device=tensor.device)
    kind = {"shape": list(tensor.shape), "type": str(tensor.dtype), "layout": str(tensor.layout)}
    told = {"method": method, **vars(own), **vars(exchange), **kind, "step": step, "seed": seed}
    check_settings(transport, told)
    if tensor.layout is not torch.strided:
        raise ValueError(f"a tensor of {tensor.layout}: must be dense; hand over tensor.to_dense()")
    flat = in_a_row(tensor)
    shape = tuple(tensor.shape) if tensor.dim() > 1 else None  # what is flat here stands for matrices, not for a bias
    layout = FlatLayout((Segment("tensor", 0, flat.numel(), shape=shape),))
    key = Key(seed, step, transport.rank, piece_of=2 if shape is None else 0)
    out = torch.empty(flat.numel(), dtype=torch.float32, device=tensor.device)
    driver = Driver(compressors, layout, exchange, transport, transport.world, seed, per_machine=1)
    driver.fit_levels(flat, driver.sent(layout), key)
    with told_plainly():
        driver.mean({transport.rank: flat}, layout, key, out)
    driver.settle()
    return out.view(tensor.shape)
