"""One version of ``benchmarks.levels --against``, which answers commands until its input ends; each is a line of JSON.

It runs with the library of the checkout that PYTHONPATH names, and imports nothing else of any checkout.  With RANK,
WORLD_SIZE and RENDEZVOUS it is one of the ranks of a gloo group.

- ``{"do": "life", "method", "seed"}``: a quantizer is made, observes, is updated, and encodes 100,000 coordinates.
- ``{"do": "all_reduce", "method", "size", "step"}``: one ``nuq.all_reduce``.

The answer to both has the milliseconds of the processor (of this process) and of the clock, and a checksum of the
message or the mean; of ``all_reduce`` with ``"calls": true`` the number of functions written in Python that it entered.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

COORDINATES = 100_000


def heavy(size: int, seed: int) -> Tensor:
    """Coordinates with a heavy tail."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator) * torch.rand(size, generator=generator).pow(-0.5)


def life(method: str, seed: int) -> Callable[[], Tensor]:
    entry, make_key = import_module("nuq.registry").METHODS[method], import_module("nuq.kernels.spec").Key
    vector = heavy(COORDINATES, seed)

    def lived() -> Tensor:
        made = entry.load()(entry.settings())
        made.update(made.observed([(vector, make_key(0, seed, 0, "statistics"))]))
        return made.encode(vector, make_key(0, seed, 0)).to_bytes()

    return lived


def reduction(method: str, size: int, step: int) -> Callable[[], Tensor]:
    vector = heavy(size, 1000 * step + dist.get_rank())
    return lambda: import_module("nuq").all_reduce(vector, method, step=step)


def num_calls(call: Callable[[], object]) -> int:
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counted


def answer(do: str, calls: bool = False, **case: Any) -> dict[str, float]:
    call = {"life": life, "all_reduce": reduction}[do](**case)
    if calls:
        return {"calls": num_calls(call)}
    if do == "all_reduce":
        dist.barrier()
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    spent = {"processor": 1e3 * (time.process_time() - processor), "clock": 1e3 * (time.perf_counter() - wall)}
    return {**spent, "checksum": zlib.crc32(result.numpy().data)}


def main() -> None:
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
