"""The promises of every entry of METHODS, checked for every entry."""

import dataclasses
import pickle

import pytest
import torch

from nuq.compressors.eden import Eden
from nuq.compressors.message import parse
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key
from nuq.registry import METHODS, Method
from nuq.settings import declared
from tests.theory import expected_error

SMALL = {"bucket_size": 64}


# Options compose with the members of the quantizer's family; these go through every test like a method of their own.
VARIANTS = (
    "qsgdinf dither=subtractive",
    "qsgd rotation=hadamard",
    "trn coding=huffman dither=subtractive",
    "alq norm=quantile",
    "alq_n norm=linf coding=rans",
    "nuqsgd rotation=hadamard coding=rans",
    "alq rounding=correlated coding=rans",
    "natural rounding=correlated",
    "ecdq rotation=hadamard",
    "eden levels=uniform coding=rans",
    "eden levels=uniform coding=huffman bits=1",
    "eden levels=uniform coding=rans bits=7 scale=mse",
    "sign scale=rms",
    "block8 rounding=stochastic",
    "block8 table=linear",
    "block8 table=linear rounding=stochastic",
    "fp8 table=e5m2 rounding=stochastic",
    "fp8 rounding=stochastic",
    "fp8 scale=none",
    "fp8 scale=none table=e5m2 rounding=stochastic",
    "fp16 rounding=stochastic",
    "bf16 rounding=stochastic",
    "smaq samples=16",
    "smaq zeros=coded",
    "smaq rounding=nearest bits_inlier=5 bits_outlier=6",
    "smaq bits_inlier=3 inlier_threshold=0.5 outlier_limit=6.0",
    "s2fp8 rounding=stochastic",
    "nnw_bdi rounding=stochastic",
    "nnw_bdi bits=5",
    "topk bucket_size=0 ratio=0.3 values=fp16 indices=bitmap",
    "topk bucket_size=0 ratio=0.1 selection=sampled indices=delta",
    "randomk bucket_size=0 ratio=0.2",
    "randomk ratio=0.5 scaled=false values=fp16",
    "thresholdv threshold=0.5 values=fp16",
    "adaptive_threshold bucket_size=0 indices=int32",
    "dgc dense_1d=false ratio=0.05",
    "dgc scope=model selection=exact ratio=0.1 indices=int32",
    "casq clusters=3 cells=4 values=fp16 coding=rans outlier_percentile=100.0",
    "casq clusters=40 cells_ratio=1.0 sample_size=16 refresh_every=3",
    "sketchml rows=0 coding=rans sample_size=16",
    "sketchml rows=1 buckets=10 groups=3 columns_ratio=1.0 coding=rans",
    "powersgd dense_1d=false",
    "powersgd scope=model rank=1 values=fp16",
    "powersgd scope=model rank=4 iterations=2",
    "atomo svd_rank=1",
    "atomo svd_rank=1 svd=randomized",
    "atomo svd=randomized",
    "atomo bits=4",
    "atomo svd_rank=1 bits=1",
    "atomo scope=model svd=exact svd_rank=2",
    "atomo atoms=entries",
    "atomo atoms=entries ratio=0.3",
)
CASES = (*METHODS, *VARIANTS)
# Options that change what a method claims.
CLAIMS = {
    "rounding=stochastic": {"unbiased": True, "contractive": False, "deterministic": False},
    "rounding=nearest": {"deterministic": True},
    "scale=none": {"contractive": False},
    "scaled=false": {"unbiased": False},
    "scale=rms": {"contractive": False},
    "scale=mse": {"unbiased": False},
    "rows=0": {"contractive": True, "deterministic": True},
}


def claims(case: str) -> Method:
    """The entry of a method, with the claims of a variant of it."""
    name, *options = case.split()
    changed = {claim: value for option in options for claim, value in CLAIMS.get(option, {}).items()}
    return dataclasses.replace(METHODS[name], **changed)


def build(case: str, **settings):
    name, *options = case.split()
    entry = METHODS[name]
    known = entry.settings.__dataclass_fields__
    chosen = {key: value for key, value in (SMALL | settings).items() if key in known}
    if "bucket_size" in chosen:
        chosen["bucket_size"] = max(chosen["bucket_size"], known["bucket_size"].metadata["low"])
    for option in options:
        key, value = option.split("=")
        chosen[key] = (
            value == "true"
            if known[key].type == "bool"
            else {"int": int, "float": float, "str": str}[known[key].type](value)
        )
    if chosen.get("scale") == "none":
        chosen.pop("bucket_size", None)
    return entry.load()(entry.settings(**chosen))


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
    if compressor.exact_bytes:
        assert data.numel() == compressor.message_bytes(x.numel())
    decoded = build(name).decode(parse(data.clone()))
    assert decoded.dtype == torch.float32 and decoded.shape == x.shape and bool(torch.isfinite(decoded).all())
    assert torch.equal(decoded, compressor.decode(parse(data)))
    if not x.any():
        assert not decoded.any()


@pytest.mark.parametrize("name", CASES)
def test_the_key_alone_decides_the_rounding(name):
    compressor, x = build(name), gradient(500)
    x = x.view(20, 25) if compressor.shaped else x
    first, again, other = (compressor.encode(x, Key(1, step, 0, "x")).to_bytes() for step in (5, 5, 6))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == claims(name).deterministic


def sparse(n: int, *indices: int) -> torch.Tensor:
    """Zero but for a few coordinates of different sizes."""
    x = torch.zeros(n)
    x[list(indices)] = torch.linspace(1.0, -2.0, len(indices))
    return x


UNBIASED_INPUTS = {
    "long": gradient(1000),
    "short": gradient(3),
    "one of seven": sparse(7, 4),
    "two of a hundred": sparse(100, 10, 77),
    "five of 300": sparse(300, 0, 1, 99, 200, 299),
    "constant": torch.full((65,), 0.3),
}


@pytest.mark.parametrize("name", [case for case in CASES if claims(case).unbiased])
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


@pytest.mark.parametrize("name", [case for case in CASES if claims(case).contractive])
@pytest.mark.parametrize("x", (INPUTS | UNBIASED_INPUTS).values(), ids=INPUTS | UNBIASED_INPUTS)
def test_contractive(name, x):
    compressor = build(name)
    for step in range(10):
        decoded = compressor.decode(compressor.encode(x, Key(1, step, 0, "x")))
        error, size = float((decoded.double() - x.double()).square().sum()), float(x.double().square().sum())
        assert error < size or error == size == 0


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_the_one_of_theory(name):
    """``tests.theory``: on average over the keys; a method without a formula there is held by its claims alone."""
    compressor, x, count = build(name), gradient(512), 300
    if isinstance(compressor, Eden):
        x = torch.randn(
            512, generator=torch.Generator().manual_seed(0)
        )  # a bucket that few coordinates make up is rounded otherwise
    keys = [Key(1, step, 0, "x") for step in range(count)]
    expected = [error for error in (expected_error(compressor, x, key) for key in keys) if error is not None]
    if not expected:
        return
    draws = torch.stack([compressor.decode(compressor.encode(x, key)) for key in keys]).double()
    errors = (draws - x.double()).square().sum(dim=1)
    away = errors - torch.tensor(expected, dtype=torch.float64)
    margin = 0.05 if isinstance(compressor, Eden) else 0.01  # a bucket of 128 is 2 % off
    assert abs(float(away.mean())) <= 4 * float(away.std()) / count**0.5 + margin * expected[0]


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
    assert torch.equal(
        fresh.encode(x, Key(1, 0, 0, "x")).to_bytes(), compressor.encode(x, Key(1, 0, 0, "x")).to_bytes()
    )


@pytest.mark.parametrize("name", CASES)
def test_the_global_generators_stay_untouched(name):
    before = torch.random.get_rng_state()
    compressor = build(name)
    compressor.decode(compressor.encode(gradient(100), Key(1, 0, 0, "x")))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("setting", ["bits", "bucket_size"])
def test_no_setting_is_cut_to_an_integer(name, setting):
    entry = METHODS[name]
    of = declared(entry.settings).get(setting)
    if of and of.type is int:
        with pytest.raises(ValueError, match=rf"^{setting}={of.default + 0.5}: must be (of type int|an integer)"):
            entry.load()(entry.settings(**{setting: of.default + 0.5}))


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_plain_data(name):
    settings = METHODS[name].settings()
    assert pickle.loads(pickle.dumps(settings)) == settings
