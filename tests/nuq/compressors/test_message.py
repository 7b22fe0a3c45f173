"""Messages and payloads as bytes: round trips, changed and missing bytes, other versions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.message import HEADER_BYTES, Message, parse, split_payload
from nuq.errors import MessageError


def message(body: bytes, n: int = 3) -> Message:
    return Message(
        b"TEST", n, torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(0, dtype=torch.uint8)
    )


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**63)), max_size=4))
def test_a_payload_is_its_messages_in_order(parts):
    messages = [message(body, n) for body, n in parts]
    payload = torch.cat([torch.empty(0, dtype=torch.uint8), *(m.to_bytes() for m in messages)])
    assert payload.numel() == sum(HEADER_BYTES + len(body) for body, _ in parts)
    assert [(m.tag, m.num_coordinates, bytes(m.body.numpy())) for m in split_payload(payload)] == [
        (b"TEST", n, body) for body, n in parts
    ]


@given(st.binary(min_size=1, max_size=30), st.data())
def test_one_changed_byte_is_an_error(body, data):
    payload = message(body).to_bytes()
    place = data.draw(st.integers(0, payload.numel() - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        parse(payload)


@given(st.binary(min_size=1, max_size=30), st.data())
def test_a_message_cut_short_is_an_error(body, data):
    payload = message(body).to_bytes()
    with pytest.raises(MessageError):
        parse(payload[: data.draw(st.integers(0, payload.numel() - 1))])


def test_another_version_names_both():
    payload = message(b"x").to_bytes()
    payload[2] = 9
    with pytest.raises(MessageError, match=r"version 9.*version 2"):
        parse(payload)
