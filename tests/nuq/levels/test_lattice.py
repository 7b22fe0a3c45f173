"""Entropy-coded uniform steps: their rates, probabilities and the step that a rate affords."""

import numpy as np
import pytest
import torch

from nuq.kernels.spec import Key
from nuq.levels.lattice import (
    code_probabilities,
    nearest_points,
    rate_of_nearest,
    rate_of_step,
    step_of_nearest,
    step_of_rate,
)
from nuq.registry import METHODS


@pytest.mark.parametrize(
    ("step", "known", "bits"), [(1.0, 0, 2.158), (0.5, 0, 3.077), (1.0, 8, 2.105), (0.5, 8, 3.062)]
)
def test_rates_of_the_literature(step, known, bits):
    """Errors of 1/12 and 1/48 of the variance; without and with the dither known to the coder."""
    assert rate_of_step(step, known) == pytest.approx(bits, abs=0.001)


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("step", [0.02, 0.7, 3.0, 9.0])
def test_probabilities_are_those_of_drawn_codes(step, known):
    p = code_probabilities(step, known)
    assert np.allclose(p.sum(axis=1), 1, atol=1e-9)
    draws = np.random.default_rng(0)
    u = draws.random(400_000)
    codes = np.floor(draws.standard_normal(400_000) / step + u).astype(int)
    for number, expected in enumerate(p):
        drawn = codes[(u * 2**known).astype(int) == number]
        counts = np.bincount(drawn + len(expected) // 2, minlength=len(expected)) / len(drawn)
        assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() < 0.006


@pytest.mark.parametrize("bits", [0.5, 1.0, 2.0, 3.7, 7.0])
def test_the_step_affords_the_rate(bits):
    for known in (0, 3):
        assert rate_of_step(step_of_rate(bits, known), known) == pytest.approx(bits, rel=1e-6)


@pytest.mark.parametrize(("bits", "step"), [(2, 1.0824), (3, 0.5224), (4, 0.2590)])
def test_steps_of_rounding_to_the_nearest_are_those_of_eden(bits, step):
    """Its Section 4.3."""
    assert step_of_nearest(bits) == pytest.approx(step, abs=5e-5)
    codes = np.rint(np.random.default_rng(0).standard_normal(1 << 20) / step).astype(int)
    p = np.unique(codes, return_counts=True)[1] / codes.size
    assert -(p * np.log2(p)).sum() == pytest.approx(bits, abs=0.005)


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_step_of_rounding_to_the_nearest_affords_the_rate(bits):
    step = step_of_nearest(bits)
    assert rate_of_nearest(step) == pytest.approx(bits, abs=1e-9)
    assert nearest_points(step) <= 511 and (nearest_points(step) // 2) * step > (8 if bits < 8 else 4)


def test_a_message_takes_the_bits_that_were_asked_for():
    """Its error is the step's, with and without the dither known to the coder."""
    x = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    for coding, known, overhead in (("rans", 3, 0.025), ("huffman", 0, 0.05)):
        method = METHODS["ecdq"]
        compressor = method.load()(method.settings(bits=2.5, coding=coding))
        message = compressor.encode(x, Key(1, 0, 0, "x"))
        assert 2.49 < 8 * message.num_bytes / x.numel() < 2.5 + overhead
        error = float((compressor.decode(message) - x).square().sum() / x.square().sum())
        assert error == pytest.approx(step_of_rate(2.5, known) ** 2 / 12, rel=0.02)
