import numpy as np
import pytest

from nuq.lattice import code_probabilities, rate_of_step, step_of_rate


@pytest.mark.parametrize(("step", "bits"), [(1.0, 2.16), (0.5, 3.08)])
def test_rates_of_the_literature(step, bits):
    """Errors of 1/12 and 1/48 of the variance."""
    assert rate_of_step(step) == pytest.approx(bits, abs=0.005)


@pytest.mark.parametrize("step", [0.02, 0.7, 3.0, 9.0])
def test_probabilities_are_those_of_drawn_codes(step):
    p = code_probabilities(step)
    assert p.sum() == pytest.approx(1, abs=1e-9) and np.allclose(p, p[::-1], atol=1e-9)
    draws = np.random.default_rng(0)
    codes = np.floor(draws.standard_normal(200_000) / step + draws.random(200_000)).astype(int)
    counts = np.bincount(codes + len(p) // 2, minlength=len(p)) / 200_000
    assert np.abs(np.cumsum(counts) - np.cumsum(p)).max() < 0.005


@pytest.mark.parametrize("bits", [0.5, 1.0, 2.0, 3.7, 7.0])
def test_the_step_affords_the_rate(bits):
    assert rate_of_step(step_of_rate(bits)) == pytest.approx(bits, rel=1e-6)
