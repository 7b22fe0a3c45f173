"""The sparse methods: what they send, how many bytes, what all workers share, and what they do with damaged bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from nuq.compressors.message import HEADER_BYTES, Message, parse
from nuq.errors import MessageError
from nuq.kernels import selection
from nuq.kernels.spec import Key
from nuq.registry import METHODS

KEY = Key(1, 2, 3, "x")


def make(name: str, **given: Any) -> Any:
    return METHODS[name].load()(METHODS[name].settings(**given))


def heavy(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp()


def through(compressor: Any, x: torch.Tensor, key: Key = KEY) -> torch.Tensor:
    return compressor.decode(parse(compressor.encode(x, key).to_bytes().clone()))


@pytest.mark.parametrize("ratio", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("size", [0, 100])
def test_topk_keeps_the_largest_and_drops_the_rest(ratio: float, size: int) -> None:
    x = heavy(1000)
    back = through(make("topk", ratio=ratio, bucket_size=size), x)
    for bucket, sent in zip(x.split(size or 1000), back.split(size or 1000), strict=True):
        k = max(1, round(ratio * len(bucket)))
        assert int((sent != 0).sum()) == k and torch.equal(sent[sent != 0], bucket[sent != 0])
        assert float(sent.abs()[sent != 0].min()) >= float(torch.where(sent == 0, bucket, 0.0).abs().max())


def test_randomk_draws_alike_on_all_workers_and_anew_each_step() -> None:
    method, x = make("randomk", ratio=0.1), torch.ones(500)
    indices = [through(method, x, Key(1, step, worker, "x")).nonzero() for step in (5, 6) for worker in (0, 1, 2)]
    assert torch.equal(indices[0], indices[1]) and torch.equal(indices[0], indices[2])
    assert not torch.equal(indices[0], indices[3]) and len(indices[0]) == 50
    assert not torch.equal(indices[0], through(method, x, Key(1, 5, 0, "y")).nonzero())


def test_randomk_sends_no_indices() -> None:
    message = make("randomk", ratio=0.01).encode(heavy(10_000), KEY)
    assert message.num_bytes == HEADER_BYTES + 5 + 16 + 4 * 100


@pytest.mark.parametrize("size", [0, 64])
def test_randomk_scales_by_the_share_that_travels(size: int) -> None:
    method = make("randomk", ratio=0.01, bucket_size=size)
    back = through(method, torch.ones(130))
    expected = [64.0, 64.0, 2.0] if size else [65.0, 65.0]  # k of a bucket is rounded up: 130 .01 = 2, 64 .01 = 1
    assert back[back != 0].tolist() == expected
    assert set(through(make("randomk", ratio=0.01, bucket_size=size, scaled=False), torch.ones(130)).tolist()) == {
        0.0,
        1.0,
    }


def test_thresholdv_is_about_magnitudes() -> None:
    method = make("thresholdv", threshold=0.5)
    assert not through(
        method, -torch.rand(100, generator=torch.Generator().manual_seed(0)) * 0.49
    ).any()  # GRACE's sends all of these
    x = torch.tensor([0.5, -0.5, 0.499, 2.0, -3.0])
    assert through(method, x).tolist() == [0.5, -0.5, 0.0, 2.0, -3.0]
    assert torch.equal(through(make("thresholdv", threshold=0.0), x), x)


def test_nonzero_loses_nothing() -> None:
    x = torch.where(torch.arange(3000) % 7 == 0, heavy(3000), 0.0)
    x[0], x[7] = 1e-45, -1e-45
    message = make("nonzero").encode(x, KEY)
    assert torch.equal(make("nonzero").decode(message), x) and message.num_bytes < 5 * 429


def test_adaptive_threshold_keeps_from_half_of_the_largest_on() -> None:
    x = torch.tensor([1.0, -2.0, 0.99, 0.0, 0.125, 0.25])
    assert through(make("adaptive_threshold"), x).tolist() == [1.0, -2.0, 0.0, 0.0, 0.0, 0.0]
    assert through(make("adaptive_threshold", bucket_size=4), x).tolist() == [1.0, -2.0, 0.0, 0.0, 0.125, 0.25]


@pytest.mark.parametrize("scale", [1e30, 1.0, 1e-20, 1e-42])
@pytest.mark.parametrize("name", ["topk", "thresholdv", "dgc"])
def test_half_precision_of_any_size(name: str, scale: float) -> None:
    given = {"thresholdv": {"threshold": 0.0}, "dgc": {"dense_1d": False, "ratio": 0.5}, "topk": {"ratio": 0.5}}[name]
    x = heavy(2000) * scale
    exact, rounded = through(make(name, **given), x).double(), through(make(name, **given, values="fp16"), x).double()
    tolerance = 2.0**-11 * exact.abs() + 2.0**-38 * float(x.abs().max()) + 2.0**-149
    assert bool(((exact - rounded).abs() <= tolerance).all()) and rounded.any()


def test_two_bits_are_a_sign_and_one_of_two_magnitudes() -> None:
    x = torch.tensor([0.0, 4.0, -1.0, 0.5, 2.0, -6.0, 1.0, 0.1])  # of the six largest the mean magnitude is 2.42
    decoded = through(make("topk", ratio=0.75, values="2bit"), x)
    assert decoded.tolist() == pytest.approx([0.0, 4.0, -1.0, 3.5 / 3, 3.5 / 3, -6.0, 3.5 / 3, 0.0])
    x = heavy(4096 * 50)
    method = make("topk", ratio=64 / 4096, bucket_size=4096, values="2bit")
    message = method.encode(x, KEY)
    assert 4 * x.numel() / message.num_bytes > 200  # SparseLoCo's: 12 bits an index would be 146
    assert message.num_bytes <= method.message_bytes(x.numel())
    exact = through(make("topk", ratio=64 / 4096, bucket_size=4096), x)
    rounded = method.decode(message)
    assert torch.equal(exact != 0, rounded != 0)
    assert float((exact - rounded).square().sum()) < 0.5 * float(exact.square().sum())
    for nothing in (torch.zeros(10), torch.empty(0)):
        assert not through(make("topk", values="2bit"), nothing).any()
    assert float(through(make("topk", ratio=1.0, values="2bit"), torch.full((5,), 3e38))[0]) == pytest.approx(3e38)


@pytest.mark.parametrize("values, size", [("fp32", 4), ("fp16", 2)])
def test_bytes(values: str, size: int) -> None:
    x, k, scale = heavy(10_000), 100, 4 if values == "fp16" else 0
    for form, indices in (("int32", 1 + 4 * k), ("bitmap", 1 + 1250)):
        method = make("topk", ratio=0.01, values=values, indices=form)
        assert method.exact_bytes
        assert (
            method.encode(x, KEY).num_bytes
            == method.message_bytes(10_000)
            == HEADER_BYTES + 5 + scale + size * k + indices
        )
    auto = make("topk", ratio=0.01, values=values)
    assert not auto.exact_bytes
    assert (
        auto.encode(x, KEY).num_bytes < HEADER_BYTES + 5 + scale + size * k + 1.1 * k + 4 <= auto.message_bytes(10_000)
    )


def test_all_of_them_need_no_indices() -> None:
    assert make("topk", ratio=1.0).encode(heavy(100), KEY).num_bytes == HEADER_BYTES + 5 + 400
    assert make("dgc").encode(heavy(100), KEY).num_bytes == HEADER_BYTES + 5 + 400


def test_dgc_sends_matrices_sparse_and_vectors_whole() -> None:
    method, x = make("dgc", ratio=0.01), heavy(10_000)
    assert method.shaped and torch.equal(through(method, x), x)
    kept = int((through(method, x.view(100, 100)) != 0).sum())
    assert 80 <= kept <= 100
    assert int((through(make("dgc", ratio=0.01, scope="model"), x) != 0).sum()) == kept
    assert int((through(make("dgc", ratio=0.01, dense_1d=False), x) != 0).sum()) == kept


def test_dgc_warms_up_stage_by_stage() -> None:
    method = make("dgc", warmup_every=10)
    steps = [0, 9, 10, 20, 39, 40, 10**6]
    assert [method.ratio_at(step) for step in steps] == [0.25, 0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001]
    assert make("dgc").ratio_at(0) == 0.001
    x, exact = heavy(10_000).view(100, 100), make("dgc", warmup_every=10, selection="exact")
    sent = [int((through(exact, x, Key(1, step, 0, "x")) != 0).sum()) for step in steps]
    assert sent == [2500, 2500, 625, 157, 40, 10, 10]
    assert all(exact.encode(x, Key(1, step, 0, "x")).num_bytes <= exact.message_bytes(10_000) for step in steps)


@pytest.mark.parametrize("name", ["topk", "randomk", "thresholdv", "adaptive_threshold", "dgc"])
def test_add_is_decode_and_add(name: str) -> None:
    x, total = heavy(5000), heavy(5000, 1)
    method = make(name)
    message = method.encode(x.view(50, 100), KEY)
    expected = total + method.decode(message)
    method.add(message, total)
    assert torch.equal(total, expected)


def test_the_library_and_pytorch_send_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from nuq import native as cpu

    x = heavy(5000).view(50, 100)
    cases = [
        ("topk", {}),
        ("topk", {"bucket_size": 64}),
        ("randomk", {}),
        ("adaptive_threshold", {}),
        ("dgc", {}),
        ("thresholdv", {}),
    ]
    native = [make(name, **given).encode(x, KEY).to_bytes() for name, given in cases]
    monkeypatch.setattr(cpu, "library", lambda: None)
    for (name, given), data in zip(cases, native, strict=True):
        assert torch.equal(make(name, **given).encode(x, KEY).to_bytes(), data)


def _keyed(k: int, n: int, size: int, each: int) -> Message:
    body = struct.pack("<BIIIII", 2, k, 7, 8, size, each) + bytes(4 * k)
    return Message(b"SPRS", n, torch.frombuffer(bytearray(body), dtype=torch.uint8))


@pytest.mark.parametrize(
    "k, n, size, each",
    [(2, 10, 0, 2), (2, 10, 10, 0), (2, 10, 10, 1), (2, 10, 10, 3), (4, 10, 5, 1), (9, 10, 4, 2), (0, 10, 10, 0)],
)
def test_keyed_indices_that_cannot_be(k: int, n: int, size: int, each: int) -> None:
    with pytest.raises(MessageError):
        make("randomk").decode(_keyed(k, n, size, each))


def test_other_damage() -> None:
    method = make("topk", ratio=0.1)
    message = method.encode(heavy(100), KEY)
    for at, value in ((0, 4), (0, 1), (0, 2), (1, 11), (1, 101), (4, 255)):
        body = message.body.clone()
        body[at] = value
        with pytest.raises(MessageError):
            method.decode(Message(b"SPRS", 100, body))
    for bad in (float("nan"), float("inf")):
        body = message.body.clone()
        body[5:9] = torch.tensor([bad]).view(torch.uint8)
        with pytest.raises(MessageError):
            method.decode(Message(b"SPRS", 100, body))


def test_num_kept_of_the_documented_ratios() -> None:
    assert [selection.num_kept(n, 0.001) for n in (1, 1000, 1001, 25_557_032)] == [1, 1, 2, 25_558]
