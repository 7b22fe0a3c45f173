"""What every entry of METHODS promises, checked for every entry."""

import pickle

import pytest
import torch

from nuq import lloyd_max, ops, reference
from nuq.compressors.eden import Eden
from nuq.compressors.quantized import Quantizer
from nuq.message import MessageError, parse
from nuq.ops import Key, NonFiniteError
from nuq.registry import METHODS

SMALL = {"bucket_size": 64}


# Options compose with the members of the quantizer's family; these go through every test like a method of their own.
VARIANTS = (
    "qsgdinf dither=subtractive",
    "qsgd rotation=hadamard",
    "trn coding=huffman dither=subtractive",
    "alq norm=quantile",
    "alq_n norm=linf coding=rans",
    "nuqsgd rotation=hadamard coding=rans",
    "ecdq rotation=hadamard",
)
CASES = (*METHODS, *VARIANTS)


def build(case: str, **settings):
    name, *options = case.split()
    entry = METHODS[name]
    known = entry.settings.__dataclass_fields__
    chosen = {key: value for key, value in (SMALL | settings).items() if key in known}
    if "bucket_size" in chosen:
        chosen["bucket_size"] = max(chosen["bucket_size"], known["bucket_size"].metadata["low"])
    return entry.load()(entry.settings(**chosen, **dict(option.split("=") for option in options)))


def gradient(n: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Heavier tails than normal, as gradients have."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp()


INPUTS = {
    "empty": torch.empty(0),
    "one": torch.tensor([3.0]),
    "zeros": torch.zeros(100),
    "a bucket": gradient(64),
    "two buckets": gradient(128),
    "a tail": gradient(129),
    "a short tail bucket": gradient(200),
    "huge": gradient(200, scale=1e30),
    "tiny": gradient(200, scale=1e-30),
    "constant": torch.full((70,), -2.5),
    "mostly zero": torch.cat([torch.zeros(150), gradient(20)]),
    "bfloat16": gradient(100).bfloat16(),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_a_fresh_instance_decodes_the_bytes(name, x):
    compressor = build(name)
    data = compressor.encode(x, Key(1, 2, 3, "x")).to_bytes()
    assert data.dtype == torch.uint8 and data.numel() <= compressor.message_bytes(x.numel())
    if getattr(compressor, "coder", "packed") == "packed":
        assert data.numel() == compressor.message_bytes(x.numel())
    decoded = build(name).decode(parse(data.clone()))
    assert decoded.dtype == torch.float32 and decoded.shape == x.shape and bool(torch.isfinite(decoded).all())
    assert torch.equal(decoded, compressor.decode(parse(data)))
    if not x.any():
        assert not decoded.any()


@pytest.mark.parametrize("name", CASES)
def test_the_key_alone_decides_the_rounding(name):
    compressor, x = build(name), gradient(500)
    first, again, other = (compressor.encode(x, Key(1, step, 0, "x")).to_bytes() for step in (5, 5, 6))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name in ("sgd", "supersgd"))


def sparse(n: int, *places: int) -> torch.Tensor:
    """Zero but for a few coordinates of different sizes."""
    x = torch.zeros(n)
    x[list(places)] = torch.linspace(1.0, -2.0, len(places))
    return x


UNBIASED_INPUTS = {
    "long": gradient(1000),
    "short": gradient(3),
    "one of seven": sparse(7, 4),
    "two of a hundred": sparse(100, 10, 77),
    "five of 300": sparse(300, 0, 1, 99, 200, 299),
    "constant": torch.full((65,), 0.3),
}


@pytest.mark.parametrize("name", [case for case in CASES if METHODS[case.split()[0]].unbiased])
@pytest.mark.parametrize("x", UNBIASED_INPUTS.values(), ids=UNBIASED_INPUTS)
def test_unbiased(name, x):
    """For independent unbiased estimates T |mean_T - x|^2 and the mean squared error agree; a bias b adds T b^2."""
    compressor, x, count = build(name), x.double(), 250
    draws = torch.stack([compressor.decode(compressor.encode(x.float(), Key(1, step, 0, "x"))) for step in range(count)]).double()
    error = draws - x
    per_coordinate = error.square().mean(dim=0)
    expected, got = float(per_coordinate.sum()), float(count * error.mean(dim=0).square().sum())
    rounding = count * float(x.square().sum()) * 2.0**-46  # the reconstructed value itself is rounded to float32
    three_sigma = 3 * float((2 * per_coordinate.square().sum()).sqrt())
    assert got <= expected + three_sigma + rounding


@pytest.mark.parametrize("name", CASES)
def test_variance_is_the_one_of_theory(name):
    """norm^2 * sum of (r - l)(u - r) for the quantizers, |x|^2 D / (1 - D) for EDEN, zero for full precision."""
    compressor, x, count = build(name), gradient(512), 300
    if isinstance(compressor, Eden):
        x = torch.randn(512, generator=torch.Generator().manual_seed(0))  # a bucket that few coordinates make up is rounded otherwise
    keys = [Key(1, step, 0, "x") for step in range(count)]
    draws = torch.stack([compressor.decode(compressor.encode(x, key)) for key in keys]).double()
    errors = (draws - x.double()).square().sum(dim=1)
    if isinstance(compressor, Eden):
        distortion = lloyd_max.distortion(compressor.bits)
        expected = float(x.double().square().sum()) * distortion / (1 - distortion)
        assert float(errors.mean()) == pytest.approx(expected, rel=0.05)  # a bucket of 128 is 2 % off
    elif isinstance(compressor, Quantizer):
        expected = torch.tensor([expected_error(compressor, compressor.rotated(x, key)) for key in keys])
        assert abs(float((errors - expected).mean())) < 4 * float((errors - expected).std()) / count**0.5 + 0.01 * float(expected.mean())
    else:
        assert not errors.any()


def expected_error(quantizer: Quantizer, x: torch.Tensor) -> float:
    """The formula of the docstring above, for what is cut into buckets; step^2 / 12 a coordinate after subtractive dither."""
    pairs = ops.bucket_scales(x, 64, quantizer.norm, quantizer.multiple).view(-1, ops.scales_per_bucket(quantizer.norm)).double()
    scales = pairs[:, :1]
    if quantizer.dither:
        return float((scales * 2 / (quantizer.levels.num_levels - 1)).square().sum() * 64 / 12)
    levels = torch.tensor(quantizer.levels.values)
    r = reference.bucketed(x, 64).double() / scales
    top = (pairs[:, -1:] / scales).expand_as(r) if pairs.shape[1] == 2 else torch.ones_like(r)
    r = torch.minimum(torch.maximum(r, -top), top)
    k = torch.bucketize(r, levels[1:-1], right=True)
    lower = torch.where(k == 0, -top, levels[k])
    upper = torch.where(k == len(levels) - 2, top, levels[k + 1])
    return float((scales.square() * (r - lower) * (upper - r)).sum())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error(name, bad):
    x = gradient(100)
    x[70] = bad
    with pytest.raises(NonFiniteError):
        build(name).encode(x, Key(1, 0, 0, "x"))


@pytest.mark.parametrize("name", CASES)
def test_damaged_bodies_are_errors(name):
    compressor = build(name)
    message = compressor.encode(gradient(100), Key(1, 0, 0, "x"))
    for body in (message.body[:-1], message.body[:3], torch.cat([message.body, message.body[:1]])):
        with pytest.raises(MessageError):
            compressor.decode(type(message)(message.tag, 100, body))
    with pytest.raises(MessageError):
        compressor.decode(type(message)(b"ELSE", 100, message.body))


@pytest.mark.parametrize("name", CASES)
def test_state_goes_through_a_checkpoint(name, tmp_path):
    compressor = build(name)
    torch.save(compressor.state_dict(), tmp_path / "state.pt")
    fresh = build(name)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = gradient(200)
    assert torch.equal(fresh.encode(x, Key(1, 0, 0, "x")).to_bytes(), compressor.encode(x, Key(1, 0, 0, "x")).to_bytes())


@pytest.mark.parametrize("name", CASES)
def test_the_global_generators_stay_untouched(name):
    before = torch.random.get_rng_state()
    compressor = build(name)
    compressor.decode(compressor.encode(gradient(100), Key(1, 0, 0, "x")))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_plain_data(name):
    settings = METHODS[name].settings()
    assert pickle.loads(pickle.dumps(settings)) == settings
