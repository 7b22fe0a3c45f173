"""The state of FSDP2's compressed collectives in a checkpoint, also of another number of ranks.

::

    import torch.distributed.checkpoint as dcp

    state = nuq.FsdpState(model, [*nuq.compress_fsdp(model, ...), *nuq.compress_fsdp_weights(model, ...)])
    dcp.save({"model": ..., "optimizer": ..., "compression": state}, checkpoint_id=folder)

What is saved lies as the parameters do: each rank saves its shard of every tensor, and loads what is its shard then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard

from nuq.exchange.transport import Transport
from nuq.fsdp import ROOT, CompressedReduceScatter
from nuq.fsdp_gather import CompressedGather, own_parameters, records_of


class FsdpState:
    """The state of what ``compress_fsdp`` and ``compress_fsdp_weights`` installed in a model.

    installed: what they returned.  Building it, ``state_dict`` and ``load_state_dict`` are collective calls: every rank
    makes them, between steps.  Of each module it saves

    - the replica of its weights and the number of its gathers: on any number of ranks a resumed training goes on from
      the same replica, and is the same bit by bit on as many ranks, without a memory of gradients, where no shard is
      shorter than others (FSDP pads those, and what the replica has there is not saved);
    - the memory of ``feedback="average"``, as the mean of all ranks' memories, which is what their mean gradient lacks.
      Every rank goes on from that mean: each one's own share of it is not saved.  That of frozen parameters is not
      saved either;
    - the number of its reduce-scatters, which keys the random roundings.

    What a method learns by itself (the factors of PowerSGD) begins anew.  Of replicas of the shards that FSDP averages
    itself (HSDP), whose memories differ, one's is saved; with ``between``, what the mean over machines lacks.

    ValueError for what the two calls did not return, for modules of another model, for a module whose gradients (or
    weights) are compressed twice, and where parameters are sharded over more than one dimension of their mesh, as by
    tensor parallelism.
    """

    def __init__(self, model: nn.Module, installed: Sequence[CompressedReduceScatter | CompressedGather]) -> None:
        kinds = (CompressedReduceScatter, CompressedGather)
        if not isinstance(installed, Sequence) or not all(isinstance(each, kinds) for each in installed):
            raise ValueError(
                f"installed={installed!r:.200}: must be a list of what compress_fsdp and compress_fsdp_weights returned"
            )
        for (kind, name), number in Counter((each.kind, each.name) for each in installed).items():
            if number > 1:
                raise ValueError(
                    f"installed has the {kind} of {name!r} {number} times: it takes what was installed last alone"
                )
        modules = dict(model.named_modules())
        pairs = [(modules.get("" if each.name == ROOT else each.name), each) for each in installed]
        if strangers := [each.name for module, each in pairs if not isinstance(module, FSDPModule)]:
            what = f"no FSDP2 module {strangers[0]!r}"
            raise ValueError(f"{type(model).__name__} has {what}: it takes the model that was compressed")
        self._parts = [_Part(model, module, each) for module, each in pairs if module and own_parameters(module)]

    def state_dict(self) -> dict[str, Any]:
        """The state by collective and module, as float32 DTensors and plain numbers."""
        state: dict[str, Any] = {}
        for part in self._parts:
            state.setdefault(part.each.kind, {})[part.each.name] = part.state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict`` whose tensors are of this number of ranks, as torch.distributed.checkpoint makes
        them.

        ValueError, before anything is changed, for a state of other modules, parameters or settings.
        """
        found = [part.found_in(state) for part in self._parts]
        for part, saved in zip(self._parts, found, strict=True):
            part.load(saved)


class _Part:
    """A collective of one module, and the way between its vector and the shards of parameters."""

    def __init__(self, model: nn.Module, module: Any, each: CompressedReduceScatter | CompressedGather) -> None:
        self.each, self.model, self.module = each, model, module
        first = own_parameters(module)[0]
        *others, last = first.placements
        if type(last) is not Shard or not all(isinstance(placement, Replicate) for placement in others):
            raise ValueError(
                f"parameters of {each.name} lie as {first.placements}: their shards cannot be told from one another; "
                "legal here: one Shard, after Replicate if any"
            )
        self.device = first.to_local().device
        group = first.device_mesh.get_group(len(others))
        self.transport = Transport(group, timeout_s=each.timeout_s, device=self.device)

    def _parameters(self) -> dict[str, DTensor]:
        """Its parameters that are part of the vector, in that order, sharded, by their names in the model."""
        parameters = own_parameters(self.module)
        names = {id(p): name for name, p in self.model.named_parameters()}
        return {names[id(p)]: p for p in parameters if self.each.covers(p)}

    def _sizes(self, parameters: dict[str, DTensor]) -> list[int]:
        """The coordinates of every parameter in a rank's part of the vector: of the first rank's shard, the longest."""
        return self.transport.numbers([p.to_local().numel() for p in parameters.values()], "control")[0]

    def state(self) -> dict[str, Any]:
        saved: dict[str, Any] = {"step": self.each.step}
        if not self.each.has_state:
            return saved
        parameters = self._parameters()
        sizes, parts = self._sizes(parameters), records_of(self.module, [*parameters.values()])
        row = self.each.saved_row(self.transport, parts)
        known = row is not None and row.numel() == sum(sizes)
        nothing = torch.zeros(0, dtype=torch.float32, device="cpu")
        pieces = row.split(sizes) if row is not None and known else [nothing] * len(sizes)
        return {
            **saved,
            "known": known,
            "shards": {name: _like(p, piece) for (name, p), piece in zip(parameters.items(), pieces, strict=True)},
        }

    def found_in(self, state: dict[str, Any]) -> dict[str, Any]:
        """What a state has of this part; ValueError where that is not what is saved of it here."""
        kind, name = self.each.kind, self.each.name
        saved = state.get(kind, {}).get(name, {})
        wanted = ("step", "known", "shards") if self.each.has_state else ("step",)
        if missing := [key for key in wanted if key not in saved]:
            raise ValueError(
                f"the state has no {missing[0]!r} for the {kind} of {name!r}: it takes a state of the same modules and "
                "settings (feedback)"
            )
        if self.each.has_state:
            here = {name: tuple(p.shape) for name, p in self._parameters().items()}
            there = {name: tuple(shard.shape) for name, shard in saved["shards"].items()}
            if here != there:
                raise ValueError(
                    f"the state has {there} for the {kind} of {name!r}: it takes the parameters of the model, {here}"
                )
        return saved

    def load(self, saved: dict[str, Any]) -> None:
        rows, parameters = None, self._parameters()
        if self.each.has_state and saved["known"]:
            sizes = self._sizes(parameters)
            row = torch.zeros(sum(sizes), dtype=torch.float32, device=self.transport.device)
            for piece, shard in zip(row.split(sizes), saved["shards"].values(), strict=True):
                piece[: shard.to_local().numel()] = shard.to_local().reshape(-1)
            rows = torch.stack(self.transport.all_gather(row, "state")).to(self.device)
        parts = records_of(self.module, [*parameters.values()])
        self.each.resume(saved["step"], rows, self.transport.rank, parts)


def _like(parameter: DTensor, piece: Tensor) -> DTensor:
    """A new float32 tensor that lies as a parameter does, its shard here from a longer piece; zeros from nothing."""
    local = torch.zeros_like(parameter.to_local(), dtype=torch.float32)
    if piece.numel():
        local.copy_(piece[: local.numel()].view(local.shape))
    how = {"run_check": False, "shape": parameter.shape, "stride": parameter.stride()}
    return DTensor.from_local(local, parameter.device_mesh, parameter.placements, **how)
