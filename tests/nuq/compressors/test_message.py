"""Messages as bytes: round trips, changed and missing bytes, other versions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.message import HEADER_BYTES, Message, as_bytes, parse
from nuq.errors import MessageError


def message(body: bytes, n: int = 3) -> Message:
    return Message(
        b"TEST", n, torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(0, dtype=torch.uint8)
    )


@given(st.binary(max_size=40), st.integers(0, 2**63))
def test_a_message_comes_back(body, n):
    data = message(body, n).to_bytes()
    back = parse(data)
    assert data.numel() == HEADER_BYTES + len(body)
    assert (back.tag, back.num_coordinates, bytes(back.body.numpy())) == (b"TEST", n, body)
    with pytest.raises(MessageError):
        parse(torch.cat([data, data]))


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


@pytest.mark.parametrize(
    ("shape", "stride"), [((3, 1), (1, 20)), ((1, 1), (5, 20)), ((1,), (7,)), ((0,), (7,)), ((), ())]
)
def test_dimensions_of_one_row_may_have_any_stride(shape, stride):
    """PyTorch calls such tensors contiguous; singular vectors are some (ATOMO on a matrix of zeros)."""
    tensor = torch.arange(64.0).as_strided(shape, stride, 3)
    assert as_bytes(tensor).tolist() == list(tensor.numpy().tobytes())
