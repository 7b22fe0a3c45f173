"""A payload says what was encoded, or that it was damaged; shards tile a vector."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.frame import Frame
from nuq.compressors.message import Message
from nuq.errors import MessageError, NonFiniteError
from nuq.exchange.compressor_map import MethodState
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite, checked
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.feedback import Feedback
from tests.nuq.parts import tiled
from tests.tiers import few

KEY = Key(5, 3, 1)
LAYOUT = tiled({"a": 1, "b": 63, "c": 64, "d": 65}, Segment("e, f", 193, 7, exact=True))
SEGMENTS, TOTAL = LAYOUT.segments, LAYOUT.num_coordinates


def codec(name: str, *, feedback: bool = False, **given) -> PayloadCodec:
    schema = METHODS[name].settings
    legal = {item.name for item in dataclasses.fields(schema)}
    values = {"bucket_size": 128 if name in ("eden", "drive") else 16} | given
    chosen = schema(**{key: value for key, value in values.items() if key in legal})
    made = METHODS[name].load()(chosen)
    return PayloadCodec(ErrorFeedback(made, {own.name: own.size for own in SEGMENTS}) if feedback else made)


def vector(seed: int = 0, size: int = TOTAL) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def decoded(of: PayloadCodec, payload: torch.Tensor, layout=LAYOUT, size: int = TOTAL) -> torch.Tensor:
    total = torch.zeros(size)
    of.add(payload, layout, total)
    return total


CODECS = {
    **{name: codec(name) for name in METHODS},
    **{
        f"{name} {coding}": codec(name, coding=coding)
        for name in ("qsgd", "alq", "eden")
        for coding in ("huffman", "rans")
    },
    "sketchml, many cells": codec("sketchml", rows=16, columns_ratio=4.0, groups=1),
    "alq feedback": codec("alq", feedback=True),
    "ecdq feedback": codec("ecdq", feedback=True),
}


@pytest.mark.parametrize("name", CODECS)
def test_a_payload_has_the_size_it_says_and_adds_its_parts(name):
    of, x = CODECS[name], vector()
    payload = of.encode(x, LAYOUT, KEY)
    if of.size(LAYOUT) is not None:
        assert payload.numel() == of.size(LAYOUT)
    total = torch.ones(TOTAL)
    of.add(payload, LAYOUT, total)
    torch.testing.assert_close(total, decoded(of, payload) + 1)
    assert torch.equal(decoded(of, payload)[-7:], x[-7:])  # the exact part
    assert torch.equal(of.encode_or_mark(x, LAYOUT, KEY), payload) or "feedback" in name
    assert of.encode(x, FlatLayout(()), KEY).numel() == 0


@few(("alq", "topk", "casq"), "name", CODECS)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_payloads_raise(name, data):
    of = CODECS[name]
    payload = of.encode(vector(), LAYOUT, KEY)
    size = payload.numel()
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "swap"]))
    if kind == "flip":
        place, mask = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 255))
        damaged = payload.clone()
        damaged[place] ^= mask
    elif kind == "cut":
        damaged = payload[: data.draw(st.integers(0, size - 1))]
    elif kind == "longer":
        more = data.draw(st.binary(min_size=1, max_size=60))
        damaged = torch.cat([payload, torch.frombuffer(bytearray(more), dtype=torch.uint8)])
    else:
        low = data.draw(st.integers(0, size - 2))
        high = data.draw(st.integers(low + 1, size))
        damaged = payload.clone()
        damaged[low:high] = payload[low:high].flip(0)
        if torch.equal(damaged, payload):
            return
    with pytest.raises(MessageError):
        decoded(of, damaged)


@few(("alq", "topk", "casq"), "name", CODECS)
@settings(max_examples=40)
@given(data=st.data())
def test_bodies_that_nobody_encoded_raise_or_decode(name, data):
    """Their checksums fit: nothing but MessageError, and nothing written beside the vector."""
    of, size = CODECS[name], 65
    layout = tiled({"d": size})
    first = Frame.read(of.encode(vector(1, size), layout, KEY)).message(0)
    body = first.body.clone()
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, body.numel() - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, body.numel()))] if data.draw(st.booleans()) else body
    room = torch.full((size + 200,), 7.0)
    total = room[100 : 100 + size]
    with suppress(MessageError):
        of.add(Frame.of([Message(first.tag, size, body)], body.device).sealed(), layout, total)
    assert (room[:100] == 7).all() and (room[100 + size :] == 7).all()


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_raises(data):
    garbage = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    with pytest.raises(MessageError):
        decoded(CODECS["alq"], garbage)


def test_payloads_of_other_parts_raise():
    of = CODECS["qsgd"]
    payload = of.encode(vector(), LAYOUT, KEY)
    others = (SEGMENTS[:-1], (*SEGMENTS, Segment("g", 0, 3)), (dataclasses.replace(SEGMENTS[0], size=2), *SEGMENTS[1:]))
    for segments in (*others, ()):
        with pytest.raises(MessageError):
            decoded(of, payload, FlatLayout(segments))


@pytest.mark.parametrize("name", ["supersgd", "qsgd", "alq", "ecdq", "eden", "alq feedback"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_marker_names_the_worker_and_the_part(name, bad):
    of, x = CODECS[name], vector()
    x[70] = bad
    with pytest.raises(NonFiniteError):
        of.encode(x, LAYOUT, KEY)
    payload = of.encode_or_mark(x, LAYOUT, KEY)
    if of.size(LAYOUT) is not None:
        assert payload.numel() == of.size(LAYOUT)  # the others wait for as many bytes
    with pytest.raises(RemoteNonFinite, match="'c' on worker 1") as caught:
        decoded(of, payload)
    assert (caught.value.worker, caught.value.number) == (1, 2)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", CODECS)
def test_a_marker_is_as_long_as_the_shortest_payload(name, exact):
    of, layout = CODECS[name], FlatLayout((Segment("a", 0, 1, exact=exact),))
    payload = of.encode_or_mark(torch.full((1,), float("nan")), layout, KEY)
    assert of.size(layout) in (None, payload.numel())  # the others wait for as many bytes
    with pytest.raises(RemoteNonFinite) as caught:
        decoded(of, payload, layout, 1)
    assert (caught.value.worker, caught.value.number) == (1, 0)


def test_a_marker_of_no_worker_or_segment_is_damaged():
    for worker, number in ((-1, 0), (70_000, 0), (0, len(SEGMENTS))):
        message = Message(b"!NAN", number, torch.tensor([worker], dtype=torch.int32).view(torch.uint8))
        with pytest.raises(MessageError, match=f"worker {worker} and segment {number}"):
            decoded(codec("topk"), Frame.of([message], torch.device("cpu")).sealed())


@pytest.mark.parametrize("name", CODECS)
def test_a_length_is_believed_only_where_a_payload_can_have_it(name):
    of, x = CODECS[name], vector()
    for values in (x, x.sign(), torch.full((TOTAL,), 1e-30), torch.cat([torch.zeros(TOTAL - 1), torch.ones(1)])):
        length = of.encode(values, LAYOUT, KEY).numel()
        assert checked(length, of.most_bytes(LAYOUT), 1) == length
    for told in (-5, 1 << 40):
        with pytest.raises(MessageError, match=rf"rank 1 tells of a payload of {told} bytes: it can have 0 to"):
            checked(told, of.most_bytes(LAYOUT), 1)


# --- shards ---


@given(st.lists(st.integers(0, 300), max_size=6), st.integers(1, 6))
def test_shards_tile_the_parts(sizes, num_shards):
    layout = tiled({str(number): size for number, size in enumerate(sizes)})
    shards = layout.shards(num_shards)
    assert len(shards) == num_shards
    pieces = [own for shard in shards for own in shard.segments]
    assert [place for own in pieces for place in range(own.start, own.start + own.size)] == list(range(sum(sizes)))
    for own in pieces:
        whole = layout.segments[int(own.name)]
        assert own.first == (-1 if own.size == whole.size else own.start - whole.start)
    assert max(shard.num_coordinates for shard in shards) <= -(-sum(sizes) // num_shards) + 64
    for shard in shards:
        assert [own.key_name for own in shard.packed.segments] == [own.key_name for own in shard.segments]
        assert shard.packed.start == 0 and shard.packed.num_coordinates == shard.num_coordinates
    names = [own.key_name for own in pieces]
    assert len(set(names)) == len(names)  # random numbers of their own


def test_shards_are_cut_again_where_they_lie():
    whole = FlatLayout((Segment("w", 0, 1000), Segment("b", 1000, 200)))
    pieces = [own for shard in whole.shards(2) for piece in shard.shards(3) for own in piece.segments]
    assert [place for own in pieces for place in range(own.start, own.start + own.size)] == list(range(1200))
    assert all(
        own.first == (own.start if own.name == "w" else -1 if own.size == 200 else own.start - 1000) for own in pieces
    )


def test_pieces_and_wholes_have_other_random_numbers():
    of = codec("qsgd", bucket_size=64)
    x = torch.ones(128)
    shards = tiled({"a": 128}).shards(2)
    first, second = (Frame.read(of.encode(x, shard, KEY)).message(0).body for shard in shards)
    assert not torch.equal(first, second)


# --- memories ---


def test_a_memory_around_another_encoder_of_means_has_its_lengths():
    """Two stages may turn to float16, whose lengths are known where those of topk are not."""
    made = MethodState("topk", METHODS["topk"].settings(), 4)
    made.remember(Feedback(kind="error", both=True), {"a": 1}, num_workers=2)
    assert not PayloadCodec(made.mean_encoder).fixed
    made.encode_means_by(made.encoder_of_means(16))
    means = PayloadCodec(made.mean_encoder)
    assert means.fixed and means.size(tiled({"a": 1})) is not None
