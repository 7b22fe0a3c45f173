"""Entropy coding's size, against the entropy and against optimal prefix codes, and the tables behind it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.coding import entropy, entropy_tables
from nuq.coding.entropy import decode, encode
from tests.nuq.skewed_codes import MILLION, skewed_codes
from tests.tiers import few


def _entropy_bits(codes: np.ndarray) -> float:
    counts = np.unique(codes, return_counts=True)[1]
    return float(-np.sum(counts * np.log2(counts / codes.size)))


DECAYS = {
    4: (0.3, 1.0, 3.0),
    8: (0.3, 1.0, 3.0),
    16: (0.2, 1.0),
    64: (0.03, 0.3),
    255: (0.01, 0.1),
    511: (0.005, 0.05, 0.5),
}


@few(4, ("num_symbols", "decay"), [(symbols, decay) for symbols, decays in DECAYS.items() for decay in decays])
def test_rans_is_within_2_percent_of_the_entropy(num_symbols: int, decay: float) -> None:
    codes = skewed_codes(MILLION, num_symbols, decay)
    data = encode(codes, num_symbols, "rans")
    assert data[0] == entropy.RANS
    assert _entropy_bits(codes) < 8 * data.size < 1.004 * _entropy_bits(codes)  # .4 %, tables and all
    np.testing.assert_array_equal(decode(data, MILLION, num_symbols, "rans"), codes)


def test_rans_on_skewed_codes() -> None:
    for num_symbols in (4, 511):
        rng = np.random.default_rng(num_symbols)
        codes = np.where(rng.random(MILLION) < 0.95, 7 % num_symbols, rng.integers(0, num_symbols, MILLION)).astype(
            np.uint16
        )
        assert 8 * encode(codes, num_symbols, "rans").size < 1.02 * _entropy_bits(codes)


@pytest.mark.parametrize(("num_symbols", "decay"), [(8, 0.7), (16, 0.2), (64, 0.03), (255, 0.01), (511, 0.05)])
def test_huffman_is_within_2_percent_where_a_prefix_code_can_be(num_symbols: int, decay: float) -> None:
    codes = skewed_codes(MILLION, num_symbols, decay)
    data = encode(codes, num_symbols, "huffman")
    assert data[0] == entropy.HUFFMAN
    assert 8 * data.size < 1.02 * _entropy_bits(codes)


def _optimal_prefix_bits(counts: np.ndarray) -> int:
    """Huffman's construction, without a limit on lengths: every merge costs its weight."""
    weights, total = sorted(counts[counts > 0].tolist()), 0
    while len(weights) > 1:
        merged = weights[0] + weights[1]
        total += merged
        weights = sorted([*weights[2:], merged])
    return total


@pytest.mark.parametrize(("num_symbols", "decay"), [(2, 1.0), (4, 3.0), (8, 1.0), (64, 0.3), (511, 0.05), (511, 0.5)])
def test_huffman_is_within_2_percent_of_the_optimal_prefix_code(num_symbols: int, decay: float) -> None:
    codes = skewed_codes(MILLION, num_symbols, decay)
    data = encode(codes, num_symbols, "huffman")
    assert 8 * data.size < 1.02 * _optimal_prefix_bits(np.bincount(codes)) or data[0] == entropy.RAW


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=512), st.integers(0, 40))
def test_tables(counts: list[int], shift: int) -> None:
    array = np.array(counts, dtype=np.int64) << (shift // 4)
    if np.count_nonzero(array) < 2:
        return
    for bits in (12, 14):
        frequencies = entropy_tables.quantised(array, bits)
        assert frequencies.sum() == 1 << bits and ((frequencies > 0) == (array > 0)).all()
        written = entropy_tables.write_table(frequencies, mantissas=True)
        read, size = entropy_tables.read_frequencies(np.frombuffer(written + b"x", np.uint8), len(counts), bits)
        assert size == len(written) and (read == frequencies).all()
    lengths = entropy_tables.huffman_lengths(array)
    assert ((lengths > 0) == (array > 0)).all() and lengths.max() <= entropy_tables.HUFFMAN_BITS
    written = entropy_tables.write_table(lengths, mantissas=False)
    read, size = entropy_tables.read_lengths(
        np.frombuffer(written + b"x", np.uint8), len(counts)
    )  # and checks Kraft's sum
    assert size == len(written) and (read == lengths).all()


def test_lengths_are_optimal_where_the_limit_does_not_bind() -> None:
    rng = np.random.default_rng(5)
    for num_symbols in (2, 3, 7, 30, 300):
        counts = rng.integers(50, 1000, num_symbols)
        assert np.sum(counts * entropy_tables.huffman_lengths(counts)) == _optimal_prefix_bits(counts)


def test_lengths_are_limited() -> None:
    fibonacci = np.array([1, 1] + [0] * 23)
    for k in range(2, 25):
        fibonacci[k] = fibonacci[k - 1] + fibonacci[k - 2]  # Huffman's own code would take 24 bits
    lengths = entropy_tables.huffman_lengths(fibonacci)
    assert lengths.max() == 12
    assert np.sum(fibonacci * lengths) < 1.005 * _optimal_prefix_bits(fibonacci)


def test_logarithms_are_exact_to_their_last_bit() -> None:
    exact = np.log2(np.arange(1, 1 + (1 << 14))) * 65536
    assert np.abs(entropy_tables.log2_table()[1:] - exact + 0.5).max() < 0.51 + 16 / 65536
