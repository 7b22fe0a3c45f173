"""FSDP2: compressed messages give every rank its shard of the mean gradient.

``fully_shard`` reduces gradients by a reduce-scatter, which is the first half of a two-stage all-reduce: each rank
encodes the shard of every other rank and sends it there, and the owner decodes and averages.  Nothing is encoded a
second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.exchange.agreement import check_settings
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.level_updates import fit_levels
from nuq.exchange.payload import told_plainly
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.settings.exchange import Exchange


def compress_fsdp(
    model: nn.Module, method: str = "alq", *, seed: int = 0, timeout_s: float = 300.0, **settings: Any
) -> list[CompressedReduceScatter]:
    """Compress the reduce-scatter of every FSDP module in ``model``; returns what was installed, one per module.

    ValueError where there is no FSDP2 module, or where this torch has no custom reduce-scatter.
    """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError as error:
        raise ValueError(
            f"torch {torch.__version__} has no FSDP2: torch 2.11 and later have it, with a custom reduce-scatter"
        ) from error
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("no module of the model is an FSDP2 module: call torch.distributed.fsdp.fully_shard first")
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise ValueError(
            f"torch {torch.__version__}: it has no FSDPModule.set_custom_reduce_scatter, torch 2.11 and later do"
        )
    how = {"seed": seed, "timeout_s": timeout_s, **settings}
    installed: list[Any] = [CompressedReduceScatter(method, name or "the root module", **how) for name, _ in modules]
    for (_, module), reduce_scatter in zip(modules, installed, strict=True):
        module.set_custom_reduce_scatter(reduce_scatter)
    return installed


def _factor(op: Any, world: int) -> float:
    """The factor by which FSDP wants the sum of the ranks multiplied."""
    if op == dist.ReduceOp.AVG:
        return 1.0 / world
    if op == dist.ReduceOp.SUM:
        return 1.0
    if op == dist.ReduceOp.PREMUL_SUM:  # ``set_gradient_divide_factor``
        return float(op.__getstate__()[1])
    raise ValueError(f"a reduce-scatter by {op}: compressed messages are added; legal here: SUM, AVG, PREMUL_SUM")


class CompressedReduceScatter:
    """The compressed reduce-scatter that ``FSDPModule.set_custom_reduce_scatter`` takes.

    name: keys the random roundings, one per module; settings: of the method.

    Adaptive methods fit their levels to each gradient as it is sent.  It remembers nothing of what messages leave out.
    A shard whose mean overflows float32 is infinite, as it is under FSDP alone: an error on the rank that owns it would
    leave the others waiting.
    """

    def __init__(self, method: str, name: str, *, seed: int = 0, timeout_s: float = 300.0, **settings: Any) -> None:
        # a reduce-scatter leaves no choice of collective, and encodes nothing twice
        (own,) = sorted_settings(method, (), settings, {})
        self._compressors = CompressorMap(method, own, Exchange.second_bits)
        self._name, self._seed, self._timeout_s = name, seed, timeout_s
        self._step = 0
        self.transport: Transport | None = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        """Compute output = this rank's shard of the ranks' mean (or sum, as ``op`` says)."""
        del async_op  # what is done when the call returns needs no waiting for
        if self.transport is None:
            self.transport = Transport(group, timeout_s=self._timeout_s, device=input_tensor.device)
            told = {"method": self._compressors.name, **vars(self._compressors.settings)}
            check_settings(self.transport, {**told, "module": self._name, "seed": self._seed})
        transport, flat = self.transport, input_tensor.reshape(-1)
        size = output_tensor.numel()
        key = Key(self._seed, self._step, transport.rank, self._name, piece_of=2, workers=transport.world)
        self._step += 1
        codec = self._compressors.codec
        whole = FlatLayout((Segment(self._name, 0, size),))
        owned = [Segment(str(owner), owner * size, size) for owner in range(transport.world)]
        fit_levels(self._compressors, flat, owned, key)
        shards = flat.split(size)
        mine = [codec.encode_or_mark(shard, whole, key.of(str(owner))) for owner, shard in enumerate(shards)]
        others = [rank for rank in range(transport.world) if rank != transport.rank]
        known = codec.size(whole)
        sizes = dict.fromkeys(others, known or 0)
        if known is None:
            lengths = transport.numbers([payload.numel() for payload in mine], "control")
            sizes = {rank: lengths[rank][transport.rank] for rank in others}
        received = transport.swap({rank: mine[rank] for rank in others}, sizes, "messages")
        total = torch.zeros(size, dtype=torch.float32, device=flat.device)
        with told_plainly():
            for rank in range(transport.world):
                codec.add(mine[rank] if rank == transport.rank else received[rank], whole, total)
        total *= torch.tensor(_factor(op, transport.world), dtype=torch.float32)
        output_tensor.copy_(total.view_as(output_tensor))
        return None
