"""The reference operators against the specification, written again with Python integers and NumPy scalars."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard

from nuq.errors import NonFiniteError
from nuq.kernels import bit_packing, operators, reference, spec
from nuq.kernels.host import square_root
from nuq.kernels.spec import Key
from nuq.levels import level_sets
from tests.tiers import few

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


def tree_by_hand(squares: np.ndarray) -> np.float64:
    size = 1 << (len(squares) - 1).bit_length()
    s = np.zeros(size)
    s[: len(squares)] = squares
    if size > 1024:
        s = np.array([tree_by_hand(block) for block in s.reshape(-1, 1024)])
        size = len(s)
    while size > 1:
        size //= 2
        s = s[:size] + s[size:]
    return s[0]


def scales_by_hand(bucket: np.ndarray, norm: str, multiple: float, num_lanes: int) -> tuple[np.float32, np.float32]:
    """scale and top"""
    s, largest = tree_by_hand(bucket.astype(np.float64) ** 2), max(abs(bucket))
    if norm == "l2":
        scale = top = np.float32(math.sqrt(s))
    elif norm == "linf":
        scale = top = largest
    elif norm == "rms":
        scale = top = max(largest, np.float32(math.sqrt(s / len(bucket))) * np.float32(multiple))
    else:
        low = min(max(abs(bucket[lane::num_lanes])) for lane in range(min(num_lanes, len(bucket))))
        scale, top = np.float32(64) * (largest if low < 2.0**-126 else low), largest
    if (largest if norm == "quantile" else scale) < 2.0**-126:
        return np.float32(0), np.float32(0)
    return scale, top


def encode_by_hand(
    x: np.ndarray, levels: list[float], bucket_size: int, norm: str, multiple: float, key: Key, uniform: bool
) -> tuple[list[int], list[np.float32]]:
    codes, scales = [], []
    one = np.float32(1)
    num_lanes = 1
    while 64 * num_lanes <= min(bucket_size, len(x)) and num_lanes < 64:
        num_lanes *= 2
    for start in range(0, len(x), bucket_size):
        bucket = x[start : start + bucket_size].astype(np.float32)
        scale, top = scales_by_hand(bucket, norm, multiple, num_lanes)
        scales += [scale, top] if norm == "quantile" else [scale]
        inverse = one / scale if scale else np.float32(0)
        t = (top * inverse if scale else one) if norm == "quantile" else one
        table = np.array([-t, *levels[1:-1], t], np.float32)
        for offset, coordinate in enumerate(bucket):
            r = min(max(np.float32(coordinate * inverse), -t), t)
            h = hash_by_hand(start + offset, *key.words())
            if uniform:
                bits = min(24, 30 - (len(levels) - 1).bit_length())
                half = (len(levels) - 1) << (bits - 1)
                codes.append((int(r * np.float32(half)) + half + (h >> (32 - bits))) >> bits)
                continue
            k = sum(r >= level for level in table[1:-1])
            width = one / (table[k + 1] - table[k])
            q = np.float32((r - table[k]) * width)
            codes.append(int(k + (np.float32((h >> 8) * 2.0**-24) < q)))
    return codes, scales


def encode(x, levels, bucket_size, norm, key, *, uniform=False, multiple=0.0):
    """codes int32[n] and scales of the operators, as torch.ops.nuq computes them."""
    count = spec.num_buckets(x.numel(), bucket_size)
    packing = bit_packing.packing(len(levels))
    scales = torch.empty(count * spec.scales_per_bucket(norm))
    packed = torch.empty(bit_packing.packed_bytes(x.numel(), packing), dtype=torch.uint8)
    how = {"bucket_size": bucket_size, "norm": norm, "packing": packing, "key": key, "multiple": multiple}
    operators.encode_(x, len(levels) if uniform else levels, scales, packed, **how)
    return bit_packing.unpack_codes(packed, x.numel(), len(levels), packing), scales


def decode(codes, scales, levels, bucket_size, **how):
    packing = bit_packing.packing(len(levels))
    total = torch.zeros(codes.numel())
    packed = bit_packing.pack_codes(codes, packing)
    operators.decode_(packed, scales, levels, total, bucket_size=bucket_size, packing=packing, accumulate=False, **how)
    return total


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("norm", spec.NORMS)
@pytest.mark.parametrize(
    ("n", "bucket_size"), [(1, 1), (5, 8), (64, 64), (130, 64), (200, 100), (300, 128), (3000, 2500)]
)
def test_encode_equals_the_specification(levels, norm, n, bucket_size):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    x[:: max(n // 3, 1)] = 0
    key = Key(seed=3, step=17, worker=2, parameter="model")
    for uniform in (False, True) if norm != "quantile" else (False,):
        codes, scales = encode(
            torch.tensor(x), torch.tensor(levels), bucket_size, norm, key, uniform=uniform, multiple=2.5
        )
        expected_codes, expected_scales = encode_by_hand(x, levels, bucket_size, norm, 2.5, key, uniform)
        assert scales.numpy().tobytes() == np.array(expected_scales, np.float32).tobytes()
        assert codes.tolist() == expected_codes


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31), st.integers(0, 2**20), st.text(max_size=8))
def test_hash_equals_python_integers(seed, step, worker, parameter):
    key = Key(seed, step, worker, parameter)
    got = [value & MASK for value in reference.hash_bits(5, key).tolist()]
    assert got == [hash_by_hand(index, *key.words()) for index in range(5)]


def test_leading_bits_are_those_of_the_hash():
    key = Key(5, 6, 7, "x")
    assert operators.leading_bits(300, key, 3).tolist() == [
        hash_by_hand(index, *key.words()) >> 29 for index in range(300)
    ]
    assert operators.leading_bits(200_000, key, 8)[-1] == hash_by_hand(199_999, *key.words()) >> 24


def test_random_numbers_are_uniform_and_keys_do_not_correlate():
    n = 1 << 18
    draws = {
        key: reference.uniforms(n, key)
        for key in (Key(1, 0, 0, "a"), Key(2, 0, 0, "a"), Key(1, 1, 0, "a"), Key(1, 0, 1, "a"), Key(1, 0, 0, "b"))
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
        codes, norms = encode(x, levels, 8, "linf", Key(1, step, 0, "x"))
        assert torch.equal(decode(codes, norms, levels, 8), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(dtype):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    levels = torch.tensor(LEVELS["uneven"])
    half, wide = (encode(v, levels, 64, "l2", Key(1, 0, 0, "x")) for v in (x, x.float()))
    assert torch.equal(half[0], wide[0]) and torch.equal(half[1], wide[1])


def test_the_last_full_bucket_is_not_a_tail():
    """A bucket that ends exactly at the vector's end was once returned as zeros."""
    x = torch.ones(256)
    levels = torch.tensor(LEVELS["uniform 2 bits"])
    codes, norms = encode(x, levels, 128, "linf", Key(1, 0, 0, "x"))
    assert torch.equal(decode(codes, norms, levels, 128), x)


@pytest.mark.parametrize("norm", spec.NORMS)
def test_zero_and_tiny_buckets_decode_to_zero(norm):
    levels = torch.tensor(LEVELS["uneven"])
    x = torch.cat([torch.zeros(8), torch.full((8,), 1e-42), torch.ones(8)])
    codes, norms = encode(x, levels, 8, norm, Key(1, 0, 0, "x"))
    decoded = decode(codes, norms, levels, 8)
    assert torch.equal(decoded[:16], torch.zeros(16)) and float(decoded[16:].abs().min()) > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("norm", spec.NORMS)
def test_not_finite_is_an_error(bad, norm):
    x = torch.ones(20)
    x[13] = bad
    with pytest.raises(NonFiniteError, match="bucket 1"):
        encode(x, torch.tensor(LEVELS["ternary"]), 8, norm, Key(1, 0, 0, "x"))


def test_a_bucket_larger_than_the_vector_takes_no_memory():
    x, levels = torch.tensor([1.0, -2.0]), torch.tensor(LEVELS["ternary"])
    codes, norms = encode(x, levels, 2**31 - 1, "linf", Key(1, 0, 0, "x"))
    assert abs(float(decode(codes, norms, levels, 2**31 - 1)[1])) == 2.0


def test_empty_vector():
    codes, norms = encode(torch.empty(0), torch.tensor(LEVELS["ternary"]), 8, "l2", Key(1, 0, 0, "x"))
    assert codes.numel() == norms.numel() == decode(codes, norms, torch.tensor(LEVELS["ternary"]), 8).numel() == 0


@few(2, "num_levels", [2, 3, 8, 255, 512])
def test_subtractive_dither_leaves_an_error_uniform_within_half_a_step(num_levels):
    """Independent of the coordinate: also at the ends of the range, at a level and at zero."""
    levels = torch.tensor(level_sets.equally_spaced(num_levels).values, dtype=torch.float32)
    x = torch.cat([torch.tensor([1.0, -1.0, 0.0]), torch.linspace(-1, 1, 61)])
    keys = [Key(1, step, 0, "x") for step in range(400)]
    draws = [decode(*encode(x, levels, 64, "linf", key, uniform=True), levels, 64, dither=key) for key in keys]
    error = (torch.stack(draws).double() - x.double()) * (num_levels - 1) / 2  # in steps
    assert float(error.abs().max()) <= 0.5 + 1e-4
    assert error.mean(dim=0).abs().max() < 5 * (1 / 12 / 400) ** 0.5
    assert float(error.square().mean()) == pytest.approx(1 / 12, rel=0.02)


def test_under_quantile_one_large_coordinate_leaves_the_inner_levels_alone():
    x = torch.randn(2048, generator=torch.Generator().manual_seed(0))
    levels = torch.tensor(LEVELS["uneven"])
    _, calm = encode(x, levels, 2048, "quantile", Key(1, 0, 0, "x"))
    x[77] = -1000.0
    codes, scales = encode(x, levels, 2048, "quantile", Key(1, 0, 0, "x"))
    assert float(scales[0]) == pytest.approx(float(calm[0]), rel=0.1) and float(scales[1]) == 1000.0
    assert float(decode(codes, scales, levels, 2048)[77]) == -1000.0


@pytest.mark.parametrize(("n", "block"), [(0, 4), (1, 8), (64, 64), (100, 16), (37, 64), (2500, 1024)])
def test_rotation_equals_the_matrix_and_its_inverse_undoes_it(n, block):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    y, key = x.clone(), Key(1, 2, 3, "x")
    operators.hadamard_(y, block, key)
    signs = np.array([1.0 - 2.0 * (hash_by_hand(i, *key.words()) >> 31) for i in range(n)])
    start, expected = 0, x.double().numpy() * signs
    while start < n:
        size = block if n - start >= block else 1 << ((n - start).bit_length() - 1)
        expected[start : start + size] = hadamard(size) @ expected[start : start + size] / math.sqrt(size)
        start += size
    assert np.allclose(y.numpy(), expected, atol=1e-5)
    operators.hadamard_(y, block, key, inverse=True)
    assert torch.allclose(y, x, atol=1e-5)


def test_the_global_generator_is_untouched():
    before = torch.random.get_rng_state()
    encode(torch.ones(100), torch.tensor(LEVELS["ternary"]), 8, "l2", Key(1, 0, 0, "x"))
    assert torch.equal(before, torch.random.get_rng_state())


def test_square_roots_are_rounded_correctly() -> None:
    values = torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert square_root(values).tolist() == [math.sqrt(value) for value in values.tolist()]
