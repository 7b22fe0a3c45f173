"""Frames as bytes: round trips, changed and missing bytes, tables that lie."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.frame import Frame
from nuq.compressors.message import Message
from nuq.errors import MessageError
from nuq.kernels.spec import Key, words_of_names
from nuq.native.checksum import crc32
from tests.nuq.parts import frame_bytes

CPU = torch.device("cpu")
BODIES = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**32 - 1)), max_size=5)


def tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def framed(bodies: list[tuple[bytes, int]]) -> torch.Tensor:
    messages = [Message(b"T%03d" % number, n, tensor(body)) for number, (body, n) in enumerate(bodies)]
    return Frame.of(messages, CPU).sealed()


@given(BODIES)
def test_a_frame_is_its_messages_in_order(bodies: list[tuple[bytes, int]]) -> None:
    data = framed(bodies)
    assert data.numel() == frame_bytes(*(len(body) for body, _ in bodies))
    read = Frame.read(data)
    found = [read.message(number) for number in range(read.num_messages)]
    assert [(m.tag, m.num_coordinates, bytes(m.body.numpy())) for m in found] == [
        (b"T%03d" % number, n, body) for number, (body, n) in enumerate(bodies)
    ]
    moved = torch.cat([torch.zeros(1, dtype=torch.uint8), data])[1:]  # not where a float may lie
    assert bytes(Frame.read(moved).data.numpy()) == bytes(data.numpy())


@given(BODIES, st.data())
def test_a_changed_byte_is_an_error(bodies: list[tuple[bytes, int]], data: st.DataObject) -> None:
    damaged = framed(bodies)
    damaged[data.draw(st.integers(0, damaged.numel() - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        Frame.read(damaged)


@given(BODIES, st.data())
def test_a_frame_cut_short_is_an_error(bodies: list[tuple[bytes, int]], data: st.DataObject) -> None:
    whole = framed(bodies)
    with pytest.raises(MessageError):
        Frame.read(whole[: data.draw(st.integers(0, whole.numel() - 1))])


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.integers(0, 80))
def test_tables_that_lie_raise_or_hold(ends: list[int], count: int, more: int) -> None:
    """Whatever a table with a fitting checksum claims: MessageError, or bodies inside the frame."""
    entries = b"".join(struct.pack("<4sIQ", b"LIES", 7, end) for end in ends)
    body = struct.pack("<I", count if more % 2 else len(ends)) + entries + bytes(more)
    checked = tensor(body)
    data = tensor(b"NF" + bytes([1, 0]) + struct.pack("<I", crc32(checked.data_ptr(), checked.numel())) + body)
    try:
        frame = Frame.read(data)
    except MessageError:
        return
    for number in range(frame.num_messages):
        assert 0 <= frame.starts[number] <= frame.ends[number] <= data.numel()


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31),
    st.integers(0, 99),
    st.lists(st.text(max_size=9), max_size=5),
    st.sampled_from(["", "mean", "a/b"]),
)
def test_words_of_many_names_are_those_of_each(
    seed: int, step: int, worker: int, names: list[str], prefix: str
) -> None:
    key, known = Key(seed, step, worker, prefix), {}
    for _ in range(2):
        words = words_of_names(key, names, known)
        assert [tuple(row) for row in words.tolist()] == [key.of(name).words() for name in names]
