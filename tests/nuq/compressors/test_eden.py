"""EDEN and DRIVE: their published errors, no bias where one rotation has one, and messages that stand alone."""

import base64
import itertools
import zlib
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq import native
from nuq.compressors import eden
from nuq.compressors.eden import Eden
from nuq.compressors.message import HEADER_BYTES, Message, parse
from nuq.errors import MessageError
from nuq.kernels import operators, reference
from nuq.kernels.spec import Key
from nuq.settings.quantizers import DRIVE, EDEN
from tests.tiers import few

PLAIN = {"lloyd_max": "packed", "uniform": "huffman"}
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


def with_share(share: float, rest: torch.Tensor, size: int) -> torch.Tensor:
    """The rest in buckets, with one coordinate in each that has this share of its energy."""
    buckets = rest.clone().view(-1, size)
    buckets[:, 7] = 0
    buckets[:, 7] = (share / (1 - share) * buckets.square().sum(dim=1)).sqrt()
    return buckets.view(-1)


@few(4, ("size", "distribution", "bits"), product([128, 1024, 8192], DISTRIBUTIONS, VNMSE))
def test_one_large_coordinate_does_not_raise_the_error_of_a_dense_bucket(distribution, bits, size):
    rest, compressor = DISTRIBUTIONS[distribution](1 << 17), Eden(EDEN(bits=bits, bucket_size=size))
    for share in (0.1, 0.25, 0.5, 0.9, 0.99):
        x = with_share(share, rest, size)
        assert relative_error(compressor, x, Key(0, 0, 0, "x")) <= 1.05 * VNMSE[bits], share


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


def errors_of(x: torch.Tensor, bits: int, count: int, copies: int = 160, **settings: Any) -> torch.Tensor:
    """The errors of estimates: float64[count, 128]; a message has some copies of x, each rotated by its own signs."""
    compressor = Eden(EDEN(bits=bits, bucket_size=128, **settings))
    steps = range(count // copies)
    draws = [decoded(compressor, x.repeat(copies), Key(2, step, 0, "x")).view(copies, 128) for step in steps]
    return (torch.cat(draws) - x).double()


def bias_in_sigmas(x: torch.Tensor, bits: int, rotations: int = 3, **settings: Any) -> float:
    """T |mean_T - x|^2 against T independent errors' mean square, in standard deviations of the former; T = 16,000."""
    errors = errors_of(x, bits, 16_000, rotations=rotations, **settings)
    each = errors.square().mean(dim=0)
    return float((len(errors) * errors.mean(dim=0).square().sum() - each.sum()) / (2 * each.square().sum()).sqrt())


def worst_in_sigmas(x: torch.Tensor, bits: int, **settings: Any) -> float:
    """The mean error of the coordinate where it is largest, in standard errors; T = 10,000."""
    errors = errors_of(x, bits, 10_000, copies=50, **settings)
    rounding = 2.0**-22 * float(x.abs().max())
    return float((errors.mean(dim=0).abs() / (errors.std(dim=0) / len(errors) ** 0.5 + rounding)).max())


@few(2, "x", HARD.values(), ids=HARD)
@few(1, "bits", [1, 3])
def test_unbiased_on_sparse_short_and_structured_input(x, bits):
    assert bias_in_sigmas(x, bits) < 3


@few(2, "x", HARD.values(), ids=HARD)
def test_uniform_steps_are_unbiased_there_too(x):
    assert bias_in_sigmas(x, 2, levels="uniform", coding="rans") < 3


@pytest.mark.parametrize("rotations", [1, 2])
def test_fewer_rotations_are_unbiased_on_sparse_input(rotations):
    assert bias_in_sigmas(HARD["two coordinates"], 1, rotations) < 3


@pytest.mark.slow
def test_without_the_dither_sparse_input_is_biased(monkeypatch):
    """Rotations and dither are there for this, and the tests here can fail."""
    monkeypatch.setattr(eden, "_lattice", nowhere)
    assert bias_in_sigmas(HARD["two coordinates"], 1, rotations=1) > 1000
    assert bias_in_sigmas(HARD["two coordinates"], 1, rotations=2) > 5
    assert worst_in_sigmas(BESIDE["1 alike"], 3) > 20
    assert worst_in_sigmas(BESIDE["33 alike"], 3) > 6


def nowhere(x: torch.Tensor, size: int, layout: eden.Layout) -> tuple[torch.Tensor, torch.Tensor]:
    del layout
    return torch.zeros(x.numel() // size), torch.zeros(x.numel() // size, dtype=torch.bool)


def alike(count: int, small: float, at_random: bool = False) -> torch.Tensor:
    """So many ones, side by side or at random places, and one small coordinate."""
    values = torch.tensor([1.0] * count + [-small] + [0.0] * (127 - count))
    return values[torch.randperm(128, generator=torch.Generator().manual_seed(count))] if at_random else values


BESIDE = {f"{count} alike": alike(count, 0.001) for count in (1, 2, 4, 8, 12, 16, 33)} | {
    "two and 1/100": alike(2, 0.01, at_random=True),
    "12 anywhere": alike(12, 0.001, at_random=True),
    "64 anywhere": alike(64, 0.01, at_random=True),
    "1, 1/10 and 1/1000": sparse(1.0, 0.1, 0.001),
    "1, thrice 1/3 and 1/100": sparse(1.0, 1 / 3, 1 / 3, 1 / 3, 0.01),
    "16 normal ones": torch.cat([normal(16, 4), torch.zeros(112)]),
    "5 normal ones": torch.cat([normal(5, 4), torch.zeros(123)]),
    "lognormal": (2 * normal(128, 2)).exp() * sign(128),
    "a quarter of the energy in one": with_share(0.25, normal(128), 128),
    "half of it": with_share(0.5, normal(128), 128),
    "99 %": with_share(0.99, normal(128), 128),
}


@few(("33 alike",), "x", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("bits", [1, 2, 8])
def test_each_coordinate_is_unbiased_beside_larger_ones(x, bits):
    """Of 128 normal numbers one is beyond 4.7 once in 3,000 times."""
    assert worst_in_sigmas(x, bits) < 4.7


@pytest.mark.slow
@pytest.mark.parametrize("x", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("bits", [1, 4])
def test_each_coordinate_is_unbiased_on_uniform_steps(x, bits):
    assert worst_in_sigmas(x, bits, levels="uniform", coding="huffman") < 4.7


@few(1, "size", [128, 512, 8192])
@pytest.mark.parametrize("form", [{}, {"levels": "uniform", "coding": "huffman"}], ids=["lloyd_max", "uniform"])
@few(3, "bits", range(1, 9))
def test_sparse_buckets_err_no_more_than_rounded_at_random(bits, form, size, monkeypatch):
    """As they were before they were dithered."""
    rows = [torch.nn.functional.pad(torch.ones(count), (0, size - count)) for count in (1, 2, 4, 12) for _ in range(64)]
    compressor, x = Eden(EDEN(bits=bits, bucket_size=size, **form)), torch.cat(rows)
    error = relative_error(compressor, x, Key(0, 0, 0, "x"))
    monkeypatch.setattr(eden, "_lattice", lambda *of: (torch.zeros(256), torch.ones(256, dtype=torch.bool)))
    assert error <= 1.02 * relative_error(compressor, x, Key(0, 0, 0, "x"))
    if size == 8192:
        monkeypatch.setattr(eden, "_lattice", nowhere)
        assert error <= 1.02 * relative_error(compressor, x, Key(0, 0, 0, "x"))


@few(2, "n", [1, 3, 127, 300])
def test_unbiased_on_short_vectors(n):
    x, compressor, count = normal(n, n), Eden(EDEN(bits=2)), 300
    errors = torch.stack([decoded(compressor, x, Key(1, step, 0, "x")) - x for step in range(count)]).double()
    each = errors.square().mean(dim=0)
    rounding = count * float(x.double().square().sum()) * 2.0**-44
    assert count * errors.mean(dim=0).square().sum() <= each.sum() + 3 * (2 * each.square().sum()).sqrt() + rounding


# --- messages -------------------------------------------------------------------------------------------------------

OLD = (  # by 3902daa2, of x[5] = 1, which was rounded at random, and 0 .. 127: uniform steps, 2 bits
    "PEi5?MMOnTl|l^o0096100000UH||9000002LcfT{bX~S*3tQSn(;%wB2<z>0#GC|1O=x&E6}alcH;}N)s4|I0ksB=H0<iHLirivuiIYk=Wn+("
    "Z@M<^FWR#Kd}N8<MAEjmMSa<JX;Nm{|7O{e*?!MV$^Z"
)


def test_uniform_steps_that_were_rounded_at_random_decode_as_ever():
    """``tests/compat`` has the other form."""
    message = parse(torch.tensor(list(base64.b85decode(OLD)), dtype=torch.uint8))
    scales = message.body[12:20].view(torch.float32)
    assert scales[0] < 0 < scales[1]
    assert zlib.crc32(Eden(DRIVE()).decode(message).numpy().tobytes()) == 422128850


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
@pytest.mark.parametrize("levels", ["lloyd_max", "uniform"])
def test_dithered_buckets_have_the_same_bytes_in_every_implementation(levels, monkeypatch):
    x = torch.cat(
        [alike(2, 0.01), normal(256), torch.zeros(128), alike(33, 0.001), with_share(0.5, normal(400)[:384], 128)]
    )
    compressor, messages = Eden(EDEN(bucket_size=128, levels=levels, coding=PLAIN[levels])), []
    for isa in native.instruction_sets():
        with native.using(isa):
            messages.append(compressor.encode(x, Key(1, 0, 0, "x")).to_bytes())
    monkeypatch.setattr(operators, "_cpu_kernels", lambda: reference)
    messages.append(compressor.encode(x, Key(1, 0, 0, "x")).to_bytes())
    assert all(torch.equal(message, messages[0]) for message in messages)


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
    other = Eden(EDEN(bits=bits, bucket_size=bucket_size, scale=scale, levels=levels, coding=PLAIN[levels]))
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


def test_no_bucket_is_too_short_to_be_unbiased():
    with pytest.raises(ValueError, match="bucket_size=64"):
        Eden(EDEN(bucket_size=64))
    message = Eden(EDEN(bucket_size=128)).encode(normal(128), Key(1, 0, 0, "x"))
    message.body[0] = 6
    with pytest.raises(MessageError):
        Eden(EDEN()).decode(message)
