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


def build(name: str, **settings):
    entry = METHODS[name]
    known = entry.settings.__dataclass_fields__
    return entry.load()(entry.settings(**{key: value for key, value in (SMALL | settings).items() if key in known}))


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


@pytest.mark.parametrize("name", METHODS)
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


@pytest.mark.parametrize("name", METHODS)
def test_the_key_alone_decides_the_rounding(name):
    compressor, x = build(name), gradient(500)
    first, again, other = (compressor.encode(x, Key(1, step, 0, "x")).to_bytes() for step in (5, 5, 6))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name in ("sgd", "supersgd"))


@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.unbiased])
@pytest.mark.parametrize("n", [1000, 3])
def test_unbiased(name, n):
    """For independent unbiased estimates T |mean_T - x|^2 and the mean squared error agree; a bias b adds T b^2."""
    compressor, x, count = build(name), gradient(n).double(), 400
    draws = torch.stack([compressor.decode(compressor.encode(x.float(), Key(1, step, 0, "x"))) for step in range(count)]).double()
    error = draws - x
    per_coordinate = error.square().mean(dim=0)
    expected, got = float(per_coordinate.sum()), float(count * error.mean(dim=0).square().sum())
    rounding = count * float(x.square().sum()) * 2.0**-46  # the reconstructed value itself is rounded to float32
    three_sigma = 3 * float((2 * per_coordinate.square().sum()).sqrt())
    assert got <= expected + three_sigma + rounding


@pytest.mark.parametrize("name", METHODS)
def test_variance_is_the_one_of_theory(name):
    """norm^2 * sum of (r - l)(u - r) for the quantizers, |x|^2 D / (1 - D) for EDEN, zero for full precision."""
    compressor, x, count = build(name), gradient(512), 300
    draws = torch.stack([compressor.decode(compressor.encode(x, Key(1, step, 0, "x"))) for step in range(count)]).double()
    got = float((draws - x.double()).square().sum(dim=1).mean())
    if isinstance(compressor, Eden):
        distortion = lloyd_max.distortion(compressor.bits)
        assert got == pytest.approx(float(x.double().square().sum()) * distortion / (1 - distortion), rel=0.1)  # a bucket of 64 is 6 % off
        return
    if not isinstance(compressor, Quantizer):
        assert got == 0
        return
    levels = torch.tensor(compressor.levels.values)
    if compressor.dither:
        step = 2 / (compressor.levels.num_levels - 1)
        scales = ops.bucket_scales(compressor.rotated(x, Key(1, 0, 0, "x")), 64, compressor.norm, compressor.multiple)
        assert got == pytest.approx(float((scales.double() * step).square().sum() * 64 / 12), rel=0.05)
        return
    buckets = reference.bucketed(x, 64)
    norms = ops.bucket_scales(x, 64, compressor.norm).double()
    r = (buckets.double() / norms[:, None]).clamp(-1, 1)
    k = torch.bucketize(r, levels[1:-1], right=True)
    each = norms.square()[:, None] * (r - levels[k]) * (levels[k + 1] - r)
    assert got == pytest.approx(float(each.sum()), rel=5 * float(each.square().sum().sqrt() / each.sum()) / count**0.5 + 0.02)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error(name, bad):
    x = gradient(100)
    x[70] = bad
    with pytest.raises(NonFiniteError):
        build(name).encode(x, Key(1, 0, 0, "x"))


@pytest.mark.parametrize("name", METHODS)
def test_damaged_bodies_are_errors(name):
    compressor = build(name)
    message = compressor.encode(gradient(100), Key(1, 0, 0, "x"))
    for body in (message.body[:-1], message.body[:3], torch.cat([message.body, message.body[:1]])):
        with pytest.raises(MessageError):
            compressor.decode(type(message)(message.tag, 100, body))
    with pytest.raises(MessageError):
        compressor.decode(type(message)(b"ELSE", 100, message.body))


@pytest.mark.parametrize("name", METHODS)
def test_state_goes_through_a_checkpoint(name, tmp_path):
    compressor = build(name)
    torch.save(compressor.state_dict(), tmp_path / "state.pt")
    fresh = build(name)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = gradient(200)
    assert torch.equal(fresh.encode(x, Key(1, 0, 0, "x")).to_bytes(), compressor.encode(x, Key(1, 0, 0, "x")).to_bytes())


@pytest.mark.parametrize("name", METHODS)
def test_the_global_generators_stay_untouched(name):
    before = torch.random.get_rng_state()
    compressor = build(name)
    compressor.decode(compressor.encode(gradient(100), Key(1, 0, 0, "x")))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_plain_data(name):
    settings = METHODS[name].settings()
    assert pickle.loads(pickle.dumps(settings)) == settings
