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
    for name, here in present.items():
        there = saved[name]
        if ("residuals" in there) != ("residuals" in here):
            has, wants = ("residuals" if "residuals" in state else "no residuals" for state in (there, here))
            raise ValueError(f"a state with {has}: error_feedback={'residuals' in here} here takes one with {wants}")
        counts = [len(state.get("inner", state).get("levels", ())) for state in (there, here)]
        if counts[0] != counts[1]:
            raise ValueError(f"a state with {counts[0]} levels: these settings have {counts[1]}")
        for parameter, residual in there.get("residuals", {}).items():
            if sizes.get(parameter) != residual.numel():
                raise ValueError(
                    f"a residual of {residual.numel()} coordinates for {parameter!r}, which has {sizes.get(parameter, 'left the model')}"
                )


def check_same(links: Links, what: str, tensor: Tensor) -> None:
    """RuntimeError, on all ranks alike, where the ranks hold other bits; what debug mode asks for."""
    data = tensor.detach().cpu().contiguous()
    rows = [row[0] for row in links.numbers([crc32(data.data_ptr(), data.numel() * data.element_size())], "debug")]
    for rank, row in enumerate(rows):
        if row != rows[0]:
            raise RuntimeError(f"{what} differ between rank 0 and rank {rank} (CRC-32 {rows[0]:08x} and {row:08x})")
