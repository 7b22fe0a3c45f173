"""A memory in one pass of C++ gives the bits of one operation of PyTorch after another, with every instruction set."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nuq import native
from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import AveragedErrors, ErrorFeedback, Scaled
from nuq.compressors.message import Message, parse
from nuq.compressors.quantizer import Quantizer
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.registry import METHODS
from tests.nuq.kernels.test_cpu import KINDS, SIZES, vector_of
from tests.tiers import few

pytestmark = pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")

METHOD = {"qsgdinf": "bits", "alq": "bits", "nuqsgd": "bits", "trn": ""}


def method(name: str, bits: int, bucket_size: int) -> Any:
    sizes: dict[str, Any] = {METHOD[name]: bits} if METHOD[name] else {}
    return METHODS[name].load()(METHODS[name].settings(bucket_size=bucket_size, **sizes))


def bits_of(values: Tensor) -> list[int]:
    return values.view(torch.int32).tolist()


def step_by_step(inner: Compressor, vector: Tensor, kept: Tensor, weight: float, key: Key) -> tuple[Tensor, Tensor]:
    """The decoded message and the memory after it."""
    wanted = vector + kept
    decoded = inner.decode(inner.encode(wanted, key))
    square = float(torch.dot(decoded, decoded))
    product = float(torch.dot(wanted, decoded))
    if not 1e-16 < square < 1e36:
        square = float(torch.dot(decoded.double(), decoded.double()))
    if not 1e-16 < abs(product) < 1e36:
        product = float(torch.dot(wanted.double(), decoded.double()))
    sent = decoded.mul_(min(max(product / square if square > 0 else 0.0, 0.0), 1.0))
    return sent, torch.lerp(kept, wanted - sent, weight)


@settings(max_examples=60, deadline=None)
@given(
    isa=st.sampled_from(native.instruction_sets() or ["none"]),
    name=st.sampled_from([*METHOD]),
    bits=st.integers(2, 8),
    size=SIZES.filter(bool),
    bucket_size=st.sampled_from([1, 3, 64, 100, 128, 1024]),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    weight=st.sampled_from([0.01, 0.2, 0.5, 0.7, 1.0]),
    may_undo=st.booleans(),
)
def test_the_memory_and_what_is_added(isa, name, bits, size, bucket_size, kind, dtype, weight, may_undo):
    inner = method(name, bits, bucket_size)
    of = AveragedErrors(inner, {"p": size}, weight=weight)
    of.may_undo = may_undo
    kept, total = torch.zeros(size), vector_of("normal", size, torch.float32, seed=3)
    with native.using(isa):
        for step in range(2):
            key = Key(1, step, 0).of("p")
            vector = vector_of(kind, size, dtype, seed=step)
            before = kept
            sent, kept = step_by_step(inner, vector, kept, weight, key)
            message = of.encode(vector, key)
            assert bits_of(of.memories[0]["residuals"]["p"]) == bits_of(kept)
            assert bits_of(of.decode(message)) == bits_of(sent)
            added = total.clone()
            of.add(message, added)
            total += sent
            assert bits_of(added) == bits_of(total)
            if may_undo and step:
                of.settle(undo=True)
                assert bits_of(of.memories[0]["residuals"]["p"]) == bits_of(before)
            of.settle()


@few(
    5,
    ("bucket_size", "name"),
    product(
        [3, 64, 100, 131072, 200_000, 1 << 30],
        ["qsgdinf", "alq", "alq norm=linf", "alq norm=quantile", "nuqsgd", "ecdq"],
    ),
)
def test_long_vectors_on_any_number_of_threads(name, bucket_size, monkeypatch):
    """Levels that were fitted and travel, workers that round together, and buckets that are encoded in parts."""
    entry, *norms = name.split()
    given = dict(word.split("=") for word in norms) | {"bucket_size": bucket_size}
    given |= {"coding": "packed", "dither": "none"} if entry == "ecdq" else {"rounding": "correlated", "bits": 4}
    inner: Any = METHODS[entry].load()(METHODS[entry].settings(**given))
    size, key = 150_001, Key(1, 0, 2, workers=4).of("p")
    x, kept = (vector_of("normal", size, torch.float32, seed=seed) for seed in (1, 2))
    if entry == "alq":
        seen = Statistics.empty(350)
        inner.observe(x, key, seen)
        inner.update(seen)

    def sent_and_kept() -> tuple[Tensor, Tensor]:
        of = AveragedErrors(inner, {"p": size}, weight=0.2)
        of.place(key, x)["residuals"].copy_(kept)
        return of.encode(x, key).body, of.memories[2]["residuals"]["p"]

    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found = sent_and_kept()
            with monkeypatch.context() as patch:
                patch.setattr(Quantizer, "encode_sum", Compressor.encode_sum)
                patch.setattr(AveragedErrors, "keep", ErrorFeedback.keep)
                assert all(map(torch.equal, found, sent_and_kept()))
    finally:
        torch.set_num_threads(before)


def test_other_defaults_of_pytorch_change_nothing():
    of = AveragedErrors(method("qsgdinf", 4, 128), {"p": 1000}, weight=0.2)
    try:
        torch.set_default_dtype(torch.bfloat16)
        of.encode(torch.randn(1000, dtype=torch.float32), Key(1, 0, 0).of("p"))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nothing_is_remembered_of_what_is_not_finite(value):
    of = AveragedErrors(method("qsgdinf", 4, 128), {"p": 1000}, weight=0.2)
    of.encode(torch.randn(1000), Key(1, 0, 0).of("p"))
    before = of.memories[0]["residuals"]["p"].clone()
    bad = torch.randn(1000)
    bad[999] = value
    with pytest.raises(NonFiniteError):
        of.encode(bad, Key(1, 1, 0).of("p"))
    assert torch.equal(of.memories[0]["residuals"]["p"], before)


def test_what_overflows_is_told_and_not_added():
    """Levels times scales below the largest number, whose sum is beyond it, go the slow way."""
    of = Scaled(method("qsgdinf", 4, 128), {})
    top = torch.finfo(torch.float32).max
    message = of.encode(torch.full((300,), top), Key(1, 0, 0))
    total = torch.zeros(300)
    of.add(message, total)
    assert torch.equal(total, of.decode(message))


@pytest.mark.parametrize("at", [4, 20, 40, 300])
def test_a_message_damaged_on_the_way_is_not_added(at):
    of = Scaled(method("qsgdinf", 4, 128), {})
    message = of.encode(torch.randn(700), Key(1, 0, 0))
    message.body[at] ^= 0x55
    total = torch.ones(700)
    with pytest.raises(MessageError):
        of.add(message, total)
    assert torch.equal(total, torch.ones(700))


def test_a_message_of_another_format_is_added_the_slow_way():
    sender, receiver = Scaled(method("qsgdinf", 6, 100), {}), Scaled(method("qsgdinf", 4, 128), {})
    message = sender.encode(torch.randn(700), Key(1, 0, 0))
    total = torch.zeros(700)
    receiver.add(message, total)
    assert torch.equal(total, sender.decode(message))
    inner = parse(message.body[4:])
    moved = torch.empty(inner.body.numel() + 1, dtype=torch.uint8)[1:].copy_(inner.body)  # at no multiple of 4 bytes
    unaligned = Message(inner.tag, inner.num_coordinates, moved)
    again = torch.zeros(700)
    sender.method.add_scaled(unaligned, 1.0, again)
    assert torch.equal(again, sender.method.decode(inner))
    with pytest.raises(MessageError, match="699"):
        sender.method.add_scaled(inner, 1.0, torch.zeros(699))
