"""The errors of messages according to the methods' papers: independent of the code that makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import optimize, special
from torch import Tensor

from nuq.compressors.atomo import Atomo
from nuq.compressors.blockwise import Blockwise
from nuq.compressors.casts import HalfCast
from nuq.compressors.eden import Eden
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.natural import NaturalCompression
from nuq.compressors.quantizer import Quantizer
from nuq.compressors.signs import Sides
from nuq.compressors.smaq import SmaQ
from nuq.compressors.sparse import Keyed
from nuq.kernels import atoms, operators, reference, spec
from nuq.kernels.spec import Key
from nuq.levels import code_tables, lloyd_max


def expected_error(compressor: object, x: Tensor, key: Key) -> float | None:
    """E |x - decoded|^2 over the random numbers, of a message of ``x``; None where there is no formula, but claims
    alone.
    """
    if isinstance(compressor, FullPrecision):
        return 0.0
    if isinstance(compressor, Eden):
        along, square = _of_rotated(compressor.bits, compressor.uniform)
        return float(x.double().square().sum()) * (1 - along**2 / square if compressor.mse else square / along**2 - 1)
    if isinstance(compressor, Quantizer):
        return _of_quantizer(compressor, compressor.rotated(x, key))
    wide = x.double().numpy()
    if isinstance(compressor, Keyed):
        return _of_random_places(wide, compressor)
    if isinstance(compressor, Atomo):
        return _of_atoms(wide, compressor)
    if isinstance(compressor, Sides):
        return sum(
            _of_sides(wide[i : i + compressor.bucket_size], compressor)
            for i in range(0, len(wide), compressor.bucket_size)
        )
    if isinstance(compressor, Blockwise):
        return sum(
            _of_block(wide[i : i + compressor.bucket_size], compressor)
            for i in range(0, len(wide), compressor.bucket_size)
        )
    if isinstance(compressor, HalfCast):
        return _of_cast(wide, compressor)
    if isinstance(compressor, SmaQ):
        return _of_smaq(wide, compressor)
    if isinstance(compressor, NaturalCompression):
        return _between(np.abs(wide), 2.0 ** np.floor(np.log2(np.abs(wide))))
    return None


def distortion(bits: int) -> float:
    """E (y - c(y))^2 of a normal y and its nearest centroid: 1 less the mean square of the centroids."""
    edges = np.concatenate([[-np.inf], lloyd_max.thresholds(bits), [np.inf]])
    # below zero, where no digits are lost; both halves are alike
    mass = 2 * np.diff(special.ndtr(edges[: len(edges) // 2 + 1]))
    return 1 - float(mass @ np.square(lloyd_max.centroids(bits)[: len(mass)]))


def _of_rotated(bits: int, uniform: bool) -> tuple[float, float]:
    """EDEN, Section 4: E y q and E q^2 of a normal y and its level, from which the error of either scale follows."""
    if not uniform:
        along = 1 - distortion(bits)
        return along, along
    step: Any = optimize.brentq(lambda step: _multiples(step)[0] - bits, 0.02, 9.0)
    return _multiples(step)[1:]


def _multiples(step: float) -> tuple[float, float, float]:
    """Entropy of the nearest multiple q of a normal y, E y q, E q^2."""
    edges = (np.arange(-512, 512) + 0.5) * step
    p = np.diff(special.ndtr(edges))
    q = np.arange(-511, 512) * step
    density = np.exp(-0.5 * edges**2) / np.sqrt(2 * np.pi)
    return (
        float(special.entr(p).sum() / np.log(2)),
        float((q * (density[:-1] - density[1:])).sum()),
        float((p * q**2).sum()),
    )


def _of_random_places(wide: np.ndarray, compressor: Keyed) -> float:
    """Bucket by bucket (n/k - 1) |x|^2 where k of n values travel times n/k, (1 - k/n) |x|^2 where they travel as they
    are.
    """
    size, error = compressor.settings.bucket_size or len(wide), 0.0
    for bucket in np.split(wide, range(size, len(wide), size)):
        share = max(1, int(np.ceil(round(len(bucket) * compressor.settings.ratio, 6)))) / len(bucket)
        error += float(np.sum(bucket**2)) * (1 / share - 1 if compressor.settings.scaled else 1 - share)
    return error


def _water_filled(sizes: np.ndarray, budget: float) -> np.ndarray:
    """min(1, c size) with the c whose sum is the budget, by bisection."""
    low, high = 0.0, 2 * budget / sizes[sizes > 0].min()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * sizes).sum() < budget else (low, middle)
    return np.minimum(1, low * sizes)


def _of_atoms(wide: np.ndarray, compressor: Atomo) -> float | None:
    """ATOMO, equation 4: the sum of size^2 (1/p - 1); codes of variance v_u, v_v make it size^2 ((1 + v_u) (1 + v_v) /
    p - 1).
    """
    settings, n = compressor.settings, len(wide)
    if settings.atoms == "entries":
        p = _water_filled(np.abs(wide), np.ceil(round(n * settings.ratio, 6)))
        return float(np.sum(wide**2 * (1 / p - 1)))
    rows, columns = atoms.matrix_shape((n,))
    if settings.svd == "randomized" or compressor._whole(rows, columns, n):
        return None
    u, sizes, v = np.linalg.svd(np.pad(wide, (0, rows * columns - n)).reshape(rows, columns), full_matrices=False)
    seconds = [
        (1 + _of_codes(a, settings.bits)) * (1 + _of_codes(b, settings.bits)) for a, b in zip(u.T, v, strict=True)
    ]
    return float(np.sum(sizes**2 * (np.array(seconds) / _water_filled(sizes, settings.svd_rank) - 1)))


def _of_codes(vector: np.ndarray, bits: int) -> float:
    """The error of a unit vector in 2^bits equally spaced levels of its largest coordinate."""
    largest = np.abs(vector).max()
    return _between(np.abs(vector + largest), 2 * largest / (2**bits - 1)) if bits else 0.0


def _of_quantizer(quantizer: Quantizer, x: Tensor) -> float:
    """norm^2 * sum of (r - l)(u - r), for what is cut into buckets.

    Step^2 / 12 a coordinate after subtractive dither.
    """
    size = quantizer.bucket_size
    assert x.numel() % size == 0
    pairs = (
        operators.bucket_scales(x, size, quantizer.norm, quantizer.multiple)
        .view(-1, spec.scales_per_bucket(quantizer.norm))
        .double()
    )
    scales = pairs[:, :1]
    if quantizer.dither:
        return float((scales * 2 / (quantizer.levels.num_levels - 1)).square().sum() * size / 12)
    levels = torch.tensor(quantizer.levels.values)
    r = reference.bucketed(x, size).double() / scales
    top = (pairs[:, -1:] / scales).expand_as(r) if pairs.shape[1] == 2 else torch.ones_like(r)
    r = torch.minimum(torch.maximum(r, -top), top)
    k = torch.bucketize(r, levels[1:-1], right=True)
    lower = torch.where(k == 0, -top, levels[k])
    upper = torch.where(k == len(levels) - 2, top, levels[k + 1])
    return float((scales.square() * (r - lower) * (upper - r)).sum())


def _between(size: np.ndarray, step: np.ndarray | float) -> float:
    """Rounding at random between neighbouring multiples of ``step``."""
    rest = size % step
    return float((rest * (step - rest)).sum())


def _of_sides(x: np.ndarray, compressor: Sides) -> float:
    """EF-signSGD, Section 4: |x|^2 - |x|_1^2 / d; with r the rms |x - r sign(x)|^2; 1-bit SGD: the variance within
    either side.
    """
    if compressor.overshoots:
        return float(2 * (x**2).sum() - 2 * np.abs(x).sum() * np.sqrt((x**2).mean()))
    if compressor.values_per_bucket == 1:
        return float((x**2).sum() - np.abs(x).sum() ** 2 / len(x))
    return sum(float(((side - side.mean()) ** 2).sum()) for side in (x[x < 0], x[x >= 0]) if len(side))


def _of_block(x: np.ndarray, compressor: Blockwise) -> float:
    values = np.abs(x).max() * code_tables.values(compressor.table)
    away = x[:, None] - values
    if not compressor.stochastic:
        return float((away**2).min(axis=1).sum())
    below, above = np.where(away >= 0, away, np.inf).min(axis=1), np.where(away <= 0, -away, np.inf).min(axis=1)
    return float((below * above).sum())


def _of_cast(x: np.ndarray, compressor: HalfCast) -> float:
    format = torch.finfo(compressor.dtype)
    digits, least = round(-np.log2(format.eps)), round(np.log2(format.smallest_normal))
    scale = 2.0 ** (14 - np.floor(np.log2(np.abs(x).max()))) if compressor.scaled else 1.0
    size = np.abs(x) * scale
    assert size.max() <= format.max
    step = 2.0 ** (np.maximum(np.floor(np.log2(size)), least) - digits)
    if compressor.stochastic:
        return _between(size, step) / scale**2
    return float(((size - np.rint(size / step) * step) ** 2).sum()) / scale**2


def _of_smaq(x: np.ndarray, compressor: SmaQ) -> float | None:
    """The error of SmaQ: within the threshold and beyond, steps of their own, in units of the standard deviation; the
    limit cuts off what is further out.
    """
    if compressor.samples or not compressor.stochastic:
        return None
    codes, size = compressor.codes, np.abs(x - x.mean()) / x.std()
    inside, reach = size <= codes.threshold, codes.limit - codes.threshold
    outside = size[~inside] - codes.threshold
    error = _between(size[inside], codes.threshold / (2 ** (codes.bits_inlier - 2) - 1))
    error += _between(np.minimum(outside, reach), reach / (2 ** (codes.bits_outlier - 2) - 1))
    return float(error + (np.maximum(outside - reach, 0) ** 2).sum()) * x.var()
