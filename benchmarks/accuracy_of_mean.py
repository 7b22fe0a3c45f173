"""The error of the mean of several workers against the bits of a message, for ``benchmarks.accuracy_per_bit``.

Training uses the mean alone, in which errors of workers that round together cancel.  The error is ``M |mean of decoded
- mean of x_i|^2`` over the mean of ``|x_i|^2``: the vNMSE of a message where workers' errors are unbiased and
independent, so that what lies below it was cancelled.  Vectors are one minibatch each at the same weights, or
independent draws of a distribution.  Levels are learned as for a message (from gradients of several steps of one
worker, which for levels for the mean stand for several workers).  Figures are means of four draws: neighbours in a
table may differ by chance.

The sum at a shared scale shows what adding integers inside the network takes (in the manner of THC, NSDI 2024, without
its clipping and its table of levels): workers round by themselves to the uniform levels of one scale, the largest of
theirs, after a rotation, and integers are summed.  Its bits are those that a worker sends; the sum comes back with
``log2 M`` more.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.accuracy_curves import WHOLE, Curves, Family, Point, build, rate_setting, reached_at
from benchmarks.gradient_samples import Source
from nuq.kernels.operators import hadamard_
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import declared

WORKERS = (2, 4, 8, 16)
RATES = (1, 2, 3, 4)
DRAWS = 4
_BLOCK = 1024  # coordinates that the sum at a shared scale rotates together


def _family(method: str, **options: object) -> Family:
    alone = {"rounding": "stochastic"} if "rounding" in declared(METHODS[method].settings) else {}
    return Family(method, tuple({"coding": "packed", **alone, **options}.items()))


_ROTATED = {"rotation": "hadamard"}
_RANS = {"coding": "rans", "bucket_size": WHOLE}
_TOGETHER = {"rounding": "correlated"}
FAMILIES = (
    _family("drive"),
    _family("eden"),
    _family("eden", levels="uniform", **_RANS),
    _family("ecdq", dither="subtractive", **_ROTATED, **_RANS),
    _family("ecdq", dither="subtractive", **_RANS),
    _family("ecdq", dither="none", **_TOGETHER, **_ROTATED, **_RANS),
    _family("ecdq", dither="none", **_TOGETHER, **_RANS),
    _family("qsgdinf", form="magnitude", **_RANS),
    _family("qsgdinf", form="magnitude", **_TOGETHER, **_RANS),
    _family("qsgdinf", **_ROTATED),
    _family("qsgdinf", **_TOGETHER, **_ROTATED),
    _family("alq", norm="linf"),
    _family("alq", norm="linf", **_TOGETHER),
    _family("alq", norm="linf", objective="mean", **_TOGETHER),
    _family("optimal", norm="linf", **_ROTATED),
    _family("optimal", norm="linf", **_TOGETHER, **_ROTATED),
    _family("optimal", norm="linf", objective="mean", **_TOGETHER, **_ROTATED),
)
SHARED_SCALE = Family("qsgdinf", (("sum", "at a shared scale"),))


def curves_of(source: Source) -> dict[int, Curves]:
    """The points of every family by the number of workers."""
    found: dict[int, Curves] = {}
    for workers in WORKERS:
        vectors = source.workers[:workers]
        found[workers] = {family: list(_points(family, source, vectors)) for family in FAMILIES}
        found[workers][SHARED_SCALE] = [_shared_scale(vectors, bits) for bits in range(1, 7)]
    return found


def _points(family: Family, source: Source, vectors: list[Tensor]) -> Iterator[Point]:
    for value in rate_setting(family)[1]:
        made = build(family, value, source)
        if made is None:
            continue
        errors, num_bytes = [], 0
        for step in range(DRAWS):
            keys = [Key(0, step, worker, "model", workers=len(vectors)) for worker in range(len(vectors))]
            messages = [made.encode(x, key) for x, key in zip(vectors, keys, strict=True)]
            num_bytes += sum(message.to_bytes().numel() for message in messages)
            errors.append(_error([made.decode(message) for message in messages], vectors))
        yield Point(8 * num_bytes / (DRAWS * sum(x.numel() for x in vectors)), statistics.fmean(errors), value)


def _error(decoded: list[Tensor], vectors: list[Tensor]) -> float:
    difference = (torch.stack(decoded) - torch.stack(vectors)).double().mean(dim=0)
    return float(len(vectors) ** 2 * difference.square().sum() / sum(x.double().square().sum() for x in vectors))


def _shared_scale(vectors: list[Tensor], bits: int) -> Point:
    """The sum of integers on ``2^bits`` uniform levels of one scale per 8192 coordinates."""
    generator, errors, top, n = torch.Generator().manual_seed(3), [], 2**bits - 1, vectors[0].numel()
    for step in range(DRAWS):
        key = Key(4, step, 0, "rotation")
        rotated = torch.zeros(len(vectors), -(-n // 8192) * 8192)
        rotated[:, :n] = torch.stack(vectors)
        for row in rotated:
            hadamard_(row, _BLOCK, key)
        scales = rotated.view(len(vectors), -1, 8192).abs().amax(dim=(0, 2)).clamp_min(1e-30).repeat_interleave(8192)
        places = (rotated / scales + 1) * (top / 2)
        codes = (places + torch.rand(places.shape, generator=generator)).floor().clamp(0, top)
        decoded = (codes * (2 / top) - 1) * scales
        for row in decoded:
            hadamard_(row, _BLOCK, key, inverse=True)
        errors.append(_error(list(decoded[:, :n]), vectors))
    return Point(bits + 32 / 8192, statistics.fmean(errors), bits)


def table(curves: dict[int, Curves], rate: int) -> list[list[str]]:
    """Rows of a table: each contender's least error at the rate or less, by number of workers, the best one first."""
    of = {family: [reached_at(curves[workers][family], rate) for workers in WORKERS] for family in curves[WORKERS[0]]}
    last = {family: cells[-1].error for family, cells in of.items() if cells[-1]}
    rows = [[f"{rate} bits, error of the mean of", *(f"{workers} workers" for workers in WORKERS)]]
    for family in sorted(last, key=lambda family: last[family]):
        rows.append([title(family), *(f"{cell.error:.3g}" if cell else "-" for cell in of[family])])
    return rows


def winners(curves: dict[int, Curves]) -> dict[str, dict[str, dict[str, object]]]:
    """Rate -> number of workers -> the contender of least error at that rate or less, and the error."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for rate in RATES:
        for workers, of in curves.items():
            reached = {family: point for family in of if (point := reached_at(of[family], rate)) is not None}
            if reached:
                family = min(reached, key=lambda family: reached[family].error)
                error = float(f"{reached[family].error:.4g}")
                found.setdefault(str(rate), {})[str(workers)] = {"name": title(family), "error": error}
    return found


def title(family: Family) -> str:
    """The title of a contender; the sum at a shared scale is no method of ours."""
    return "sum at a shared scale" if family is SHARED_SCALE else family.label()
