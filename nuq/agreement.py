"""What all ranks have to agree on before and while they exchange: settings, versions, parameters, levels, results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nuq.cpu.checksum import crc32
from nuq.links import Links


def check_settings(links: Links, mine: dict[str, Any]) -> None:
    """ValueError, on all ranks alike, that names two ranks and what they differ in.  A collective call: every rank makes it."""
    rows = [json.loads(text) for text in links.texts(json.dumps(mine), "control")]
    for rank, row in enumerate(rows):
        for name in [*rows[0], *row]:
            if rows[0].get(name) != row.get(name):
                here, there = (f"{name}={found.get(name)!r}" if name in found else f"no {name}" for found in (rows[0], row))
                raise ValueError(f"rank 0 has {here} and rank {rank} has {there}: all ranks need the same")


def check_saved(saved: Mapping[str, Any], present: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """ValueError where the encoders' saved state is not one of the present settings.  sizes: coordinates of every parameter."""
    theirs, ours = (_kinds(state) for state in (saved, present))
    if theirs != ours:
        raise ValueError(f"a state with {theirs or 'no memory'}: the feedback of these settings takes one with {ours or 'none'}")
    for name in ("compressor", "second"):
        counts = [len(state[name].get("levels", ())) for state in (saved, present)]
        if counts[0] != counts[1]:
            raise ValueError(f"a state with {counts[0]} levels: these settings have {counts[1]}")
    for memory in saved.get("memories", ()):
        for kind, of_kind in ((kind, of_kind) for of_worker in memory["workers"].values() for kind, of_kind in of_worker.items()):
            for parameter, tensor in of_kind.items():
                name = parameter.removeprefix("mean/")
                if sizes.get(name) != tensor.numel():
                    has = sizes.get(name, "left the model")
                    raise ValueError(f"{kind} of {tensor.numel()} coordinates for {name!r}, which has {has}")


def _kinds(state: Mapping[str, Any]) -> str:
    """What a saved state remembers, in words: empty for nothing."""
    return ", then ".join(" and ".join(memory["kinds"]) for memory in state.get("memories", ()))


def check_same(links: Links, what: str, tensor: Tensor) -> None:
    """RuntimeError, on all ranks alike, where the ranks hold other bits; what debug mode asks for."""
    data = tensor.detach().cpu().contiguous()
    rows = [row[0] for row in links.numbers([crc32(data.data_ptr(), data.numel() * data.element_size())], "debug")]
    for rank, row in enumerate(rows):
        if row != rows[0]:
            raise RuntimeError(f"{what} differ between rank 0 and rank {rank} (CRC-32 {rows[0]:08x} and {row:08x})")
