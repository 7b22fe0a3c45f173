"""One bit per coordinate: C++ and PyTorch give the same bits, and what they compute is what NumPy says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq import native
from nuq.compressors.message import Message
from nuq.compressors.signs import onebit, sign
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import bit_packing, signs
from nuq.kernels.spec import Key
from nuq.settings.baselines import Sign, Signs
from tests.nuq.kernels.test_cpu import BUCKETS, KINDS, SIZES, same, vector_of

KEY = Key(1, 2, 3, "x")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def all_of(x: torch.Tensor, bucket: int) -> list[torch.Tensor]:
    """Bits, sums, counts, and the values of either accumulation."""
    bits = torch.full((bit_packing.packed_bytes(x.numel(), 1),), 99, dtype=torch.uint8)
    signs.pack_(x, bits)
    sums, counts = signs.side_sums(x, bucket)
    values = torch.linspace(-3, 4, 2 * len(counts)).view(-1, 2)
    added, written = torch.linspace(1, 2, x.numel()), torch.full((x.numel(),), 7.0)
    signs.write_(bits, values, added, bucket_size=bucket, accumulate=True)
    signs.write_(bits, values, written, bucket_size=bucket, accumulate=False)
    return [bits, sums.view(torch.int64), counts, added, written]


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
@given(st.sampled_from(KINDS), SIZES, BUCKETS, st.integers(0, 99), st.sampled_from([1, 3]))
def test_the_kernels_give_the_bits_of_pytorch(kind, size, bucket, seed, num_threads):
    x = vector_of(kind, size, torch.float32, seed)
    x[seed % 7 :: 11] = -0.0
    torch.set_num_threads(num_threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signs, "in_cpp", lambda tensor: False)
        expected = all_of(x, bucket)
    for name in native.instruction_sets():
        with native.using(name):
            for ours, theirs in zip(all_of(x, bucket), expected, strict=True):
                assert same(ours, theirs), name


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
def test_many_threads_change_nothing():
    x = vector_of("normal", 300_001, torch.float32)
    torch.set_num_threads(1)
    expected = all_of(x, 100_000)
    torch.set_num_threads(4)
    assert all(same(ours, theirs) for ours, theirs in zip(all_of(x, 100_000), expected, strict=True))


def test_one_bit_per_coordinate_and_the_least_error_of_any_scale():
    """.3634 of |x|^2 on N(0, 1); |x|_2 / sqrt(d) would give .4042."""
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))
    compressor = sign(Sign(bucket_size=1 << 16))
    message = compressor.encode(x, KEY)
    assert message.num_bytes == 28 + 8 + 4 + (1 << 13)
    decoded = compressor.decode(message)
    assert torch.equal(decoded.sign(), x.sign())
    assert float((decoded - x).square().sum() / x.square().sum()) == pytest.approx(1 - 2 / np.pi, abs=0.004)
    for factor in (0.98, 1.02, 1.2533):
        assert (factor * decoded - x).norm() > (decoded - x).norm()


def test_either_side_becomes_its_mean():
    x = torch.tensor([1.0, 3.0, 0.0, -2.0, -6.0, 5.0, 7.0, -0.0])
    decoded = onebit(Signs(bucket_size=5)).decode(onebit(Signs(bucket_size=5)).encode(x, KEY))
    assert decoded.tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, -4.0, -4.0, 4.0, 4.0, 4.0])
    assert (
        sign(Sign(bucket_size=4)).decode(sign(Sign(bucket_size=4)).encode(x, KEY)).tolist()
        == [1.5] * 3 + [-1.5, -4.5] + [4.5] * 3
    )


def test_a_zero_bucket_between_others_decodes_to_zeros():
    x = torch.cat([torch.ones(10), torch.zeros(10), -torch.ones(3)])
    for method in (sign(Sign(bucket_size=10)), onebit(Signs(bucket_size=10))):
        decoded = method.decode(method.encode(x, KEY))
        assert torch.equal(decoded, x)


@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 8, 1500])
def test_the_bucket_that_is_not_finite_is_named(bad, place):
    x = torch.ones(2000)
    x[place] = bad
    with pytest.raises(NonFiniteError, match=f"bucket {place // 9} "):
        sign(Sign(bucket_size=9)).encode(x, KEY)


def test_damaged_heads_are_errors():
    message = onebit(Signs(bucket_size=9)).encode(torch.ones(20), KEY)
    for place, value in ((4, 3), (0, 0), (11, 0x7F)):
        body = message.body.clone()
        body[place] = value
        if place == 11:  # infinite
            body[10] = 0x80
        with pytest.raises(MessageError):
            sign(Sign()).decode(Message(message.tag, 20, body))
