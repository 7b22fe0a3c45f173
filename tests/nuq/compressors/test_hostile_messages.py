"""Messages that somebody made up, their checksums right: what they claim costs nothing, and all they raise is
MessageError.
"""

from __future__ import annotations

import struct

import pytest
import torch

from nuq.compressors.message import Message
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.testing.cases import build, parametrize
from nuq.testing.test_hostile_messages import *  # noqa: F403 - its tests
from nuq.testing.test_hostile_messages import CLAIMS, SMALL, decodes_or_names, little_memory, received
from tests.test_contract import CASES, SLOW
from tests.tiers import few

BAD = [struct.pack(form, float(name)) for form in ("<f", "<e") for name in ("inf", "nan")] + [
    struct.pack("<H", 0x7F80),
    b"\x7f",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    many_bodies = metafunc.function.__name__ == "test_bodies_that_nobody_wrote"
    parametrize(metafunc, CASES, slow=SLOW if many_bodies else ())


# Few bytes of these may stand for any number of coordinates: of the others a body holds what it claims, whatever the
# caller allows.
SHORT = (
    "topk",
    "randomk",
    "thresholdv",
    "adaptive_threshold",
    "dgc",
    "nonzero",
    "casq",
    "sketchml",
    "atomo atoms=entries",
    "bf16 coding",
    "fp16 coding",
)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(SHORT)])
def test_memory_waits_for_a_body_that_holds_what_it_claims(case):
    compressor = build(case)
    message = compressor.encode(SMALL["spread"], Key(1, 0, 0, "x"))
    compressor.decode(message)
    for claimed in CLAIMS.values():
        for body in (message.body, message.body[:40]):
            with little_memory(), pytest.raises(MessageError):
                compressor.decode(received(message, body, claimed), max_coordinates=claimed)


@pytest.mark.parametrize(
    ("rows", "columns", "n"), [(1, (1 << 32) - 1, 1), (1, 1 << 28, 300), (2, 1 << 26, (1 << 26) + 1)]
)
def test_a_matrix_of_atoms_is_no_larger_than_its_coordinates(rows: int, columns: int, n: int) -> None:
    """None of 0 atoms and 0 rows: a head of 20 bytes alone."""
    body = torch.frombuffer(bytearray(struct.pack("<BBBxIIII", 1, 0, 0, rows, columns, 0, 0)), dtype=torch.uint8)
    compressor = build("atomo svd_rank=1")
    with little_memory(), pytest.raises(MessageError):
        compressor.decode(received(compressor.encode(SMALL["spread"], Key(1, 0, 0, "x")), body, n), max_coordinates=n)


def test_a_caller_who_names_no_limit_lets_through_what_memory_can_bear():
    """2^24 coordinates, and 1024 for every byte."""
    compressor = build("nonzero")
    message = compressor.encode(SMALL["zeros"], Key(1, 0, 0, "x"))
    for n, size in ((1 << 24, 0), (40_000 << 10, 40_000)):
        body = torch.zeros(size, dtype=torch.uint8)
        Message(message.tag, n, body).check_count()
        with pytest.raises(MessageError, match=f"at most {n} "):
            Message(message.tag, n + 1, body).check_count()
    assert compressor.decode(received(message, message.body, 1000), max_coordinates=1000).shape == (1000,)
    with pytest.raises(MessageError, match="999"):
        compressor.decode(received(message, message.body, 1000), max_coordinates=999)


# What is damaged is said, wherever a format holds floating-point numbers; of the others every byte is a code or a power
# of two.
WITHOUT_FLOATS = ("natural",)


@few(("alq", "topk", "smaq"), "case", CASES)
def test_numbers_that_are_not_finite_are_damage(case):
    """Written over every place of the body."""
    compressor = build(case)
    said = set()
    for x in (SMALL["constant"][:40], SMALL["spread"][:40]):
        message = compressor.encode(x, Key(1, 0, 0, "x"))
        for at in range(message.body.numel()):
            for bad in BAD:
                body = message.body.clone()
                place = body[at : at + len(bad)]
                place.copy_(torch.frombuffer(bytearray(bad), dtype=torch.uint8)[: place.numel()])
                said.add(decodes_or_names(compressor, received(message, body, x.numel())))
    named = any("not finite" in sentence or "inf" in sentence or "nan" in sentence for sentence in said)
    assert named != (case.split()[0] in WITHOUT_FLOATS)
