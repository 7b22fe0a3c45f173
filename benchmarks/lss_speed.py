"""The speed of CASQ and SketchML on one long vector, beside eager PyTorch: the last table of ``benchmarks.lss``.

The eager forms do what the methods do with PyTorch's own operators, thresholds given: clusters by ``bucketize``, cells
by a random permutation's number, sums by ``index_add_``, numbers through ``zlib`` at its fastest level.  They write no
message.
"""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import seconds
from nuq.kernels.sketches import clusters
from nuq.kernels.spec import Key
from nuq.registry import METHODS

TURNS = 5


def heavy(size: int) -> Tensor:
    """A vector with heavier tails than normal, as gradients have: float32[size]."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=generator) * torch.randn(size, generator=generator).exp()


def eager_casq(x: Tensor, thresholds: Tensor, cells: int) -> object:
    """The encoding of CASQ: clusters, means of cells, compressed clusters.

    thresholds: float32[2, K - 1]; cells: of each cluster.
    """
    number = thresholds.shape[1] + 1
    ids = torch.where(x > 0, torch.bucketize(x, thresholds[0]), number + torch.bucketize(-x, thresholds[1]))
    indices = ids * cells + torch.randint(cells, x.shape)
    sums = torch.zeros(2 * number * cells).index_add_(0, indices, x)
    counts = torch.zeros(2 * number * cells).index_add_(0, indices, torch.ones_like(x))
    return sums / counts.clamp(min=1), zlib.compress(ids.to(torch.uint8).numpy().tobytes(), 1)


def eager_sketchml(x: Tensor, thresholds: Tensor) -> object:
    """The encoding of SketchML: quantiles, their means, groups, two rows of a sketch, both compressed.

    thresholds: float32[2, 127].
    """
    ids = torch.where(x > 0, torch.bucketize(x, thresholds[0]), 128 + torch.bucketize(-x, thresholds[1]))
    means = torch.zeros(256).index_add_(0, ids, x) / torch.bincount(ids, minlength=256)
    groups, within, columns = ids // 32, (ids % 32).to(torch.uint8), max(1, x.numel() // 40)
    rows = []
    for _ in range(2):
        row = torch.full((8 * columns,), 31, dtype=torch.uint8)
        rows.append(row.scatter_reduce_(0, groups * columns + torch.randint(columns, x.shape), within, "amin"))
    return means, *(zlib.compress(codes.to(torch.uint8).numpy().tobytes(), 1) for codes in (groups, *rows))


def measure(size: int) -> dict[str, dict[str, float]]:
    """Method -> median milliseconds of encode, decode and the eager encode, and GB/s of float32 coordinates.

    The methods are timed in turns.
    """
    x, key = heavy(size), Key(0, 0, 0, "speed")
    sample = clusters.sample(x, 16384, (1, 2))
    trained, quantiles = (
        torch.from_numpy(found) for found in (clusters.trained(sample, 8, 95), clusters.quantiles(sample, 128))
    )
    eager: dict[str, Callable[[], object]] = {
        "casq": lambda: eager_casq(x, trained, max(1, size // 1600)),
        "sketchml": lambda: eager_sketchml(x, quantiles),
    }
    found = {}
    for name, baseline in eager.items():
        method = METHODS[name].load()(METHODS[name].settings())
        message = method.encode(x, key)
        calls = {
            "encode_ms": lambda m=method: m.encode(x, key),
            "decode_ms": lambda m=method, s=message: m.decode(s),
            "eager_ms": baseline,
        }
        times: dict[str, list[float]] = {what: [] for what in calls}
        for turn in range(TURNS):
            for what, call in calls.items():
                if what == "eager_ms" and turn > 1:
                    continue
                times[what].append(1e3 * seconds(call))
        medians = {what: statistics.median(values) for what, values in times.items()}
        gigabytes = 4e-9 * size
        found[name] = {
            **medians,
            "encode_gb_s": gigabytes / (1e-3 * medians["encode_ms"]),
            "decode_gb_s": gigabytes / (1e-3 * medians["decode_ms"]),
            "encode_over_eager": medians["eager_ms"] / medians["encode_ms"],
        }
    return found
