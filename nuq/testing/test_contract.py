"""The promises of a method; ``name`` is one with some settings, such as ``"qsgd bits=2"``."""

import pickle

import pytest
import torch

from nuq.compressors.message import parse
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import declared
from nuq.testing.cases import INPUTS, UNBIASED_INPUTS, build, claims, gradient


@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_a_fresh_instance_decodes_the_bytes(name, x):
    """Another instance decodes the bytes, of which there are as many as ``message_bytes`` says."""
    compressor = build(name)
    data = compressor.encode(x, Key(1, 2, 3, "x")).to_bytes()
    assert data.dtype == torch.uint8 and data.numel() <= compressor.message_bytes(x.numel())
    if compressor.exact_bytes:
        assert data.numel() == compressor.message_bytes(x.numel())
    decoded = build(name).decode(parse(data.clone()))
    assert decoded.dtype == torch.float32 and decoded.shape == x.shape and bool(torch.isfinite(decoded).all())
    assert torch.equal(decoded, compressor.decode(parse(data)))
    if not x.any():
        assert not decoded.any()


def test_the_key_alone_decides_the_rounding(name):
    """The same vector and key give the same bytes, another key others unless the method is deterministic."""
    compressor, x = build(name), gradient(500)
    x = x.view(20, 25) if compressor.shaped else x
    first, again, other = (compressor.encode(x, Key(1, step, 0, "x")).to_bytes() for step in (5, 5, 6))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == claims(name).deterministic


@pytest.mark.parametrize("x", UNBIASED_INPUTS.values(), ids=UNBIASED_INPUTS)
def test_unbiased(name, x):
    """The mean of T independent unbiased estimates satisfies: T |mean_T - x|^2 and the mean squared error agree; a bias
    b adds T b^2.
    """
    compressor, x, count = build(name), x.double(), 250
    draws = torch.stack(
        [compressor.decode(compressor.encode(x.float(), Key(1, step, 0, "x"))) for step in range(count)]
    ).double()
    error = draws - x
    per_coordinate = error.square().mean(dim=0)
    expected, got = float(per_coordinate.sum()), float(count * error.mean(dim=0).square().sum())
    rounding = count * float(x.square().sum()) * 2.0**-46  # the reconstructed value itself is rounded to float32
    # Twice the sum of squares of the covariances, from pairs of draws: an atom's coordinates err together.
    pairs = (error @ error.T).fill_diagonal_(0.0).square().sum() / (count * (count - 1))
    three_sigma = 3 * float((2 * torch.maximum(pairs, per_coordinate.square().sum())).sqrt())
    assert got <= expected + three_sigma + rounding


@pytest.mark.parametrize("x", (INPUTS | UNBIASED_INPUTS).values(), ids=INPUTS | UNBIASED_INPUTS)
def test_contractive(name, x):
    """The error is smaller than the vector, unless that is zero."""
    compressor = build(name)
    for step in range(10):
        decoded = compressor.decode(compressor.encode(x, Key(1, step, 0, "x")))
        error, size = float((decoded.double() - x.double()).square().sum()), float(x.double().square().sum())
        assert error < size or error == size == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error(name, bad):
    """A vector with a NaN or an infinity is a NonFiniteError."""
    x = gradient(100)
    x[70] = bad
    with pytest.raises(NonFiniteError):
        build(name).encode(x, Key(1, 0, 0, "x"))


def test_damaged_bodies_are_errors(name):
    """A body that is too short or too long, or of another tag, is a MessageError."""
    compressor = build(name)
    message = compressor.encode(gradient(100), Key(1, 0, 0, "x"))
    for body in (message.body[:-1], message.body[:3], torch.cat([message.body, message.body[:1]])):
        with pytest.raises(MessageError):
            compressor.decode(type(message)(message.tag, 100, body))
    with pytest.raises(MessageError):
        compressor.decode(type(message)(b"ELSE", 100, message.body))


def test_state_goes_through_a_checkpoint(name, tmp_path):
    """An instance with the saved state of another encodes as that one does."""
    compressor = build(name)
    torch.save(compressor.state_dict(), tmp_path / "state.pt")
    fresh = build(name)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = gradient(200)
    assert torch.equal(
        fresh.encode(x, Key(1, 0, 0, "x")).to_bytes(), compressor.encode(x, Key(1, 0, 0, "x")).to_bytes()
    )


def test_the_global_generators_stay_untouched(name):
    """Randomness comes from the key, and torch's own generator stays as it is."""
    before = torch.random.get_rng_state()
    compressor = build(name)
    compressor.decode(compressor.encode(gradient(100), Key(1, 0, 0, "x")))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("setting", ["bits", "bucket_size"])
def test_no_setting_is_cut_to_an_integer(name, setting):
    """A number of bits or a bucket size with a fraction is an error."""
    entry = METHODS[name.split()[0]]
    of = declared(entry.settings).get(setting)
    if of and of.type is int:
        with pytest.raises(ValueError, match=rf"^{setting}={of.default + 0.5}: must be (of type int|an integer)"):
            entry.load()(entry.settings(**{setting: of.default + 0.5}))


def test_settings_are_plain_data(name):
    """Settings can be pickled."""
    settings = METHODS[name.split()[0]].settings()
    assert pickle.loads(pickle.dumps(settings)) == settings
