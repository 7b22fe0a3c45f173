"""The Lloyd-Max quantizer of N(0, 1) against known distortions, and against its two conditions by quadrature."""

import numpy as np
import pytest
from scipy import integrate

from nuq.levels import lloyd_max
from tests.theory import distortion

# Distortions at 1 .. 8 bits, to the nine decimals of the independent values.
DISTORTIONS = [0.363380228, 0.117481848, 0.034547761, 0.009501008, 0.002504668, 0.000644240, 0.000163478, 0.000041185]


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_distortion_is_the_known_one(bits):
    assert distortion(bits) == pytest.approx(DISTORTIONS[bits - 1], abs=6e-10)


def moment(order: int, low: float, high: float) -> float:
    """The distribution's moment over [low, high], times a factor that keeps the outermost cells from vanishing."""
    nearest = min(abs(low), abs(high)) if low * high > 0 else 0.0
    return integrate.quad(
        lambda g: g**order * np.exp(0.5 * (nearest - g) * (nearest + g)), low, high, epsabs=0, limit=200
    )[0]


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
def test_every_centroid_is_the_mean_of_its_cell(bits):
    c, t = lloyd_max.centroids(bits), np.concatenate([[-12.0], lloyd_max.thresholds(bits), [12.0]])
    for low, centroid, high in list(zip(t[:-1], c, t[1:], strict=True))[:: max(1, len(c) // 16)]:
        assert centroid == pytest.approx(moment(1, low, high) / moment(0, low, high), abs=1e-12)


@pytest.mark.parametrize("bits", range(1, 9))
def test_symmetric_and_halfway(bits):
    c, t = lloyd_max.centroids(bits), lloyd_max.thresholds(bits)
    assert c.shape == (2**bits,) and (np.diff(c) > 0).all() and np.array_equal(c, -c[::-1])
    np.testing.assert_allclose(t, (c[1:] + c[:-1]) / 2, rtol=0, atol=1e-15)
    assert t[len(t) // 2] == 0.0
