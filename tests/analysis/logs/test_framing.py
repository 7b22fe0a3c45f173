"""The positions of records: the same as the chain, followed record by record, gives."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.logs.framing import records
from tests.analysis.logs.event_files import mask, record


def one_by_one(content: bytes) -> tuple[list[tuple[int, int]], int]:
    found, position = [], 0
    while position + 16 <= len(content):
        head = content[position : position + 8]
        (length,) = struct.unpack("<Q", head)
        if position + 16 + length > len(content) or content[position + 8 : position + 12] != mask(head):
            break
        found.append((position, length))
        position += 16 + length
    return found, position


HEADER = struct.pack("<Q", 21) + mask(struct.pack("<Q", 21))  # what a header looks like, where there is none
bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", bytes(7), bytes(8), bytes(300), HEADER, HEADER + bytes(25), b"\x15" + HEADER[:11], bytes(9) + HEADER * 2]
    ),
    st.sampled_from([254, 255, 256, 257, 700]).map(lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256)),
)


@given(st.lists(bodies, max_size=14), st.data())
@settings(max_examples=200, deadline=None)
def test_records_are_those_of_the_plain_loop(contents: list[bytes], data: st.DataObject) -> None:
    content = b"".join(record(body) for body in contents)
    kind = data.draw(st.sampled_from(["whole", "cut", "flip", "append"]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "cut":
        content = content[:at]
    elif kind == "flip" and content:
        content = content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :]
    elif kind == "append":
        content += data.draw(st.one_of(st.binary(max_size=40), st.just(HEADER), st.just(bytes(64))))
    found = records(content)
    assert (list(zip(found.start.tolist(), found.length.tolist(), strict=True)), found.end) == one_by_one(content)


@given(st.binary(max_size=200))
@example(bytes(100))
@example(HEADER * 5)
@settings(deadline=None)
def test_senseless_bytes_hold_what_the_plain_loop_finds(content: bytes) -> None:
    found = records(content)
    assert (list(zip(found.start.tolist(), found.length.tolist(), strict=True)), found.end) == one_by_one(content)


@pytest.mark.parametrize(
    ("content", "wrong"), [(b"", False), (HEADER, False), (bytes(30), True), (record(b"abc") + bytes(16), True)]
)
def test_a_wrong_header_is_told_from_a_cut(content: bytes, wrong: bool) -> None:
    assert records(content).wrong is wrong


def test_most_records_take_no_step_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that lie where headers were seen are taken in spans: one search for a whole file."""
    content = b"".join(record(bytes([k % 251 + 1]) * (k % 40)) for k in range(500))
    searches, search = [], np.searchsorted
    monkeypatch.setattr(np, "searchsorted", lambda *args: searches.append(1) or search(*args))
    assert len(records(content).start) == 500
    assert len(searches) < 10
