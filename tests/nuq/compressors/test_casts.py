"""Shorter floating-point numbers: C++ and PyTorch give the same bits; every code is a neighbour, and the mean is the
coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq import native
from nuq.compressors.casts import bf16, fp16
from nuq.compressors.message import Message
from nuq.compressors.natural import NaturalCompression
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import casts
from nuq.kernels.spec import ALONE, Among, Key
from nuq.settings.baselines import BF16, FP16, Natural
from tests.nuq.kernels.test_cpu import KINDS, SIZES, same, vector_of

KEY = Key(1, 2, 3, "x")
LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


FORMATS = ("bf16", "fp16", "scaled fp16", "natural", "e5m2", "e4m3")


def all_of(x: torch.Tensor, scale: float, least: int, among: Among) -> list[torch.Tensor]:
    """The codes of ``FORMATS``."""
    words, n = KEY.words(), x.numel()
    codes = [torch.full((n,), 99, dtype=dtype) for dtype in 3 * [torch.int16] + 3 * [torch.uint8]]
    casts.to_bfloat16_(x, codes[0], words, among=among)
    casts.to_float16_(x, codes[1], words, among=among)
    casts.to_float16_(x, codes[2], words, scale, 0x77FF, among=among)
    casts.to_natural_(x, codes[3], words, least, among=among)
    casts.to_float8_(x, codes[4], words, torch.float8_e5m2, among=among)
    casts.to_float8_(x, codes[5], words, torch.float8_e4m3fn, among=among)
    return codes


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
@given(
    st.sampled_from(KINDS),
    SIZES,
    st.integers(0, 99),
    st.integers(-100, 126),
    st.integers(0, 130),
    st.sampled_from([1, 3]),
    st.sampled_from([ALONE, (0, 2), (1, 2), (2, 3), (3, 64)]),
)
def test_the_kernels_give_the_bits_of_pytorch(kind, size, seed, exponent, above, num_threads, among):
    x = vector_of(kind, size, torch.float32, seed)
    x[seed % 7 :: 11] = -0.0
    largest = float(x.abs().max()) if size else 0.0
    least = casts.smallest_power(largest) if largest >= 2.0**-126 else 1
    least = min(least + above % 5 * (largest < 1), 128)
    torch.set_num_threads(num_threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casts, "_cast", lambda *arguments, **how: False)
        expected = all_of(x, 2.0**exponent, least, among)
    for name in native.instruction_sets():
        with native.using(name):
            found = all_of(x, 2.0**exponent, least, among)
            for format, ours, theirs in zip(FORMATS, found, expected, strict=True):
                assert same(ours, theirs), (name, format)


def mean_of_many(compressor, value: float, count: int = 1 << 16) -> tuple[set[float], float]:
    """The decoded values of ``value`` in a vector of it, and their mean."""
    decoded = compressor.decode(compressor.encode(torch.full((count,), value), KEY)).double()
    return set(decoded.tolist()), float(decoded.mean())


@pytest.mark.parametrize("value", [1.0 + 2**-9, -3.14159, 1e-30, 1e30, 1.2e-38, 1.0, 65519.0])
@pytest.mark.parametrize("format", ["bf16", "fp16"])
def test_random_rounding_takes_the_two_neighbours(format, value):
    compressor = (
        bf16(BF16(rounding="stochastic"))
        if format == "bf16"
        else fp16(FP16(rounding="stochastic", scale="power"))  # of no effect on bits
    )
    found, mean = mean_of_many(compressor, value)
    digits = 7 if format == "bf16" else 10
    step = 2.0 ** (np.floor(np.log2(abs(value))) - digits)
    value = float(np.float32(value))
    low = np.floor(value / step) * step
    assert found == ({low} if low == value else {low, low + step})
    assert abs(mean - value) <= 4 * step * 0.5 / 256


def test_small_float16_without_a_scale_are_multiples_of_2_to_the_minus_24():
    compressor = fp16(FP16(rounding="stochastic", scale="none"))
    found, mean = mean_of_many(compressor, 5.3 * 2.0**-24)
    assert found == {5 * 2.0**-24, 6 * 2.0**-24} and abs(mean * 2**24 - 5.3) < 0.01
    found, mean = mean_of_many(compressor, -0.01 * 2.0**-24)
    assert found == {0.0, -(2.0**-24)} and abs(mean * 2**24 + 0.01) < 0.002


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("scale", ["power", "none", "bf16"])
def test_a_finite_gradient_never_becomes_infinite(rounding, scale):
    x = torch.tensor([LARGEST, -LARGEST, 1e38, 70000.0, -65519.0, 1.0])
    compressor = bf16(BF16(rounding=rounding)) if scale == "bf16" else fp16(FP16(rounding=rounding, scale=scale))
    decoded = compressor.decode(compressor.encode(x, KEY))
    assert bool(torch.isfinite(decoded).all())
    limit = {"power": 32752 * 2.0**113, "none": 65504.0, "bf16": 3.3895313892515355e38}[scale]
    assert decoded[:2].tolist() == [limit, -limit]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_nearest_are_pytorchs(dtype):
    x = vector_of("all magnitudes", 5000, torch.float32).clamp(-6e4, 6e4)
    compressor = bf16(BF16()) if dtype == torch.bfloat16 else fp16(FP16(scale="none"))
    message = compressor.encode(x, KEY)
    assert message.num_bytes == 28 + 4 + 2 * 5000
    assert torch.equal(compressor.decode(message), x.to(dtype).to(torch.float32))


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1.0, 1e20])
def test_the_power_of_two_keeps_float16_as_good_at_any_size(scale):
    x = scale * torch.randn(4000, generator=torch.Generator().manual_seed(3))
    compressor = fp16(FP16())
    assert (
        float((compressor.decode(compressor.encode(x, KEY)).double() - x.double()).norm() / x.double().norm())
        < 2.0**-11
    )


NATURAL = NaturalCompression(Natural())


@pytest.mark.parametrize("value", [3.0, -5.5, 1.0, -0.25, 1e-38, 1.2e-38, 1.7e38, 1.1e30])
def test_powers_of_two_on_either_side(value):
    found, mean = mean_of_many(NATURAL, value)
    value = float(np.float32(value))
    if abs(value) < 2.0**-126:  # as everywhere (``nuq.kernels.operators``, step 2)
        assert found == {0.0}
        return
    low = np.sign(value) * 2.0 ** np.floor(np.log2(abs(value)))
    assert found == ({low} if low == value else {low, 2 * low})
    assert abs(mean - value) <= 4 * abs(low) * 0.5 / 256


def test_an_eighth_is_the_most_that_a_power_of_two_is_off():
    """Theorem 1 of natural compression: E |x - C(x)|^2 <= |x|^2 / 8, with equality at 4/3 of a power of two."""
    found, _ = mean_of_many(NATURAL, 4 / 3, 1 << 16)
    assert found == {1.0, 2.0}
    for value in (4 / 3, 1.1, 1.5, 1.9):
        decoded = NATURAL.decode(NATURAL.encode(torch.full((1 << 16,), value), KEY)).double()
        ratio = float((decoded - value).square().mean()) / value**2
        expected = (value - 1) * (2 - value) / value**2
        assert ratio == pytest.approx(expected, rel=0.03) and expected <= 0.125 + 1e-12


def test_what_is_2_to_the_126_times_smaller_is_rounded_at_random_too():
    x = torch.cat([torch.full((1,), 2.0**100), torch.full((1 << 16,), 0.75 * 2.0**-26)])
    decoded = NATURAL.decode(NATURAL.encode(x, KEY))
    assert decoded[0] == 2.0**100 and set(decoded[1:].tolist()) == {0.0, 2.0**-26}
    assert float(decoded[1:].double().mean()) * 2.0**26 == pytest.approx(0.75, abs=0.01)
    assert NATURAL.encode(x, KEY).num_bytes == 28 + 4 + x.numel()


def test_powers_that_float32_does_not_hold_are_errors():
    assert NATURAL.decode(NATURAL.encode(torch.tensor([2.0**127, 0.0]), KEY)).tolist() == [2.0**127, 0.0]
    with pytest.raises(NonFiniteError):
        NATURAL.encode(torch.tensor([1.0, 1.8e38]), KEY)


def test_damaged_heads_are_errors():
    message = NATURAL.encode(torch.ones(9), KEY)
    for least in (0, 129):
        body = message.body.clone()
        body[0] = least
        with pytest.raises(MessageError):
            NATURAL.decode(Message(message.tag, 9, body))
    message = fp16(FP16()).encode(torch.ones(9), KEY)
    for place, value in ((0, 2), (3, 0x70)):
        body = message.body.clone()
        body[place] = value
        with pytest.raises(MessageError):
            fp16(FP16()).decode(Message(message.tag, 9, body))
