"""The CRC-32 of the library is zlib's, for every length, alignment, start and instruction set."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from nuq import native
from nuq.native.checksum import crc32

BYTES = np.random.default_rng(7).integers(0, 256, 1 << 16, dtype=np.uint8)


@pytest.fixture(params=native.instruction_sets() or ["without the library"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param in native.SETS:
        with native.using(request.param):
            yield request.param
    else:
        yield request.param


def _crc32(data: np.ndarray, start: int = 0) -> int:
    return crc32(data.ctypes.data, data.size, start)


def test_known_value(instruction_set: str) -> None:
    assert _crc32(np.frombuffer(b"123456789", np.uint8)) == 0xCBF43926  # the check value that catalogues of CRCs print


def test_every_small_length(instruction_set: str) -> None:
    for length in range(600):
        data = BYTES[length % 16 :][:length]
        assert _crc32(data, length * 0x01000193 & 0xFFFFFFFF) == zlib.crc32(
            data.tobytes(), length * 0x01000193 & 0xFFFFFFFF
        ), length


def test_every_alignment(instruction_set: str) -> None:
    for offset in range(70):
        for length in (127, 128, 129, 1000, 4096, 65000):
            assert _crc32(BYTES[offset : offset + length]) == zlib.crc32(BYTES[offset : offset + length].tobytes()), (
                offset,
                length,
            )


def test_pieces_make_the_whole(instruction_set: str) -> None:
    rng = np.random.default_rng(8)
    for _ in range(50):
        ends = np.sort(rng.integers(0, BYTES.size, 5)).tolist()
        value = 0
        for first, last in zip([0, *ends], [*ends, BYTES.size], strict=True):
            value = _crc32(BYTES[first:last], value)
        assert value == zlib.crc32(BYTES.tobytes())


def test_a_flipped_bit_shows(instruction_set: str) -> None:
    damaged = BYTES.copy()
    damaged[12345] ^= 4
    assert _crc32(damaged) != _crc32(BYTES)


def test_no_bytes() -> None:
    assert crc32(0, 0, 5) == 5
