"""Messages that somebody made up, their checksums right: what they claim costs nothing, and all they raise is
MessageError.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from nuq.compressors.compressor import Compressor
from nuq.compressors.message import Message, parse
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.testing.cases import build, gradient

ROOM = 64 << 20  # bytes that a decoder may ask for
CLAIMS = {"2^27": 1 << 27, "2^31": 1 << 31, "2^40": 1 << 40, "2^63-1": (1 << 63) - 1, "2^64-1": (1 << 64) - 1}
SMALL = {
    "zeros": torch.zeros(300, dtype=torch.float32, device="cpu"),
    "constant": torch.full((300,), 2.5, dtype=torch.float32, device="cpu"),
    "spread": gradient(300),
}


@contextmanager
def little_memory() -> Iterator[None]:
    """The address space ends ROOM beyond what the process has: whoever asks for more at once gets an error of another
    kind.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def received(message: Message, body: torch.Tensor, n: int) -> Message:
    """The message that a receiver reads of the tag, this body and this count."""
    return parse(Message(message.tag, n, body).to_bytes())


@pytest.mark.parametrize("x", SMALL.values(), ids=SMALL)
def test_a_claim_of_many_coordinates_is_an_error_and_costs_nothing(name, x):
    """A message that claims more coordinates than its body holds is a MessageError, and takes no memory."""
    compressor = build(name)
    message = compressor.encode(x, Key(1, 0, 0, "x"))
    compressor.decode(message)  # so that all that is loaded once is there
    for claimed in CLAIMS.values():
        for body in (message.body, message.body[:0], message.body[:1], message.body[:16]):
            with little_memory(), pytest.raises(MessageError):
                compressor.decode(received(message, body, claimed))
            with little_memory(), pytest.raises(MessageError):
                compressor.decode(received(message, body, claimed), max_coordinates=x.numel())


def test_a_total_of_another_size_is_an_error(name):
    """A method with ``add`` refuses a total of another size than the message."""
    compressor = build(name)
    if hasattr(compressor, "add"):
        message = compressor.encode(SMALL["spread"], Key(1, 0, 0, "x"))
        for size in (1, 299, 301):
            with pytest.raises(MessageError, match=f"300 coordinates where {size} are expected"):
                compressor.add(message, torch.zeros(size, dtype=torch.float32, device="cpu"))


def decodes_or_names(compressor: Compressor, message: Message) -> str:
    """The sentence of the MessageError; nothing where so many finite numbers came."""
    try:
        with little_memory():
            decoded = compressor.decode(message)
    except MessageError as error:
        return str(error)
    assert decoded.shape == (message.num_coordinates,)
    assert bool(torch.isfinite(decoded).all())
    return ""


def test_bodies_that_nobody_wrote(name):
    """Cut short or with bytes changed: MessageError, or so many finite numbers."""
    compressor, generator = build(name), torch.Generator().manual_seed(0)
    messages = [compressor.encode(x, Key(1, 0, 0, "x")) for x in SMALL.values()]

    def below(bound: int) -> int:
        return int(torch.randint(bound, (1,), generator=generator, dtype=torch.int64, device="cpu"))

    for turn in range(240):
        message = messages[turn % len(messages)]
        body = message.body.clone()
        for _ in range(below(4)):
            at = below(min(body.numel(), 40) if turn % 2 else body.numel())  # heads are short beside codes
            body[at] = below(256)
        body = body[: below(body.numel() + 1)] if below(4) == 0 else body
        decodes_or_names(compressor, received(message, body, message.num_coordinates if turn % 5 else below(1 << 22)))
