"""EDEN and DRIVE: their published errors, no bias where one rotation has one, and messages that stand alone."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.eden import Eden
from nuq.compressors.message import HEADER_BYTES, Message, parse
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.settings.quantizers import DRIVE, EDEN

VNMSE = {1: 0.5708, 2: 0.1331, 3: 0.0358, 4: 0.0096}


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def sign(n: int) -> torch.Tensor:
    return torch.sign(normal(n, 77))


DISTRIBUTIONS = {
    "normal": lambda n: normal(n, 1),
    "lognormal": lambda n: normal(n, 2).exp() * sign(n),
    "exponential": lambda n: torch.empty(n).exponential_(generator=torch.Generator().manual_seed(3)) * sign(n),
}


def decoded(compressor: Eden, x: torch.Tensor, key: Key) -> torch.Tensor:
    return compressor.decode(parse(compressor.encode(x, key).to_bytes()))


def relative_error(compressor: Eden, x: torch.Tensor, key: Key) -> float:
    return float((decoded(compressor, x, key) - x).double().square().sum() / x.double().square().sum())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("bits", VNMSE)
def test_the_published_error_on_any_distribution(distribution, bits):
    x = DISTRIBUTIONS[distribution](1 << 20)
    assert relative_error(Eden(EDEN(bits=bits)), x, Key(0, 0, 0, "x")) == pytest.approx(VNMSE[bits], rel=0.01)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("bits", "error"), [(2, 0.0982), (3, 0.0229), (4, 0.00565)])
def test_uniform_steps_with_rans_have_less_error_at_the_same_length(distribution, bits, error):
    """EDEN's Section 4.3; the errors are those of whole messages at exactly so many bits, which these miss by some
    thousandths.
    """
    x = DISTRIBUTIONS[distribution](1 << 19)
    compressor = Eden(EDEN(bits=bits, levels="uniform", coding="rans"))
    message = compressor.encode(x, Key(0, 0, 0, "x"))
    rate = 8 * message.num_bytes / x.numel()
    assert rate == pytest.approx(bits, abs=0.02) and message.num_bytes <= 1.01 * compressor.usual_bytes(x.numel())
    assert relative_error(compressor, x, Key(0, 0, 0, "x")) * 4 ** (rate - bits) == pytest.approx(error, rel=0.01)


def test_uniform_steps_want_an_entropy_coder():
    with pytest.raises(ValueError, match=r"levels='uniform': .* it is read with coding='huffman' or 'rans' only"):
        Eden(EDEN(levels="uniform"))


def test_the_mse_scale_has_the_distortion_itself():
    x = normal(1 << 18)
    assert relative_error(Eden(EDEN(bits=2, scale="mse")), x, Key(0, 0, 0, "x")) == pytest.approx(0.1175, rel=0.01)


def test_drive_is_one_bit():
    x, key = normal(5000), Key(3, 1, 4, "x")
    assert torch.equal(Eden(DRIVE()).encode(x, key).to_bytes(), Eden(EDEN(bits=1)).encode(x, key).to_bytes())


# --- bias -----------------------------------------------------------------------------------------------------------


def sparse(*values: float) -> torch.Tensor:
    x = torch.zeros(128)
    x[torch.randperm(128, generator=torch.Generator().manual_seed(9))[: len(values)]] = torch.tensor(values)
    return x


HARD = {
    "one coordinate": sparse(1.0),
    "two coordinates": sparse(1.0, 0.5),
    "three coordinates": sparse(3.0, 2.0, 1.0),
    "four alike": sparse(1.0, 1.0, 1.0, 1.0),
    "half the energy in one": torch.cat([torch.tensor([128**0.5]), normal(127)]),
    "the first three": torch.cat([normal(3), torch.zeros(125)]),
    "a constant": torch.ones(128),
    "a ramp": torch.arange(128.0),
    "a row of the transform": 1 - 2 * (torch.arange(128) % 2).float(),
}


def bias_in_sigmas(x: torch.Tensor, bits: int, rotations: int, **settings: Any) -> float:
    """T |mean_T - x|^2 against T independent errors' mean square, in standard deviations of the former; T = 16,000.

    A message carries 160 copies of x, each in a bucket of its own, rotated by signs of its own.
    """
    compressor = Eden(EDEN(bits=bits, bucket_size=128, rotations=rotations, **settings))
    draws = torch.cat([decoded(compressor, x.repeat(160), Key(2, step, 0, "x")).view(160, 128) for step in range(100)])
    errors = (draws - x).double()
    each = errors.square().mean(dim=0)
    return float((len(errors) * errors.mean(dim=0).square().sum() - each.sum()) / (2 * each.square().sum()).sqrt())


@pytest.mark.some(2)
@pytest.mark.parametrize("x", HARD.values(), ids=HARD)
@pytest.mark.parametrize("bits", [1, 3])
def test_unbiased_on_sparse_short_and_structured_input(x, bits):
    assert bias_in_sigmas(x, bits, rotations=3) < 3


@pytest.mark.some(2)
@pytest.mark.parametrize("x", HARD.values(), ids=HARD)
def test_uniform_steps_are_unbiased_there_too(x):
    assert bias_in_sigmas(x, 2, rotations=3, levels="uniform", coding="rans") < 3


@pytest.mark.slow
def test_without_the_guard_sparse_input_is_biased(monkeypatch):
    """Rotations and guard are there for this, and the test above can fail."""
    monkeypatch.setattr(
        "nuq.compressors.eden._dominated", lambda x, size: torch.zeros(x.numel() // size, dtype=torch.bool)
    )
    assert bias_in_sigmas(HARD["two coordinates"], 1, rotations=1) > 1000
    assert bias_in_sigmas(HARD["two coordinates"], 1, rotations=2) > 5
    assert small_part(0.001, 3) > 20


def small_part(small: float, bits: int, **settings: Any) -> float:
    """The error of the mean of a coordinate beside one that is 1/small times larger, in standard errors."""
    x, compressor = torch.tensor([1.0, -small]), Eden(EDEN(bits=bits, **settings))
    draws = torch.stack([decoded(compressor, x, Key(1, step, 0, "x"))[1] for step in range(2000)]).double()
    return abs(float((draws.mean() + small) / draws.std())) * 2000**0.5


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "small"), [(1, 0.001), (3, 0.01), (4, 0.001)])
def test_a_small_coordinate_beside_a_large_one_is_not_rounded_away(bits, small):
    assert small_part(small, bits) < 4
    assert small_part(small, bits, levels="uniform", coding="huffman") < 4


@pytest.mark.some(2)
@pytest.mark.parametrize("n", [1, 3, 127, 300])
def test_unbiased_on_short_vectors(n):
    x, compressor, count = normal(n, n), Eden(EDEN(bits=2)), 300
    errors = torch.stack([decoded(compressor, x, Key(1, step, 0, "x")) - x for step in range(count)]).double()
    each = errors.square().mean(dim=0)
    rounding = count * float(x.double().square().sum()) * 2.0**-44
    assert count * errors.mean(dim=0).square().sum() <= each.sum() + 3 * (2 * each.square().sum()).sqrt() + rounding


# --- messages -------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 3000),
    st.integers(1, 8),
    st.sampled_from([128, 256, 1024]),
    st.sampled_from([("packed", "lloyd_max"), *itertools.product(["huffman", "rans"], ["lloyd_max", "uniform"])]),
    st.sampled_from(["unbiased", "mse"]),
)
def test_any_length_any_bits(n, bits, bucket_size, form, scale):
    coding, levels = form
    compressor, x = Eden(EDEN(bits=bits, bucket_size=bucket_size, coding=coding, scale=scale, levels=levels)), normal(n)
    data = compressor.encode(x, Key(1, 2, 3, "x")).to_bytes()
    assert (
        data.numel() == compressor.message_bytes(n)
        if coding == "packed"
        else data.numel() <= compressor.message_bytes(n)
    )
    got = Eden(DRIVE()).decode(parse(data))
    other = Eden(
        EDEN(
            bits=bits,
            bucket_size=bucket_size,
            scale=scale,
            levels=levels,
            coding="packed" if levels == "lloyd_max" else "huffman",
        )
    )
    assert got.shape == x.shape and torch.equal(got, decoded(other, x, Key(1, 2, 3, "x")))
    whole = n // 128 * 128  # a padded bucket may be one that few coordinates make up
    if whole > 300:
        assert (got - x)[:whole].square().sum() < 2.0 ** (1 - 1.5 * bits) * x[:whole].square().sum()


def test_the_rest_is_cut_into_powers_of_two():
    layout = Eden(EDEN(bits=3)).layout(2 * 8192 + 5000)
    assert layout.runs == [
        (0, 8192, 2),
        (16384, 4096, 1),
        (20480, 1024, 1),
    ]  # 5000 = 4096 + 904, and 904 is nearest to 8 * 128
    assert Eden(EDEN(bits=3)).layout(700).runs == [(0, 512, 1), (512, 256, 1)]
    assert Eden(EDEN(bits=3)).layout(0).runs == []


def test_what_a_message_takes():
    n = 1 << 20
    assert (
        Eden(EDEN(bits=3)).encode(normal(n), Key(0, 0, 0, "x")).num_bytes
        == HEADER_BYTES + 12 + 4 * n // 8192 + 3 * n // 8
    )


def test_entropy_coding_takes_fewer_bits_of_uneven_codes():
    x = normal(1 << 18)
    sizes = [
        Eden(EDEN(bits=4, coding=coding)).encode(x, Key(0, 0, 0, "x")).num_bytes * 8 / x.numel()
        for coding in ("packed", "huffman", "rans")
    ]
    assert sizes[0] > sizes[1] > sizes[2] and sizes[2] == pytest.approx(3.77, abs=0.02)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e30])
def test_extreme_scales(scale):
    x = normal(300) * scale
    got = decoded(Eden(EDEN(bits=4)), x, Key(1, 0, 0, "x"))
    if scale < 2.0**-126:
        assert not got.any()
    else:
        assert (got / scale - x / scale).square().sum() < 0.02 * (x / scale).square().sum()


def test_zero_buckets_stay_zero_beside_others():
    x = torch.cat([torch.zeros(128), normal(128), torch.zeros(50)])
    got = decoded(Eden(EDEN(bucket_size=128)), x, Key(1, 0, 0, "x"))
    assert not got[:128].any() and not got[256:].any() and got[128:256].any()


def test_the_input_stays_as_it_was():
    x = normal(1024)
    before = x.clone()
    Eden(EDEN()).encode(x, Key(1, 0, 0, "x"))
    assert torch.equal(x, before)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("coding", "levels"), [*((coding, "lloyd_max") for coding in ("packed", "huffman", "rans")), ("rans", "uniform")]
)
def test_damage_is_an_error_or_harmless(coding, levels):
    """Bodies changed behind the checksum's back: MessageError, or finite numbers of the right shape."""
    compressor = Eden(EDEN(bits=3, bucket_size=128, coding=coding, levels=levels))
    message = compressor.encode(normal(400), Key(1, 0, 0, "x"))
    generator = torch.Generator().manual_seed(1)
    errors = 0
    for trial in range(300):
        body = message.body.clone()
        place = trial if trial < 40 else int(torch.randint(len(body), (), generator=generator))
        body[place] ^= int(torch.randint(1, 256, (), generator=generator))
        try:
            got = compressor.decode(Message(message.tag, 400, body))
        except MessageError:
            errors += 1
        else:
            assert got.shape == (400,)
    assert errors


def test_the_bucket_size_is_a_power_of_two():
    with pytest.raises(ValueError, match="bucket_size=1000: must be a power of two"):
        Eden(EDEN(bucket_size=1000))


def test_no_bucket_is_too_short_to_be_unbiased():
    with pytest.raises(ValueError, match="bucket_size=64: must be at least 128"):
        Eden(EDEN(bucket_size=64))
    message = Eden(EDEN(bucket_size=128)).encode(normal(128), Key(1, 0, 0, "x"))
    message.body[0] = 6
    with pytest.raises(MessageError, match=r"bucket size 2\^6"):
        Eden(EDEN()).decode(message)
