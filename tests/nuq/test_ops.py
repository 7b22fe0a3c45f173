"""The reference quantizer against the specification, written again with Python integers and NumPy scalars."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq import ops
from nuq.ops import Key, NonFiniteError

MASK = 0xFFFFFFFF
LEVELS = {
    "uniform 2 bits": [-1, -1 / 3, 1 / 3, 1],
    "ternary": [-1.0, 0.0, 1.0],
    "uneven": [-1, -0.13, -0.018, -0.005, 0.005, 0.018, 0.13, 1],
}


def hash_by_hand(index: int, k0: int, k1: int) -> int:
    x = index ^ k0
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x ^= k1
    x = x * 0x846CA68B & MASK
    return x ^ (x >> 16)


def quantize_by_hand(x: np.ndarray, levels: list[float], bucket_size: int, norm: str, key: Key) -> tuple[list[int], list[np.float32]]:
    table = np.array(levels, np.float32)
    codes, norms = [], []
    for start in range(0, len(x), bucket_size):
        bucket = x[start : start + bucket_size].astype(np.float32)
        if norm == "l2":
            size = 1 << (len(bucket) - 1).bit_length()
            s = np.zeros(size)
            s[: len(bucket)] = bucket.astype(np.float64) ** 2
            while size > 1:
                size //= 2
                s = s[:size] + s[size:]
            value = np.float32(math.sqrt(s[0]))
        else:
            value = np.float32(max(abs(bucket)))
        if value < 2.0**-126:
            value = np.float32(0)
        inverse = np.float32(1) / value if value else np.float32(0)
        norms.append(value)
        for offset, coordinate in enumerate(bucket):
            r = min(max(np.float32(coordinate * inverse), np.float32(-1)), np.float32(1))
            k = sum(r >= level for level in table[1:-1])
            width = np.float32(1) / (table[k + 1] - table[k])
            q = np.float32((r - table[k]) * width)
            u = np.float32((hash_by_hand(start + offset, *key.words()) >> 8) * 2.0**-24)
            codes.append(int(k + (u < q)))
    return codes, norms


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("norm", ops.NORMS)
@pytest.mark.parametrize(("n", "bucket_size"), [(1, 1), (5, 8), (64, 64), (128, 64), (130, 64), (200, 100)])
def test_quantize_equals_the_specification(levels, norm, n, bucket_size):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    x[:: max(n // 3, 1)] = 0
    key = Key(seed=3, step=17, worker=2, parameter="model")
    codes, norms = ops.quantize(torch.tensor(x), torch.tensor(levels), bucket_size, norm, key)
    expected_codes, expected_norms = quantize_by_hand(x, levels, bucket_size, norm, key)
    assert codes.tolist() == expected_codes
    assert norms.numpy().tobytes() == np.array(expected_norms, np.float32).tobytes()


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31), st.integers(0, 2**20), st.text(max_size=8))
def test_hash_equals_python_integers(seed, step, worker, parameter):
    key = Key(seed, step, worker, parameter)
    got = [value & MASK for value in ops.hash_bits(5, key).tolist()]
    assert got == [hash_by_hand(index, *key.words()) for index in range(5)]


def test_random_numbers_are_uniform_and_keys_do_not_correlate():
    n = 1 << 18
    draws = {
        key: ops.uniforms(n, key) for key in (Key(1, 0, 0, "a"), Key(2, 0, 0, "a"), Key(1, 1, 0, "a"), Key(1, 0, 1, "a"), Key(1, 0, 0, "b"))
    }
    for u in draws.values():
        assert float(u.min()) >= 0 and float(u.max()) < 1
        counts = torch.histc(u, 64, 0, 1)
        chi2 = float(((counts - n / 64) ** 2 / (n / 64)).sum())
        assert chi2 < 120  # 63 degrees of freedom: p < 1e-5
    first, *others = (u - 0.5 for u in draws.values())
    for other in [*others, first.roll(1)]:
        assert abs(float((first * other).mean())) * 12 * n**0.5 < 5  # five standard errors


def test_values_at_levels_are_kept_exactly():
    levels = torch.tensor(LEVELS["uneven"])
    x = levels * 4.0
    for step in range(50):
        codes, norms = ops.quantize(x, levels, 8, "linf", Key(1, step, 0, "x"))
        assert torch.equal(ops.dequantize(codes, norms, levels, 8), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(dtype):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    levels = torch.tensor(LEVELS["uneven"])
    half, wide = (ops.quantize(v, levels, 64, "l2", Key(1, 0, 0, "x")) for v in (x, x.float()))
    assert torch.equal(half[0], wide[0]) and torch.equal(half[1], wide[1])


def test_the_last_full_bucket_is_not_a_tail():
    """A bucket that ends exactly at the vector's end was once returned as zeros."""
    x = torch.ones(256)
    levels = torch.tensor(LEVELS["uniform 2 bits"])
    codes, norms = ops.quantize(x, levels, 128, "linf", Key(1, 0, 0, "x"))
    assert torch.equal(ops.dequantize(codes, norms, levels, 128), x)


@pytest.mark.parametrize("norm", ops.NORMS)
def test_zero_and_tiny_buckets_decode_to_zero(norm):
    levels = torch.tensor(LEVELS["uneven"])
    x = torch.cat([torch.zeros(8), torch.full((8,), 1e-42), torch.ones(8)])
    codes, norms = ops.quantize(x, levels, 8, norm, Key(1, 0, 0, "x"))
    decoded = ops.dequantize(codes, norms, levels, 8)
    assert torch.equal(decoded[:16], torch.zeros(16)) and float(decoded[16:].abs().min()) > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("norm", ops.NORMS)
def test_not_finite_is_an_error(bad, norm):
    x = torch.ones(20)
    x[13] = bad
    with pytest.raises(NonFiniteError, match="bucket 1"):
        ops.quantize(x, torch.tensor(LEVELS["ternary"]), 8, norm, Key(1, 0, 0, "x"))


def test_a_norm_that_overflows_is_an_error():
    with pytest.raises(NonFiniteError, match="overflows"):
        ops.quantize(torch.full((8,), 3e38), torch.tensor(LEVELS["ternary"]), 8, "l2", Key(1, 0, 0, "x"))


def test_a_bucket_larger_than_the_vector_takes_no_memory():
    x, levels = torch.tensor([1.0, -2.0]), torch.tensor(LEVELS["ternary"])
    codes, norms = ops.quantize(x, levels, 2**31 - 1, "linf", Key(1, 0, 0, "x"))
    assert abs(float(ops.dequantize(codes, norms, levels, 2**31 - 1)[1])) == 2.0


def test_empty_vector():
    codes, norms = ops.quantize(torch.empty(0), torch.tensor(LEVELS["ternary"]), 8, "l2", Key(1, 0, 0, "x"))
    assert codes.numel() == norms.numel() == ops.dequantize(codes, norms, torch.tensor(LEVELS["ternary"]), 8).numel() == 0


def test_the_global_generator_is_untouched():
    before = torch.random.get_rng_state()
    ops.quantize(torch.ones(100), torch.tensor(LEVELS["ternary"]), 8, "l2", Key(1, 0, 0, "x"))
    assert torch.equal(before, torch.random.get_rng_state())
