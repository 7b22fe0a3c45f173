"""The promises of a method; ``name`` is one with some settings, such as ``"qsgd bits=2"``.

Each failure is a sentence: the method, what it claims, the value that was found and its limit.
"""

import pickle
import re

import pytest
import torch

from nuq.compressors.message import parse
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import declared
from nuq.testing.cases import INPUTS, UNBIASED_INPUTS, build, claims, gradient


def hold(good, name, words):
    """Fail the test with a sentence about a method, and with nothing of tensors."""
    if not good:
        pytest.fail(f"{name} {words}", pytrace=False)


def expect(error, name, what, call):
    """The call raises this error, or the test fails with a sentence on what came instead."""
    try:
        got = call()
    except error:
        return
    except Exception as other:  # noqa: BLE001  whatever it is, the sentence tells
        hold(False, name, f"raises {type(other).__name__} for {what}; it must be a {error.__name__}")
    else:
        hold(False, name, f"takes {what} and gives {type(got).__name__}; it must raise {error.__name__}")


def apart(one, other):
    """How far two tensors that should be equal are from each other, in words."""
    if one.shape != other.shape:
        return f"{list(one.shape)} beside {list(other.shape)} numbers"
    differing = (one != other).flatten()
    if not bool(differing.any()):
        return "none of them differs"
    pair = (each.flatten()[differing][0].item() for each in (one, other))
    return f"{int(differing.sum())} of {one.numel()} differ, the first {' beside '.join(map(str, pair))}"


@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_a_fresh_instance_decodes_the_bytes(name, x):
    """Another instance decodes the bytes, of which there are as many as ``message_bytes`` says."""
    compressor = build(name)
    data, most = compressor.encode(x, Key(1, 2, 3, "x")).to_bytes(), compressor.message_bytes(x.numel())
    hold(data.dtype == torch.uint8, name, f"encodes to {data.dtype}; a message is bytes, torch.uint8")
    said = f"message_bytes({x.numel()}) = {most} and the message has {data.numel()} bytes"
    hold(data.numel() <= most, name, f"claims at most so many bytes: {said}")
    hold(not compressor.exact_bytes or data.numel() == most, name, f"claims exact_bytes: {said}")
    decoded, again = build(name).decode(parse(data.clone())), compressor.decode(parse(data))
    found = f"{decoded.dtype}{list(decoded.shape)}".removeprefix("torch.")
    right = decoded.dtype == torch.float32 and decoded.shape == x.shape
    hold(right, name, f"decodes {list(x.shape)} coordinates to {found}; they are float32 and as many")
    bad = int((~torch.isfinite(decoded)).sum())
    hold(not bad, name, f"decodes a finite vector to {bad} numbers that are not finite (limit 0)")
    hold(torch.equal(decoded, again), name, f"decodes by what is not in the message: {apart(decoded, again)}")
    hold(bool(x.any()) or not decoded.any(), name, f"decodes zeros to {float(decoded.abs().sum())} in all (limit 0)")


def test_the_key_alone_decides_the_rounding(name):
    """The same vector and key give the same bytes, another key others unless the method is deterministic."""
    compressor, x = build(name), gradient(500)
    x = x.view(20, 25) if compressor.shaped else x
    first, again, other = (compressor.encode(x, Key(1, step, 0, "x")).to_bytes() for step in (5, 5, 6))
    same = f"gives other bytes for the same vector and key: {apart(first, again)}"
    hold(torch.equal(first, again), name, same)
    claimed, found = claims(name).deterministic, torch.equal(first, other)
    what = "the same bytes" if found else f"other bytes ({apart(first, other)})"
    hold(found == claimed, name, f"claims deterministic={claimed} and gives {what} for another key")


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
    limit = expected + three_sigma + rounding
    off, most = ((number / count) ** 0.5 for number in (got, limit))
    words = f"its mean of {count} is off by {off:.3g} (limit {most:.3g}) from a vector of length {float(x.norm()):.3g}"
    hold(got <= limit, name, f"claims unbiased; {words}")


@pytest.mark.parametrize("x", (INPUTS | UNBIASED_INPUTS).values(), ids=INPUTS | UNBIASED_INPUTS)
def test_contractive(name, x):
    """The error is smaller than the vector, unless that is zero."""
    compressor = build(name)
    for step in range(10):
        decoded = compressor.decode(compressor.encode(x, Key(1, step, 0, "x")))
        error, size = float((decoded.double() - x.double()).square().sum()), float(x.double().square().sum())
        words = f"a message leaves out {error**0.5:.6g} of a vector of length {size**0.5:.6g} (limit: less than that)"
        hold(error < size or error == size == 0, name, f"claims contractive; {words}")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error(name, bad):
    """A vector with a NaN or an infinity is a NonFiniteError."""
    x = gradient(100)
    x[70] = bad
    expect(NonFiniteError, name, f"a vector with {bad}", lambda: build(name).encode(x, Key(1, 0, 0, "x")))


def test_damaged_bodies_are_errors(name):
    """A body that is too short or too long, or of another tag, is a MessageError."""
    compressor = build(name)
    message = compressor.encode(gradient(100), Key(1, 0, 0, "x"))
    body, kind = message.body, type(message)
    cut = {"cut by a byte": body[:-1], "of three bytes": body[:3], "longer by a byte": torch.cat([body, body[:1]])}
    for what, other in cut.items():
        expect(
            MessageError,
            name,
            f"a message {what}",
            lambda other=other: compressor.decode(kind(message.tag, 100, other)),
        )
    expect(MessageError, name, "a message of another tag", lambda: compressor.decode(kind(b"ELSE", 100, body)))


def test_state_goes_through_a_checkpoint(name, tmp_path):
    """An instance with the saved state of another encodes as that one does."""
    compressor = build(name)
    torch.save(compressor.state_dict(), tmp_path / "state.pt")
    fresh = build(name)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = gradient(200)
    one, other = (each.encode(x, Key(1, 0, 0, "x")).to_bytes() for each in (fresh, compressor))
    hold(torch.equal(one, other), name, f"encodes otherwise with its own saved state: {apart(one, other)}")


def test_the_global_generators_stay_untouched(name):
    """Randomness comes from the key, and torch's own generator stays as it is."""
    before = torch.random.get_rng_state()
    compressor = build(name)
    compressor.decode(compressor.encode(gradient(100), Key(1, 0, 0, "x")))
    untouched = torch.equal(before, torch.random.get_rng_state())
    hold(untouched, name, "draws from torch's own generator; random numbers come from the key alone")


def test_no_setting_is_cut_to_an_integer(names):
    """A number of bits or a bucket size with a fraction is an error."""
    for name in names:
        entry = METHODS[name.split()[0]]
        for setting, of in declared(entry.settings).items():
            if setting not in ("bits", "bucket_size") or of.type is not int:
                continue
            given, words = of.default + 0.5, ""
            try:
                entry.load()(entry.settings(**{setting: given}))
            except ValueError as error:
                words = str(error)
            said = re.match(rf"{setting}={given}: must be (of type int|an integer)", words)
            must = "it must be a ValueError that says 'of type int'"
            hold(said, name, f"answers {setting}={given} with {words!r}; {must}")


def test_settings_are_plain_data(names):
    """Settings can be pickled."""
    for name in names:
        settings = METHODS[name.split()[0]].settings()
        hold(pickle.loads(pickle.dumps(settings)) == settings, name, f"has settings that a pickle changes: {settings}")
