"""Bit packing: round trips, the layout, damaged codes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.kernels import bit_packing

NUM_LEVELS = [2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 100, 128, 255, 256, 257, 511, 512]


@given(
    st.sampled_from(NUM_LEVELS).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.integers(0, k - 1), max_size=100)))
)
def test_round_trip(case):
    num_levels, codes = case
    for packing in (bit_packing.packing(num_levels), bit_packing.raw_packing(num_levels)):
        packed = bit_packing.pack_codes(torch.tensor(codes, dtype=torch.int32), packing)
        assert packed.numel() == bit_packing.packed_bytes(len(codes), packing)
        assert bit_packing.unpack_codes(packed, len(codes), num_levels, packing).tolist() == codes


@pytest.mark.parametrize("bits", range(1, 10))
def test_layout_is_a_little_endian_bit_stream(bits):
    codes = torch.randint(0, 1 << bits, (37,), generator=torch.Generator().manual_seed(bits))
    stream = sum(int(code) << (bits * i) for i, code in enumerate(codes))
    expected = stream.to_bytes(-(-37 * bits // 8), "little")
    assert bytes(bit_packing.pack_codes(codes, bits).numpy()) == expected


def test_ternary_takes_a_fifth_of_a_byte():
    assert bit_packing.packed_bytes(1000, bit_packing.packing(3)) == 200
    assert bit_packing.pack_codes(torch.tensor([2, 1, 0, 2, 1], dtype=torch.uint8), bit_packing.TERNARY).tolist() == [
        2 + 3 + 2 * 27 + 81
    ]


@pytest.mark.parametrize(
    ("packed", "num_codes", "num_levels"), [([255], 5, 3), ([0, 0], 5, 3), ([0xFF], 2, 5), ([], 1, 2)]
)
def test_damaged_codes_are_errors(packed, num_codes, num_levels):
    with pytest.raises(ValueError):
        bit_packing.unpack_codes(
            torch.tensor(packed, dtype=torch.uint8), num_codes, num_levels, bit_packing.packing(num_levels)
        )
