"""The agreement of all ranks on settings, versions, parameters, levels and results, before and during an exchange."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nuq.compressors import frame, message
from nuq.exchange.collectives.collective import WorkerPlacement
from nuq.exchange.transport import Transport
from nuq.native.checksum import crc32


def check_settings(transport: Transport, mine: dict[str, Any]) -> None:
    """Check that all ranks have the same versions and settings; ValueError, on all, with two ranks and the difference.

    A collective call: every rank makes it.
    """
    mine = {"message version": message.VERSION, "frame version": frame.VERSION, "torch": torch.__version__, **mine}
    rows = [json.loads(text) for text in transport.texts(json.dumps(mine), "control")]
    for rank, row in enumerate(rows):
        for name in [*rows[0], *row]:
            if rows[0].get(name) != row.get(name):
                pair = (rows[0], row)
                here, there = (f"{name}={found.get(name)!r}" if name in found else f"no {name}" for found in pair)
                raise ValueError(f"rank 0 has {here} and rank {rank} has {there}: all ranks need the same")


def check_steps(transport: Transport, mine: int) -> None:
    """Check that all ranks have taken as many local steps; ValueError, on all, with two ranks and their numbers.

    A collective call: every rank makes it.
    """
    taken = [row[0] for row in transport.numbers([mine], "control")]
    for rank, other in enumerate(taken):
        if other != taken[0]:
            pair = f"rank 0 has taken {taken[0]} local steps and rank {rank} has taken {other}"
            raise ValueError(f"{pair}: all ranks need as many when they exchange, and when they finish")


def check_shards(transport: Transport, mine: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that all ranks own the same shards (``nuq.parameters.places_of``), by parameter; ValueError, on all.

    A collective call: every rank makes it.
    """
    rows = [json.loads(text) for text in transport.texts(json.dumps(mine), "control")]
    for rank, row in enumerate(rows):
        for name in (name for name in [*rows[0], *row] if rows[0].get(name) != row.get(name)):
            owned = [f"shard {of['shard']} of {of['of']}" if (of := own.get(name)) else "all" for own in (rows[0], row)]
            raise ValueError(
                f"group: its rank 0 owns {owned[0]} of {name!r}, and its rank {rank} owns {owned[1]}: must be a group "
                "of the ranks that own the same shards, one on each machine, as init_device_mesh(..., "
                'mesh_dim_names=("machines", "ranks")).get_group("machines")'
            )


def check_same(transport: Transport, what: str, tensor: Tensor) -> None:
    """Check that all ranks hold the same bits (debug mode); RuntimeError, on all ranks alike, where they do not."""
    data = tensor.detach().cpu().contiguous()
    rows = [row[0] for row in transport.numbers([crc32(data.data_ptr(), data.numel() * data.element_size())], "debug")]
    for rank, row in enumerate(rows):
        if row != rows[0]:
            raise RuntimeError(f"{what} differ between rank 0 and rank {rank} (CRC-32 {rows[0]:08x} and {row:08x})")


def gathered_verdicts(
    transport: Transport,
    placement: WorkerPlacement,
    bad: list[int | None],
    losses: list[float],
    *,
    stop: bool,
    unused: bool = False,
) -> tuple[list[int | None], list[float], bool, bool]:
    """Whether each worker can take part in an exchange, as its process knows: in worker order, alike on all ranks.

    bad: a worker's first parameter that is not finite; losses: theirs; stop: whether any process should stop; unused:
    whether any worker did not use all parameters.
    """
    if transport.group is None:
        return bad, losses, stop, unused
    empty = [0] * (placement.most - len(bad))
    numbers = [-1 if number is None else number for number in bad]
    rows = [[*numbers, *empty, int(stop) + 2 * int(unused)], [*losses, *empty, 0]]
    mine = torch.tensor(rows, dtype=torch.float64, device=transport.device)
    told = [row.cpu() for row in transport.all_gather(mine, "control")]
    table = [row[:, : len(share)] for row, share in zip(told, placement.shares, strict=True)]
    found = [int(number) if number >= 0 else None for row in table for number in row[0]]
    flags = [int(row[0, -1]) for row in told]
    stop, unused = any(flag & 1 for flag in flags), any(flag & 2 for flag in flags)
    return found, [float(loss) for row in table for loss in row[1]], stop, unused
