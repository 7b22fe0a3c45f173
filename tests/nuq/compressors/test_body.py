"""Bodies of messages that got past the checksum: an error or numbers, never a crash."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.compressors.message import Message
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.registry import METHODS

CASES = {
    "packed": ("alq", {}),
    "ternary": ("trn", {"dither": "subtractive"}),
    "two scales": ("alq", {"norm": "quantile", "bits": 4}),
    "rotated and coded": ("ecdq", {"rotation": "hadamard"}),
    "huffman": ("nuqsgd", {"coding": "huffman"}),
    "seven levels": ("optimal", {"num_levels": 7}),
}
N = 300
X = torch.randn(N, generator=torch.Generator().manual_seed(0))
MESSAGES = {}
for case, (name, options) in CASES.items():
    method = METHODS[name]
    compressor = method.load()(method.settings(bucket_size=64, **options))
    MESSAGES[case] = (compressor, compressor.encode(X, Key(1, 0, 0, "x")))


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=60)
@given(
    indices=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    cut=st.floats(0, 1),
    n=st.sampled_from([N, N, N, 0, 299, 10**6, 2**62]),
)
def test_damaged_bodies_give_an_error_or_numbers(case, indices, cut, n):
    compressor, whole = MESSAGES[case]
    body = whole.body.clone()
    for place, byte in indices:
        body[min(int(place * body.numel()), body.numel() - 1)] = byte
    if cut > 0.5:
        body = body[: int(cut * body.numel())]
    try:
        decoded = compressor.decode(Message(whole.tag, n, body))
    except MessageError:
        return
    assert decoded.shape == (n,)


@pytest.mark.parametrize("case", CASES)
def test_every_cut_of_a_body_is_an_error(case):
    compressor, whole = MESSAGES[case]
    for length in range(whole.body.numel()):
        with pytest.raises(MessageError):
            compressor.decode(Message(whole.tag, N, whole.body[:length]))
    with pytest.raises(MessageError):
        compressor.decode(Message(whole.tag, N, torch.cat([whole.body, whole.body[:1]])))


def test_the_receiver_needs_the_message_alone():
    """A dithered, rotated message tells its random numbers by two words."""
    method = METHODS["ecdq"]
    message = MESSAGES["rotated and coded"][1]
    other = method.load()(method.settings(bits=5.0, bucket_size=7, coding="packed"))
    assert float((other.decode(message) - X).square().mean()) < 0.1


def test_the_codes_are_written_into_the_message():
    """No copy of the body: its bytes lie behind the header of what travels."""
    compressor, _ = MESSAGES["packed"]
    message = compressor.encode(X, Key(1, 0, 0, "x"))
    assert message.to_bytes().data_ptr() + 28 == message.body.data_ptr()
