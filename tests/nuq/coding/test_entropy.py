"""Entropy coding: round trips, the library against the reference, contexts, and damaged bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq import native
from nuq.coding import entropy, entropy_reference
from nuq.coding.entropy import CODERS, decode, encode, encoded_bound
from nuq.errors import MessageError
from nuq.native import entropy as entropy_cpu
from tests.nuq.skewed_codes import MILLION, skewed_codes
from tests.tiers import few

SETS = native.instruction_sets()
needs_library = pytest.mark.skipif(not SETS, reason="the library is not built, or is off")


@pytest.fixture(params=[*SETS, "reference"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every instruction set of the library, and the reference."""
    monkeypatch.setattr(entropy, "_kernels", lambda: entropy_reference if request.param == "reference" else entropy_cpu)
    if request.param == "reference":
        yield request.param
    else:
        with native.using(request.param):
            yield request.param


def _is_round_trip(codes: np.ndarray, num_symbols: int, coder: str) -> None:
    data = encode(codes, num_symbols, coder)
    assert data.dtype == np.uint8 and data.size <= encoded_bound(codes.size, num_symbols)
    back = decode(data, codes.size, num_symbols, coder)
    assert back.dtype == codes.dtype
    np.testing.assert_array_equal(back, codes)


# --- round trips --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CODERS),
    st.integers(1, 512),
    st.one_of(st.integers(0, 200), st.integers(0, 20000)),
    st.sampled_from([0.0, 0.02, 0.5, 3.0]),
    st.integers(0, 9),
)
def test_round_trip(coder: str, num_symbols: int, num_codes: int, decay: float, seed: int) -> None:
    _is_round_trip(skewed_codes(num_codes, num_symbols, decay, seed), num_symbols, coder)


@few(3, "coder", CODERS)
def test_lengths_around_lanes_and_pieces(kernels: str, coder: str) -> None:
    edges = [0, 8, 16, 32, 64, 992, 8192, 4 * 8192, 5 * 8192] + ([] if kernels == "reference" else [2 * 8192, 3 * 8192])
    for num_codes in sorted({max(0, edge + step) for edge, step in product(edges, (-1, 0, 1))}):
        _is_round_trip(skewed_codes(num_codes, 5, 1.0), 5, coder)


@few(11, ("coder", "num_symbols"), product(CODERS, [1, 2, 3, 4, 255, 256, 257, 512]))
def test_alphabets(kernels: str, coder: str, num_symbols: int) -> None:
    for symbol in {0, num_symbols // 2, num_symbols - 1}:  # nothing but one symbol
        codes = np.full(1000, symbol, dtype=np.uint8 if num_symbols <= 256 else np.uint16)
        _is_round_trip(codes, num_symbols, coder)
        _is_round_trip(codes[:1], num_symbols, coder)
        assert encode(codes, num_symbols, coder).size <= 3
    for decay in (0.0, 0.01, 0.1, 5.0):
        _is_round_trip(skewed_codes(9000, num_symbols, decay), num_symbols, coder)


def test_several_chunks_with_a_short_last_one(kernels: str) -> None:
    codes = skewed_codes(700_001, 40, 0.1)
    data = encode(codes, 40, "rans")
    chunks = int.from_bytes(data[2:4].tobytes(), "little")
    assert data[0] == entropy.RANS and chunks > 2 and codes.size % chunks
    np.testing.assert_array_equal(decode(data, codes.size, 40, "rans"), codes)


def test_wide_codes_of_a_small_alphabet() -> None:
    codes = skewed_codes(5000, 8, 1.0)
    for coder in CODERS:
        assert encode(codes.astype(np.uint16), 8, coder).tobytes() == encode(codes, 8, coder).tobytes()
        assert encode(np.repeat(codes, 2)[::2], 8, coder).tobytes() == encode(codes, 8, coder).tobytes()  # strided


@pytest.mark.parametrize("num_symbols", [2, 3, 4, 5, 8, 17, 200, 256, 300, 512])
def test_raw_is_the_packing_of_the_messages(kernels: str, num_symbols: int) -> None:
    codes = np.random.default_rng(3).integers(0, num_symbols, 43)  # too few for a table
    data = encode(codes.astype(np.uint16), num_symbols, "rans")
    assert data[0] == entropy.RAW
    if num_symbols == 3:
        digits = np.append(codes, [0, 0]).reshape(-1, 5)
        assert data[1:].tolist() == (digits * [1, 3, 9, 27, 81]).sum(axis=1).tolist()
    else:
        bits = (num_symbols - 1).bit_length()
        stream = sum(code << (bits * place) for place, code in enumerate(codes.tolist()))
        assert int.from_bytes(data[1:].tobytes(), "little") == stream
    np.testing.assert_array_equal(decode(data, 43, num_symbols, "rans"), codes)


def test_long_raw(kernels: str) -> None:
    for num_symbols in (2, 3, 8, 512):
        codes = (
            np.random.default_rng(4)
            .integers(0, num_symbols, 5 * 2**16 + 7)
            .astype(np.uint16 if num_symbols > 256 else np.uint8)
        )
        data = encode(codes, num_symbols, "huffman")
        assert data[0] == entropy.RAW
        np.testing.assert_array_equal(decode(data, codes.size, num_symbols, "huffman"), codes)
    with pytest.raises(MessageError):
        decode(np.array([entropy.RAW, 243], dtype=np.uint8), 5, 3, "rans")
    with pytest.raises(MessageError, match="6 symbols"):
        decode(np.array([entropy.RAW, 6], dtype=np.uint8), 1, 6, "rans")


# --- the library against the reference -----------------------------------------------------------------------------


@needs_library
@few(1, "coder", CODERS)
@pytest.mark.parametrize(
    ("num_codes", "num_symbols", "decay"),
    [
        (31, 4, 1.0),
        (5000, 3, 1.0),
        (300_000, 8, 0.5),
        (300_000, 2, 4.0),
        (300_001, 33, 0.1),
        (300_001, 256, 0.05),
        (300_001, 511, 0.03),
    ],
)
def test_same_bytes(
    monkeypatch: pytest.MonkeyPatch, num_codes: int, num_symbols: int, decay: float, coder: str
) -> None:
    codes = skewed_codes(num_codes, num_symbols, decay)
    contexts = (np.arange(num_codes) % 3).astype(np.uint8) if coder == "rans" else None
    for given_contexts in (None, contexts):
        with monkeypatch.context() as patch:
            patch.setattr(entropy, "_kernels", lambda: entropy_reference)
            expected = encode(codes, num_symbols, coder, given_contexts, 3)
        for name in SETS:
            with native.using(name):
                for threads in (0, 1, 3):
                    assert (
                        encode(codes, num_symbols, coder, given_contexts, 3, threads).tobytes() == expected.tobytes()
                    ), name
                    back = decode(expected, num_codes, num_symbols, coder, given_contexts, 3, threads)
                    np.testing.assert_array_equal(back, codes)


def test_known_bytes() -> None:
    """The format itself: a change of it must be one on purpose."""
    codes = np.array([0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0] * 4, dtype=np.uint8)
    assert encode(codes, 4, "huffman").tobytes().hex() == "02213332029c8c002723c0c90870"
    assert encode(np.tile(codes, 4), 4, "rans").tobytes().hex() == (
        "030c01000c4005900009007dd048673c8450f3d20bbf31595e0b7a4bc02113a9ab09d17a8515d2f814a2a0540b965ba5a1007a"
    )


# --- contexts -----------------------------------------------------------------------------------------------------


def _dithered(num_codes: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of a normal variable under subtractive dither (error 1/12 of its variance), and 16 bins of the dither."""
    rng = np.random.default_rng(11)
    dither = rng.random(num_codes)
    codes = np.clip(np.floor(rng.standard_normal(num_codes) + dither) + 8, 0, 15).astype(np.uint8)
    return codes, (dither * 16).astype(np.uint8)


def test_contexts_gain_what_the_dither_tells(kernels: str) -> None:
    num_codes = MILLION // (8 if kernels == "reference" else 1)
    codes, contexts = _dithered(num_codes)
    plain, told = encode(codes, 16, "rans"), encode(codes, 16, "rans", contexts)
    bits = 8 * plain.size / num_codes, 8 * told.size / num_codes
    assert (
        bits[0] == pytest.approx(2.17, abs=0.02)
        and bits[1] == pytest.approx(2.11, abs=0.015)
        and bits[0] - bits[1] > 0.04
    )
    np.testing.assert_array_equal(decode(told, num_codes, 16, "rans", contexts), codes)
    with pytest.raises(MessageError):
        decode(told, num_codes, 16, "rans", np.roll(contexts, 1))
    with pytest.raises(MessageError):
        decode(told, num_codes, 16, "rans")


def test_contexts_that_never_occur_or_know_the_code(kernels: str) -> None:
    codes = skewed_codes(3000, 8, 0.5)
    for contexts in (codes, np.full(3000, 5, dtype=np.uint8), (codes > 2).astype(np.uint8) * 15):
        data = encode(codes, 8, "rans", contexts)
        np.testing.assert_array_equal(decode(data, 3000, 8, "rans", contexts), codes)
    with pytest.raises(MessageError):
        decode(data, 3000, 8, "rans", np.full(3000, 3, dtype=np.uint8))


# --- damage -------------------------------------------------------------------------------------------------------


def _never_crashes(data: np.ndarray, codes: np.ndarray, num_symbols: int, coder: str) -> bool:
    """Whether decoding says that the bytes are damaged; if not, the codes are at least codes."""
    try:
        back = decode(data, codes.size, num_symbols, coder)
    except ValueError as error:
        assert str(error)
        return True
    assert back.size == codes.size and int(back.max()) < num_symbols
    return False


@pytest.mark.slow
@pytest.mark.parametrize("coder", CODERS)
def test_cut_short_or_too_long(kernels: str, coder: str) -> None:
    codes = skewed_codes(3000, 9, 0.4)
    data = encode(codes, 9, coder)
    for size in [*range(min(60, data.size)), *range(60, data.size, 41)]:
        assert _never_crashes(data[:size], codes, 9, coder), size
    for extra in (1, 2, 4):
        assert _never_crashes(np.append(data, np.zeros(extra, dtype=np.uint8)), codes, 9, coder)
    for num_codes in (0, 1, 2999, 3001, 10**5):
        found = _never_crashes(data, np.zeros(num_codes, dtype=np.uint8), 9, coder)
        assert found or (
            coder == "huffman" and abs(num_codes - 3000) == 1
        )  # one code more or less can fit Huffman's last byte


@few(2, "coder", CODERS)
def test_flipped_bits_and_random_bytes(kernels: str, coder: str) -> None:
    rng = np.random.default_rng(17)
    codes = skewed_codes(200 if kernels == "reference" else 2000, 9, 0.4)
    data = encode(codes, 9, coder)
    found = 0
    for trial in range(300):
        damaged = data.copy()
        place = rng.integers(0, 24 if trial % 2 else data.size)  # every other time in the tables
        damaged[place] ^= np.uint8(1 << rng.integers(0, 8))
        found += _never_crashes(damaged, codes, 9, coder)
        rubbish = rng.integers(0, 256, rng.integers(1, 400), dtype=np.uint8)
        rubbish[0] = entropy.HUFFMAN if coder == "huffman" else entropy.RANS
        _never_crashes(rubbish, codes, 9, coder)
        rubbish[: min(20, rubbish.size)] = data[:20][: rubbish.size]  # a good table before rubbish
        _never_crashes(rubbish, codes, 9, coder)
    if coder == "rans":
        assert found == 300
    else:  # has hardly any redundancy outside its table: most is left to the message's CRC
        assert found > 50


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80), st.integers(0, 300), st.integers(1, 512), st.sampled_from(CODERS))
def test_any_bytes(data: bytes, num_codes: int, num_symbols: int, coder: str) -> None:
    try:
        codes = decode(np.frombuffer(data, dtype=np.uint8), num_codes, num_symbols, coder)
    except ValueError:
        return
    assert codes.size == num_codes and (not num_codes or int(codes.max()) < num_symbols)


# --- errors -------------------------------------------------------------------------------------------------------
