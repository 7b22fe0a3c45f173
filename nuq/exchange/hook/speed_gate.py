"""The gate: a measurement of whether compression saves time on this link."""

from __future__ import annotations

import statistics
import time

import torch

from nuq.exchange.collectives.collective import PROBE, Collective
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key

STEP = 2  # at which a hook measures: DDP has rebuilt its buckets, and first steps' costs are over
MOST = 1 << 21  # coordinates of the probe: 4 MB in bfloat16
_ROUNDS = 3


def seconds(
    collectives: list[Collective], transport: Transport, num_coordinates: int, device: torch.device
) -> list[float]:
    """The median seconds of one mean of random coordinates by each collective, measured in turns.

    It is the slowest rank's median, alike on all ranks.  A collective call: every rank makes it.
    """
    n = max(min(num_coordinates, MOST), 1)
    generator = torch.Generator().manual_seed(transport.rank)
    vector = torch.randn(n, generator=generator, dtype=torch.float32, device="cpu").to(device)
    layout, out = FlatLayout((Segment("probe", 0, n),)), torch.empty_like(vector)
    taken: list[list[float]] = [[] for _ in collectives]
    for number in range(1 + _ROUNDS):  # the first one warms up
        for collective, times in zip(collectives, taken, strict=True):
            transport.numbers([number], "control")  # start together
            started = time.perf_counter()
            collective.mean({transport.rank: vector}, layout, Key(0, number, 0, PROBE), out)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
    mine = [round(1e9 * statistics.median(times[1:])) for times in taken]
    return [max(column) / 1e9 for column in zip(*transport.numbers(mine, "control"), strict=True)]
