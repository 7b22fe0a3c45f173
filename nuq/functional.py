"""The mean of one tensor over the ranks, from compressed messages: for DiLoCo's outer loops, or without DDP."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Unpack
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors.message import in_a_row
from nuq.exchange.agreement import check_settings
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.driver import Driver
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import told_plainly
from nuq.exchange.transport import RefusalsTold, Transport, group_of
from nuq.kernels.spec import DTYPES, Key
from nuq.registry import method as entry_of
from nuq.settings.exchange import Exchange
from nuq.settings.typed import OfExchange

AUTO = {"collective": "auto"}  # where nothing is said
MOST_KEPT = 32  # kinds of calls, by settings, of which a group keeps what it built


def all_reduce(
    tensor: Tensor,
    method: str = "alq",
    group: dist.ProcessGroup | None = None,
    *,
    step: int,
    seed: int = 0,
    timeout_s: float | None = None,
    **settings: Unpack[OfExchange],
) -> Tensor:
    """The mean of the ranks' tensors as a new float32 tensor of the same shape, with the same bits on every rank.

    tensor: float32, bfloat16 or float16, any shape, alike on all ranks.  step: a number that differs from call to call
    and is the same on all ranks; with seed it keys the random roundings.  settings: of the method (``bits=4``) and of
    ``nuq.settings.exchange.Exchange`` (``collective="two_stage"``; auto unless told otherwise).  Adaptive methods fit
    their levels to the tensor at hand: levels travel with the messages, so there is nothing to agree on.

    It remembers nothing of what messages leave out (``feedback``, of a CompressionState): biased methods stay biased.
    What it builds for settings is kept with the group for the next call with the same ones.

    ValueError for settings that do not exist, and where ranks differ in what they ask for; NonFiniteError, on all
    ranks, where one rank's tensor is not finite; RankLost.
    """
    group = group_of(group)
    with RefusalsTold(group):
        if not isinstance(tensor, Tensor):
            legal = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise ValueError(f"tensor={tensor!r:.999}: must be a torch.Tensor of {legal}, as torch.tensor([3.0]) is")
        for asked_by, number in (("step", step), ("seed", seed)):
            if type(number) is not int:
                raise ValueError(f"{asked_by}={number!r:.100}: must be an integer, the same on all ranks")
        name = repr((method, sorted(settings.items()), timeout_s))
        kept = None if group is None else _kept_by(group, tensor.device)
        # taken out, so that a call that fails leaves nothing behind
        call = (kept.calls.pop(name, None) if kept else None) or _Call(method, settings)
        if group is None or kept is None:
            remedy = "call torch.distributed.init_process_group first"
            raise ValueError(f"nuq.all_reduce exchanges between processes: {remedy}")
        asked = {"shape": list(tensor.shape), "type": str(tensor.dtype), "layout": str(tensor.layout)}
        asked |= {"step": step, "seed": seed}
        kept.control.group = group
        try:
            kept.control.wait_for(timeout_s)  # of None the group tells
            driver = call.driver if kept.all_have_built(call, asked) else None
            if driver is None:  # all ranks build together
                call = call if call.driver is None else _Call(method, settings)
                driver = call.build(Transport(group, timeout_s=timeout_s, device=tensor.device), asked)
            driver.transport.group = group
            out = _mean(driver, tensor, step, seed)
        finally:
            for transport in (kept.control, call.driver.transport if call.driver else kept.control):
                transport.group = None
    kept.keep(name, call)
    return out


def _mean(driver: Driver, tensor: Tensor, step: int, seed: int) -> Tensor:
    """The mean, by what may have been built for an earlier call, of whose tensor nothing is left."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"a tensor of {tensor.layout}: must be dense; hand over tensor.to_dense()")
    with driver.transport.telling(), told_plainly():
        flat, layout = in_a_row(tensor), _layout(tuple(tensor.shape))
        key = Key(seed, step, driver.transport.rank, piece_of=0 if layout.segments[0].shape else 2)
        out = torch.empty(flat.numel(), dtype=torch.float32, device=tensor.device)
        if driver.compressors.adaptive:
            for compressor in driver.compressors.adaptive:
                compressor.forget()
            driver.fit_levels(flat, driver.sent(layout), key)
        driver.mean({driver.transport.rank: flat}, layout, key, out)
        driver.settle()
    return out.view(tensor.shape)


@functools.lru_cache(maxsize=256)
def _layout(shape: tuple[int, ...]) -> FlatLayout:
    """The layout of a tensor; what is flat here stands for matrices, not for a bias."""
    return FlatLayout((Segment("tensor", 0, math.prod(shape), shape=shape if len(shape) > 1 else None),))


class _Call:
    """What calls with the same settings share: the settings, and the driver that was built for them on all ranks.

    ValueError for settings that do not exist.
    """

    def __init__(self, method: str, settings: Mapping[str, Any]) -> None:
        own, self._exchange = sorted_settings(method, (Exchange,), settings, AUTO)
        if self._exchange.collective == "hierarchical":
            raise ValueError(
                "collective='hierarchical': its groups are made once, by a CompressionState; legal here: auto, gather, "
                "two_stage, server"
            )
        self._compressors = CompressorMap(method, own, self._exchange.second_bits)
        self._told = {"method": method, **vars(own), **vars(self._exchange)}
        self._hash = hashlib.blake2b(json.dumps(self._told).encode(), digest_size=8)
        self.driver: Driver | None = None
        self.lasts = not entry_of(method).stateful  # whether the next call may have what this one leaves

    def build(self, transport: Transport, asked: Mapping[str, Any]) -> Driver:
        """Agree on what was asked, and build.  A collective call: every rank makes it."""
        check_settings(transport, {**self._told, **asked})
        nothing_remembered, seed = FlatLayout(()), 0  # of updates from all ranks' statistics, of which there are none
        how = (self._exchange, transport, transport.world, seed)
        with transport.telling():
            self.driver = Driver(self._compressors, nothing_remembered, *how, per_machine=1)
        return self.driver

    def checksum(self, asked: Mapping[str, Any]) -> int:
        """A number for all that ranks have to agree on."""
        digest = self._hash.copy()
        digest.update(repr(asked).encode())
        return int.from_bytes(digest.digest(), "little", signed=True)


class _Kept:
    """What a group keeps for the next call, which does not keep the group alive.

    control: carries one message of every call, the same one whatever a rank has kept.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.control = Transport(group, device=device)
        self.control.group = None  # but in a call
        self.calls: dict[str, _Call] = {}  # by what was asked, the last one last

    def all_have_built(self, call: _Call, asked: Mapping[str, Any]) -> bool:
        """Whether all ranks ask for the same, and have it from one and the same call.  A collective call."""
        driver = call.driver
        mine = [0, 0] if driver is None else [driver.transport.number, call.checksum(asked)]
        rows = self.control.numbers(mine, "control")
        return rows[0][0] > 0 and rows.count(rows[0]) == len(rows)

    def keep(self, name: str, call: _Call) -> None:
        if call.lasts:
            self.calls[name] = call
            while len(self.calls) > MOST_KEPT:
                del self.calls[next(iter(self.calls))]


_kept: WeakKeyDictionary[dist.ProcessGroup, dict[torch.device, _Kept]] = WeakKeyDictionary()


def _kept_by(group: dist.ProcessGroup, device: torch.device) -> _Kept:
    of_group = _kept.setdefault(group, {})
    if device not in of_group:
        of_group[device] = _Kept(group, device)
    return of_group[device]
