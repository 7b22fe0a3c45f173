"""Every method's encoding as a user would write it in eager PyTorch: the baselines of ``benchmarks.methods``.

There is one function per family, each from a tensor to the tensors that would travel. They draw from PyTorch's own
generator, keep no state, and stop at plain packed integers: no keys, no headers, no checks, no coded indices; the codes
of a method with an entropy coder go through ``zlib``, the coder that every Python has.  So they do less than ``nuq``
does, and their time is not an excuse.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.eager_formats import bf16, fp16, nnw_bdi, s2fp8, smaq
from benchmarks.eager_parts import Eager, coded, packed, rows_of, scale_of
from nuq.levels import code_tables, lloyd_max


def rotated(x: Tensor, block: int) -> Tensor:
    """The vector after random signs and a Hadamard transform in blocks."""
    rows = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % block)).view(-1, block)
    rows = rows * (2.0 * torch.randint(0, 2, rows.shape, device=rows.device) - 1.0)
    distance = 1
    while distance < block:
        pairs = rows.view(-1, block // (2 * distance), 2, distance)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        rows = torch.stack([a + b, a - b], dim=2).view(-1, block)
        distance *= 2
    return (rows * block**-0.5).reshape(-1)


def quantizer(settings: Any, compressor: Any) -> Eager:
    """The quantizer of the QSGD .. ALQ family and of the lattice.

    It takes a norm, normalised coordinates, two neighbouring levels and a random number.
    """
    levels, count = torch.tensor(compressor.levels.values, dtype=torch.float32), compressor.levels.num_levels

    def encode(x: Tensor) -> object:
        x = rotated(x, compressor.block) if compressor.block > 1 else x
        rows, table = rows_of(x, compressor.bucket_size), levels.to(x.device)
        scale = scale_of(rows, compressor.norm, compressor.multiple)
        r = (rows / scale.clamp_min(1e-38)).clamp(-1, 1)
        if compressor.uniform:
            codes = ((r + 1) * (0.5 * (count - 1)) + torch.rand_like(r)).floor().clamp_max(count - 1).to(torch.int32)
        else:
            below = torch.bucketize(r, table[1:-1], right=True)
            share = (r - table[below]) / (table[below + 1] - table[below])
            codes = below + (torch.rand_like(r) < share)
        return scale, coded(codes, count, settings.coding)

    return encode


def eden(settings: Any, compressor: Any) -> Eager:
    """The encoder of EDEN: rotate, take the nearest centroid, and the scale that makes it unbiased."""
    size, bits = compressor.bucket_size, compressor.bits
    centroids = torch.tensor(lloyd_max.centroids(bits), dtype=torch.float32) * size**-0.5
    borders = torch.tensor(lloyd_max.thresholds(bits), dtype=torch.float32) * size**-0.5

    def encode(x: Tensor) -> object:
        for _ in range(compressor.rotations):
            x = rotated(x, size)
        rows = rows_of(x, size)
        norm = rows.norm(dim=1, keepdim=True)
        codes = torch.bucketize(rows / norm.clamp_min(1e-38), borders.to(x.device))
        q = centroids.to(x.device)[codes]
        return norm.square() / (rows * q).sum(1, keepdim=True), coded(codes, 1 << bits, settings.coding)

    return encode


def full_precision(settings: Any, compressor: Any) -> Eager:
    del settings, compressor
    return lambda x: x.clone()


def sign(settings: Any, compressor: Any) -> Eager:
    del compressor
    return lambda x: (rows_of(x, settings.bucket_size).abs().mean(1), packed(x >= 0, 2))


def onebit(settings: Any, compressor: Any) -> Eager:
    del compressor

    def encode(x: Tensor) -> object:
        rows = rows_of(x, settings.bucket_size)
        others = rows >= 0
        upper = torch.where(others, rows, 0.0).sum(1) / others.sum(1)
        lower = torch.where(others, 0.0, rows).sum(1) / (~others).sum(1)
        return upper, lower, packed(x >= 0, 2)

    return encode


def natural(settings: Any, compressor: Any) -> Eager:
    del settings, compressor

    def encode(x: Tensor) -> object:
        mantissa, exponent = torch.frexp(x)
        exponent = exponent + (torch.rand_like(x) < 2 * mantissa.abs() - 1)
        least = exponent.max() - 126
        codes = torch.where(mantissa == 0, 0, (exponent - least).clamp_min(0))
        return least, (codes + 128 * (x < 0)).to(torch.uint8)

    return encode


def blockwise(settings: Any, compressor: Any) -> Eager:
    values = torch.tensor(code_tables.values(compressor.table), dtype=torch.float32)

    def encode(x: Tensor) -> object:
        rows, table = rows_of(x, settings.bucket_size), values.to(x.device)
        scale = scale_of(rows, "linf", 0.0)
        r = rows / scale.clamp_min(1e-38)
        if settings.rounding == "nearest":
            return scale, torch.bucketize(r, (table[1:] + table[:-1]) / 2).to(torch.uint8)
        below = torch.bucketize(r, table[1:-1], right=True)
        codes = below + (torch.rand_like(r) < (r - table[below]) / (table[below + 1] - table[below]))
        return scale, codes.to(torch.uint8)

    return encode


def taken(x: Tensor, indices: Tensor, settings: Any) -> object:
    """The values of a sparse message and its indices."""
    return x[indices].to(torch.float16 if settings.values == "fp16" else torch.float32), indices.to(torch.int32)


def topk(settings: Any, compressor: Any) -> Eager:
    del compressor

    def encode(x: Tensor) -> object:
        rows = rows_of(x, settings.bucket_size)
        indices = rows.abs().topk(max(1, math.ceil(settings.ratio * rows.shape[1])), dim=1, sorted=False).indices
        return taken(
            x.reshape(-1),
            (indices + rows.shape[1] * torch.arange(len(rows), device=x.device)[:, None]).reshape(-1),
            settings,
        )

    return encode


def randomk(settings: Any, compressor: Any) -> Eager:
    del compressor

    def encode(x: Tensor) -> object:
        x = x.reshape(-1)
        k = max(1, math.ceil(settings.ratio * x.numel()))
        return x[torch.randperm(x.numel(), device=x.device)[:k]] * (x.numel() / k)

    return encode


def thresholdv(settings: Any, compressor: Any) -> Eager:
    del compressor
    return lambda x: taken(x, (x.abs() >= settings.threshold).nonzero().view(-1), settings)


def adaptive_threshold(settings: Any, compressor: Any) -> Eager:
    del compressor

    def encode(x: Tensor) -> object:
        rows = rows_of(x, settings.bucket_size).abs()
        return taken(x, (2 * rows >= rows.amax(1, keepdim=True)).reshape(-1)[: x.numel()].nonzero().view(-1), settings)

    return encode


def nonzero(settings: Any, compressor: Any) -> Eager:
    del compressor
    return lambda x: taken(x, x.nonzero().view(-1), settings)


def dgc(settings: Any, compressor: Any) -> Eager:
    """The encoder of DGC, with a threshold from a sample of one coordinate in a hundred.

    The threshold is lowered or (where too many reach it) made exact.
    """
    del compressor

    def encode(x: Tensor) -> object:
        if x.dim() <= 1 and settings.dense_1d and settings.scope == "tensor":
            return x.clone()
        x = x.reshape(-1)
        size, n = x.abs(), x.numel()
        k = max(1, math.ceil(settings.ratio * n))
        sample = size[torch.randint(0, n, (min(n, max(n // 100, math.ceil(2 / settings.ratio))),), device=x.device)]
        threshold = sample.topk(max(1, math.ceil(settings.ratio * sample.numel()))).values.min()
        for _ in range(10):
            indices = (size >= threshold).nonzero().view(-1)
            if indices.numel() >= 0.8 * k:
                break
            threshold = 0.8 * threshold
        return taken(x, indices[size[indices].topk(k).indices] if indices.numel() > k else indices, settings)

    return encode


def matrix(x: Tensor) -> Tensor:
    """The tensor in two dimensions: the first one, and all others."""
    return x.reshape(x.shape[0], -1)


def atomo(settings: Any, compressor: Any) -> Eager:
    """The encoder of ATOMO: an exact SVD of every matrix.

    Each of its atoms is kept with the probability that the budget leaves it.
    """
    del compressor
    by_svd = settings.atoms == "svd"

    def encode(x: Tensor) -> object:
        if not by_svd:
            x = x.reshape(-1)
            chosen = (torch.rand_like(x) < probabilities(x.abs(), settings.ratio * x.numel())).nonzero().view(-1)
            return x[chosen], chosen.to(torch.int32)
        if x.dim() < 2:
            return x.clone()
        u, s, v = torch.linalg.svd(matrix(x), full_matrices=False)
        p = probabilities(s, settings.svd_rank)
        chosen = torch.rand_like(p) < p
        return u[:, chosen], s[chosen] / p[chosen], v[chosen]

    def probabilities(size: Tensor, budget: float) -> Tensor:
        p = (budget * size / size.sum()).nan_to_num(0.0)
        while bool((p > 1).any()):  # certain atoms leave the rest of the budget to the others
            certain = p >= 1
            rest = torch.where(certain, 0.0, size)
            p = torch.where(certain, 1.0, (budget - certain.sum()) * rest / rest.sum())
        return p

    return encode


def powersgd(settings: Any, compressor: Any) -> Eager:
    """The encoder of PowerSGD: one power iteration per matrix; vectors are sent whole."""
    del compressor

    def encode(x: Tensor) -> object:
        if x.dim() < 2:
            return x.clone()
        m = matrix(x)
        q = torch.randn(m.shape[1], min(settings.rank, *m.shape), device=x.device)
        p = torch.linalg.qr(m @ q).Q
        return p, m.T @ p

    return encode


def demo(settings: Any, compressor: Any) -> Eager:
    """The encoder of DeMo: cosine transforms by matrix products, and the largest coefficients of every chunk."""
    del compressor

    def cosines(length: int, device: torch.device) -> Tensor:
        places = torch.arange(length, device=device)
        basis = (2 / length) ** 0.5 * (torch.pi * (2 * places + 1) * places[:, None] / (2 * length)).cos()
        basis[0] = length**-0.5
        return basis

    def encode(x: Tensor) -> object:
        m = matrix(x) if x.dim() > 1 else x[None]
        height, width = (min(settings.chunk, side) for side in m.shape)
        m = torch.nn.functional.pad(m, (0, -m.shape[1] % width, 0, -m.shape[0] % height))
        chunks = m.view(-1, height, m.shape[1] // width, width).transpose(1, 2)
        rows = (cosines(height, x.device) @ chunks @ cosines(width, x.device).T).reshape(-1, height * width)
        indices = rows.abs().topk(min(settings.k, rows.shape[1]), dim=1, sorted=False).indices
        starts = rows.shape[1] * torch.arange(len(rows), device=x.device)[:, None]
        return taken(rows.reshape(-1), (indices + starts).reshape(-1), settings)

    return encode


def sides(x: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """The indices and magnitudes of the values above and below zero."""
    return tuple((side.nonzero().view(-1), x[side].abs()) for side in (x > 0, x < 0))


def casq(settings: Any, compressor: Any) -> Eager:
    """The encoder of CASQ, in a loop over the clusters of either sign.

    It finds the members of each cluster, and the mean of the values that share each of its cells.
    """
    del compressor

    def encode(x: Tensor) -> object:
        x = x.reshape(-1)
        ids, means = torch.zeros(x.numel(), dtype=torch.uint8, device=x.device), []
        cells = settings.cells or math.ceil(settings.cells_ratio * x.numel())
        for sign, (indices, size) in enumerate(sides(x)):
            if not indices.numel():
                continue
            sample = size[torch.randint(0, size.numel(), (settings.sample_size,), device=x.device)].sort().values
            steps = [*torch.linspace(0, settings.outlier_percentile / 100, settings.clusters)[1:].tolist(), 1.0]
            borders = [0.0, *(float(sample[int(share * (len(sample) - 1))]) for share in steps[:-1]), math.inf]
            for number in range(settings.clusters):
                inside = indices[(size > borders[number]) & (size <= borders[number + 1])]
                ids[inside] = 1 + sign * settings.clusters + number
                count = max(1, min(cells, inside.numel()))
                cell = (inside * 2654435761 >> 7) % count
                total = torch.zeros(count, device=x.device).index_add_(0, cell, x[inside])
                means.append(total / torch.bincount(cell, minlength=count).clamp_min(1))
        return means, zlib.compress(ids.cpu().numpy().tobytes(), 1)

    return encode


def sketchml(settings: Any, compressor: Any) -> Eager:
    """The encoder of SketchML: quantiles of either sign, and the group whose sketch has a value's least quantile."""
    del compressor

    def encode(x: Tensor) -> object:
        x, sent = x.reshape(-1), []
        for indices, size in sides(x):
            if not indices.numel():
                continue
            sample = size[torch.randint(0, size.numel(), (settings.sample_size,), device=x.device)].sort().values
            borders = sample[torch.linspace(0, len(sample) - 1, settings.buckets + 1, device=x.device).long()]
            bucket = torch.bucketize(size, borders[1:-1])
            group, within = (
                bucket * settings.groups // settings.buckets,
                bucket % max(1, settings.buckets // settings.groups),
            )
            columns = max(1, math.ceil(settings.columns_ratio * size.numel()))
            for row in range(settings.rows):
                cell = (indices * (2654435761 + 2 * row) >> 7) % columns
                sketch = torch.full((columns,), 255, device=x.device).scatter_reduce_(0, cell, within, "amin")
                sent.append(zlib.compress(sketch.to(torch.uint8).cpu().numpy().tobytes(), 1))
            sent += [borders, zlib.compress(group.to(torch.uint8).cpu().numpy().tobytes(), 1)]
        return sent

    return encode


EAGER: dict[str, Callable[[Any, Any], Eager]] = {
    **dict.fromkeys(("sgd", "supersgd"), full_precision),
    **dict.fromkeys(
        ("qsgd", "qsgdinf", "nuqsgd", "trn", "alq", "alq_n", "alq_g", "alq_gn", "amq", "amq_n", "optimal", "ecdq"),
        quantizer,
    ),
    **dict.fromkeys(("eden", "drive"), eden),
    **dict.fromkeys(("block8", "fp8"), blockwise),
    "sign": sign,
    "onebit": onebit,
    "natural": natural,
    "fp16": fp16,
    "bf16": bf16,
    "smaq": smaq,
    "s2fp8": s2fp8,
    "nnw_bdi": nnw_bdi,
    "topk": topk,
    "randomk": randomk,
    "thresholdv": thresholdv,
    "adaptive_threshold": adaptive_threshold,
    "nonzero": nonzero,
    "dgc": dgc,
    "demo": demo,
    "atomo": atomo,
    "powersgd": powersgd,
    "casq": casq,
    "sketchml": sketchml,
}


def of(name: str, settings: Any, compressor: Any) -> Eager | None:
    """The baseline of one method; None for a method that has none here."""
    make = EAGER.get(name)
    return make(settings, compressor) if make else None
