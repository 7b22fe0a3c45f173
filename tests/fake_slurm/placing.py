"""The choice of the nodes that a request gets.  Pure functions of a request and what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Config, Partition, Request


@dataclass(frozen=True)
class Room:
    """The resources that a node has left."""

    cpus: int
    mem_mb: int
    gpus: tuple[int, ...]  # indices


@dataclass(frozen=True)
class Share:
    """The resources that a job takes of each of ``nodes``."""

    nodes: tuple[str, ...]
    cpus: int
    mem_mb: int
    gpus: int


def whole(config: Config) -> Room:
    """An empty node."""
    return Room(config.cpus, config.mem_mb, tuple(range(config.gpus)))


def place(request: Request, partition: Partition, rooms: Mapping[str, Room], config: Config) -> Share | None:
    """The first nodes that hold the request; None where there are not enough."""
    names = [name for name in partition.nodes if name in rooms and name not in request.exclude]
    if request.only_nodes:
        if not set(request.only_nodes) <= set(names):
            return None
        names = [*request.only_nodes, *(name for name in names if name not in request.only_nodes)]
    if request.constraint and not set(request.constraint.replace("&", ",").split(",")) <= set(config.features):
        return None
    lowest = max(request.nodes, len(request.only_nodes), 1)
    for count in [lowest] if request.nodes else range(lowest, max(len(names), lowest) + 1):
        share = _share(request, count, config)
        fitting = [name for name in names if _holds(rooms[name], share, config, exclusive=request.exclusive)]
        if len(fitting) >= count and set(request.only_nodes) <= set(fitting):
            return Share(tuple(fitting[:count]), share.cpus, share.mem_mb, share.gpus)
    return None


def _share(request: Request, count: int, config: Config) -> Share:
    tasks = request.tasks_per_node or -(-max(request.num_tasks, 1) // count)
    cpus = config.cpus if request.exclusive else tasks * max(request.cpus_per_task, 1)
    return Share(
        (), cpus, request.mem_mb or request.mem_per_cpu_mb * cpus, request.gpus_per_node or -(-request.gpus // count)
    )


def _holds(room: Room, share: Share, config: Config, *, exclusive: bool) -> bool:
    if exclusive and room != whole(config):
        return False
    return room.cpus >= share.cpus and room.mem_mb >= share.mem_mb and len(room.gpus) >= share.gpus
