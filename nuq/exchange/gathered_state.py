"""The state of an exchange that several processes share out: gathered when it is saved, the same in every split.

The number of workers stays, and with it whose memory is whose, however many processes go on.  Machines
(collective=hierarchical) depend on the processes: another number of them goes on from the mean of their memories
(``nuq.exchange.saved_ranks``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.feedback import ErrorFeedback
from nuq.exchange import saved_ranks
from nuq.exchange.compressor_map import by_encoder
from nuq.exchange.driver import Driver
from nuq.exchange.saved_encoders import check_encoder, dictionary, require, tensor, whole


def state_dict(driver: Driver) -> dict[str, Any]:
    """The compressors' states with the memories and statistics of all workers; every process must call it."""
    state = driver.compressors.state_dict()
    for method_state, own in zip(driver.compressors.every, by_encoder(state), strict=True):
        own["statistics"] = []
        if "by_worker" in own["compressor"]:
            own["compressor"]["by_worker"] = _of_every_worker(driver, own["compressor"]["by_worker"])
        if method_state.memories:
            own["memories"] = [_memory(driver, around) for around in method_state.memories]
    for level_updater in driver.levels.every:
        rows = driver.levels.gathered(level_updater)
        by_encoder(state)[level_updater.encoder]["statistics"] = [row.cpu().clone() for row in rows]
    return state


def _memory(driver: Driver, around: ErrorFeedback) -> dict[str, Any]:
    """The memory of every worker, or machine, on every process alike; zeros where one has none yet."""
    found: dict[int, dict[str, dict[str, Tensor]]] = {
        worker: {kind: {} for kind in around.kinds} for worker in range(driver.num_workers)
    }
    told = driver.transport.texts(json.dumps(list(driver.remembering)), "control")
    whose = {
        worker: number
        for share, text in zip(driver.placement.shares, told, strict=True)
        for worker, number in zip(share, json.loads(text), strict=False)
    }
    for kind in around.kinds:
        for name, size in around.sizes.items():
            nothing = torch.zeros(size, dtype=torch.float32, device="cpu")
            for of_worker in found.values():
                of_worker[kind][name] = nothing
            kept = {worker: around.memories.get(whose.get(worker, -1), {}).get(kind, {}) for worker in driver.hosted}
            mine = {worker: of_kind.get(name, nothing) for worker, of_kind in kept.items()}
            for worker, row in enumerate(driver.gather(mine)):
                if worker in whose:
                    found[whose[worker]][kind][name] = row.cpu().clone()  # the memory goes on changing
    return {"kinds": list(around.kinds), "workers": found, "remembering": driver.num_remembering, **around.common()}


def _of_every_worker(driver: Driver, kept: dict[int, Any]) -> dict[int, Any]:
    """The states that methods keep for the workers, or machines, of all processes, on every process alike."""
    mine = {worker: kept[worker] for worker in driver.remembering if worker in kept}
    told = driver.transport.texts(json.dumps(mine), "control")
    return {int(worker): own for text in told for worker, own in json.loads(text).items()}


def load_state_dict(driver: Driver, state: dict[str, Any], device: torch.device) -> None:
    """Continue from a gathered state: every process takes over what belongs to its workers.

    ValueError, with nothing changed, for entries that ``state_dict`` cannot have given.
    """
    state = _checked(driver, state)
    here = _hosted_here(driver, state)
    driver.compressors.load_state_dict({**here[0], "layers": here[1:]}, device)
    for level_updater in driver.levels.every:
        saved = by_encoder(state)[level_updater.encoder]["statistics"]
        level_updater.statistics = {worker: level_updater.read(saved[worker]) for worker in level_updater.workers}


def _checked(driver: Driver, state: Any) -> dict[str, Any]:
    """A state whose entries are all there and legal, with those that older states lack."""
    dictionary(state, "workers")
    require(isinstance(state.get("layers", []), list), "workers.layers", state.get("layers"), "a list")
    present = by_encoder(driver.compressors.state_dict())
    state = {"second": present[0]["second"], **state}  # before means had an encoder of their own
    every, second = by_encoder(state), driver.collective_name != "hierarchical"
    require(len(every) == len(present), "workers.layers", len(every) - 1, f"as many as here, {len(present) - 1}")
    for number, (own, our) in enumerate(zip(every, present, strict=True)):
        where = f"workers.layers[{number - 1}]" if number else "workers"
        memories = driver.compressors.every[number].memories
        sizes = memories[0].sizes if memories else {}
        check_encoder(own, our, sizes, where, second=second, workers=range(driver.num_workers))
        dictionary(own, where, ["statistics"])
        for memory in own.get("memories", ()):
            count = memory.get("remembering", 1)
            legal = f"from 1 to {driver.num_workers}"
            require(whole(count) and 1 <= count <= driver.num_workers, f"{where}.remembering", count, legal)
    for level_updater in driver.levels.every:
        rows, length = every[level_updater.encoder]["statistics"], len(level_updater.empty().to_array())
        is_whole = isinstance(rows, list) and len(rows) == driver.num_workers
        require(is_whole, "workers.statistics", rows, f"of {driver.num_workers} workers")
        for row in rows:
            tensor(row, "workers.statistics", torch.float64, [length])
    return state


def _hosted_here(driver: Driver, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The encoders' states with the memories that are kept here alone."""
    here, every = driver.num_remembering, by_encoder(state)
    before = {memory.get("remembering", here) for own in every for memory in own.get("memories", ())}
    if before <= {here}:  # states once did not say how many they were
        return [_with_memories_of(driver.remembering, own) for own in every]
    first, *others = [_with_memories_of(range(max(before)), own) for own in every]
    whole = {**first, "layers": others} if others else first
    return by_encoder(saved_ranks.combined([whole], driver.compressors, driver.remembering))


def _with_memories_of(workers: Iterable[int], state: dict[str, Any]) -> dict[str, Any]:
    memories = [
        {**memory, "workers": {worker: memory["workers"][worker] for worker in workers}}
        for memory in state.get("memories", ())
    ]
    return {**state, "memories": memories}
