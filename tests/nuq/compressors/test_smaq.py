"""SmaQ's codes: the same bits in C++ and in PyTorch, the paper's ratio, and what training needs of zeros and signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq import native
from nuq.compressors.message import Message
from nuq.compressors.smaq import SmaQ
from nuq.errors import MessageError
from nuq.kernels import log2_mean, smaq
from nuq.kernels.spec import Key
from nuq.settings.formats import SmaQ as Settings

KEY = Key(1, 2, 3, "x", workers=5)
CHOICES = (
    Settings(),
    Settings(samples=16),
    Settings(rounding="nearest"),
    Settings(rounding="correlated"),
    Settings(bits_inlier=3, bits_outlier=8, inlier_threshold=0.7),
    Settings(bits_inlier=8),
    Settings(bits_inlier=4, bits_outlier=7, outlier_limit=6.0),
)
CODED = Settings(zeros="coded")


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


INPUTS = {
    "normal": normal(3 * 4096),
    "relu": normal(140_001).relu(),
    "a tail": normal(4097 + 13) * 3 + 7,
    "few zeros": torch.cat([normal(500).abs(), torch.zeros(3)]),
    "not positive": -normal(5000).relu(),
    "huge": normal(9000) * 6e37,
    "tiny": normal(9000) * 1e-41,
    "a number and zeros": (normal(9001) > 0) * 3.0,
    "nearly constant": 1 + normal(5000) * 1e-6,
    "one apart": torch.cat([torch.ones(5000), torch.tensor([1 + 2.0**-23])]),
    "float16": normal(5000).half(),
    "bfloat16": normal(5000).bfloat16().relu(),
}


def coded(settings_: Settings, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    message = SmaQ(settings_).encode(x, KEY)
    assert message.num_bytes <= SmaQ(settings_).message_bytes(x.numel())
    total = torch.ones(x.numel())
    SmaQ(settings_).add(message, total)
    decoded = SmaQ(settings_).decode(message)
    assert torch.equal(total, 1 + decoded)
    return message.body, decoded


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
@pytest.mark.parametrize("settings_", [*CHOICES, CODED], ids=str)
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_all_implementations_give_the_same_bits(settings_, x, monkeypatch):
    found = []
    for name in native.instruction_sets():
        with native.using(name):
            found.append(coded(settings_, x))
    monkeypatch.setattr(smaq, "in_cpp", lambda vector: False)
    body, decoded = coded(settings_, x)
    for other in found:
        assert torch.equal(other[0], body) and torch.equal(other[1], decoded)


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
def test_threads_change_no_bit():
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(
                [
                    part
                    for x in (normal(1_000_003), normal(500_000).relu())
                    for part in (*coded(Settings(), x), log2_mean.mean_log2(x))
                ]
            )
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(a == b if isinstance(a, float) else torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_papers_ratio():
    x = normal(1 << 20)
    assert round(4 * x.numel() / SmaQ(Settings()).encode(x, KEY).num_bytes, 2) == 4.82


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.97])
def test_without_masks_no_ratio_exceeds_the_formats_own(share):
    """32 / 6 = 5.33: what is above comes from masks of zeros, which are ours."""
    x = normal(1 << 17)
    x[torch.rand(1 << 17, generator=torch.Generator().manual_seed(1)) < share] = 0.0
    for rectified in (x, x.abs()):
        masked, coded_ = (SmaQ(settings_).encode(rectified, KEY) for settings_ in (Settings(), CODED))
        assert 4.5 < 4 * x.numel() / coded_.num_bytes < 32 / 6 and coded_.body[0] == 0
        assert (masked.body[0] == 1) == (4 * x.numel() / masked.num_bytes > 32 / 6) == (share > 0)
        if not share:
            assert torch.equal(masked.body, coded_.body)


@pytest.mark.parametrize(
    "x", [INPUTS["relu"], INPUTS["a number and zeros"], INPUTS["not positive"], INPUTS["few zeros"]]
)
def test_zeros_that_have_codes_stay_in_the_tensors_range(x):
    decoded = SmaQ(CODED).decode(SmaQ(CODED).encode(x, KEY))
    assert bool((decoded >= x.min()).all()) and bool((decoded <= x.max()).all())
    error = (decoded - x).double() / x.double().std(correction=0)
    inside = ((x.double() - x.double().mean()) / x.double().std(correction=0)).abs() < 2.5
    assert float(error[inside].abs().max()) < 1 / 15 + 1e-3


@pytest.mark.parametrize("x", [normal(20_000) * 0.3 + 5, normal(20_000)], ids=["shifted", "centred"])
def test_values_are_steps_of_the_standard_deviation(x):
    decoded = SmaQ(Settings()).decode(SmaQ(Settings()).encode(x, KEY)).double()
    mean, std = x.double().mean(), x.double().std(correction=0)
    z, size = (x.double() - mean) / std, ((decoded - mean) / std).abs()
    steps = torch.where(z.abs() <= 1, size * 15, (size - 1) * 42)
    assert torch.allclose(steps, steps.round(), atol=1e-3)
    error = (size - z.abs().clamp_max(2.5)).abs()
    assert bool((error < torch.where(z.abs() <= 1, 1 / 15, 1.5 / 63) + 1e-4).all()) and float(size.max()) < 2.5001


@pytest.mark.parametrize("name", ["relu", "few zeros", "bfloat16"])
@pytest.mark.parametrize("settings_", CHOICES, ids=str)
def test_what_is_not_negative_keeps_its_sign_and_its_zeros(settings_, name):
    x = INPUTS[name]
    decoded = SmaQ(settings_).decode(SmaQ(settings_).encode(x, KEY))
    assert torch.equal(decoded > 0, x.float() > 0) and bool((decoded >= 0).all())
    assert float(decoded.max()) <= float(x.max()) and torch.equal(decoded.to(x.dtype) > 0, x > 0)


def test_many_zeros_are_exact_and_few_cost_no_mask():
    many, few = torch.cat([normal(1000), torch.zeros(1000)]), torch.cat([normal(1990), torch.zeros(10)])
    decoded = SmaQ(Settings()).decode(SmaQ(Settings()).encode(many, KEY))
    assert not decoded[1000:].any()
    assert torch.allclose(decoded[:1000].std(), many[:1000].std(), rtol=0.1)
    assert SmaQ(Settings()).encode(many, KEY).body[0] == 1 and SmaQ(Settings()).encode(few, KEY).body[0] == 0


@pytest.mark.parametrize(
    "x",
    [torch.full((70_000,), -2.5), torch.zeros(9), torch.tensor([3e38]), torch.empty(0), INPUTS["a number and zeros"]],
)
@pytest.mark.parametrize("samples", [0, 16])
def test_constants_are_exact(x, samples):
    message = SmaQ(Settings(samples=samples)).encode(x, KEY)
    assert torch.equal(SmaQ(Settings()).decode(message), x)
    assert message.num_bytes <= 28 + 28 + x.numel() / 7.9 * bool(x.any() and not x.all())


def test_a_sample_of_one_number_is_not_believed():
    x = torch.zeros(100_000)
    x[::1000], x[500] = 1.0, -1.0
    exact, sampled = (SmaQ(Settings(samples=samples)).encode(x, KEY) for samples in (0, 16))
    assert torch.equal(exact.body, sampled.body)


def test_the_extremes_of_float32():
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([largest, -largest, 0.9 * largest, 0.0, 1.0] * 100)
    decoded = SmaQ(Settings()).decode(SmaQ(Settings()).encode(x, KEY))
    assert bool(torch.isfinite(decoded).all()) and float(((decoded - x) / largest).abs().max()) < 0.1


def test_half_precision_is_read_as_it_is():
    for dtype in (torch.float16, torch.bfloat16):
        x = normal(10_000).to(dtype)
        assert torch.equal(SmaQ(Settings()).encode(x, KEY).body, SmaQ(Settings()).encode(x.float(), KEY).body)


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 9000),
    relu=st.booleans(),
    cut=st.integers(1, 40),
    place=st.floats(0, 0.999),
    bit=st.integers(0, 7),
)
@settings(max_examples=60, deadline=None)
def test_damaged_bodies_are_errors_or_numbers(seed, n, relu, cut, place, bit):
    x = normal(n, seed).relu() if relu else normal(n, seed)
    message = SmaQ(Settings()).encode(x, KEY)
    for body in (message.body[:-cut], torch.cat([message.body, message.body[:cut]])):
        with pytest.raises(MessageError):
            SmaQ(Settings()).decode(Message(message.tag, n, body))
    if message.body.numel() > 28:
        with pytest.raises(MessageError):
            SmaQ(Settings()).decode(Message(message.tag, n + 4096, message.body))
    turned = message.body.clone()
    turned[int(place * turned.numel())] ^= 1 << bit
    try:
        decoded = SmaQ(Settings()).decode(Message(message.tag, n, turned))
    except MessageError:
        return
    assert decoded.shape == (n,) and bool(torch.isfinite(decoded).all())


def test_the_mean_logarithm(monkeypatch):
    x = torch.cat([normal(100_003) * 1e-5, torch.zeros(50)])
    expected = float(np.log2(np.abs(x[x != 0].double().numpy())).mean())
    assert log2_mean.mean_log2(x) == pytest.approx(expected, abs=1e-4)
    found = log2_mean.mean_log2(x)
    for name in native.instruction_sets():
        with native.using(name):
            assert log2_mean.mean_log2(x) == found
    monkeypatch.setattr(native, "library", lambda: None)
    assert log2_mean.mean_log2(x) == found and log2_mean.mean_log2(torch.zeros(3)) == 0.0
