"""Indices as bytes: round trips in every form, sizes against the entropy, the library against NumPy, damage."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq import native
from nuq.coding import index_coding, index_coding_reference
from nuq.coding.index_coding import bound, decode, encode
from nuq.coding.index_forms import BITMAP, FORMS, INT32, OTHERS, RANS, RICE
from nuq.errors import MessageError
from nuq.native import bits as kernels
from tests.tiers import few

needs_library = pytest.mark.skipif(native.library() is None, reason="the library is not built, or is off")


def _entropy_bits(k: int, n: int) -> float:
    """log2 of the number of sets of k indices among n."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


@pytest.fixture(params=["library", "reference"])
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "reference":
        monkeypatch.setattr(index_coding, "_bits", lambda: index_coding_reference)
    elif native.library() is None:
        pytest.skip("the library is not built, or is off")
    yield request.param


def at_random(k: int, n: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng((seed, k, n))
    indices = rng.choice(n, k, replace=False) if n < 10**7 else np.unique(rng.integers(0, n, k))
    return torch.from_numpy(np.sort(indices).astype(np.int32))


def in_layers(n: int, seed: int = 0) -> torch.Tensor:
    """Runs of 5000 indices whose density differs by up to a thousand."""
    rng = np.random.default_rng(seed)
    density = np.repeat(10.0 ** rng.uniform(-4, -0.5, -(-n // 5000)), 5000)[:n]
    return torch.from_numpy(np.flatnonzero(rng.random(n) < density).astype(np.int32))


SETS = {
    "none": (torch.empty(0, dtype=torch.int32), 100),
    "none of none": (torch.empty(0, dtype=torch.int32), 0),
    "all": (torch.arange(100, dtype=torch.int32), 100),
    "the first": (torch.tensor([0], dtype=torch.int32), 2),
    "the last": (torch.tensor([99], dtype=torch.int32), 100),
    "all but one": (torch.arange(1, 1000, dtype=torch.int32), 1000),
    "a run": (torch.arange(5000, 9000, dtype=torch.int32), 100_000),
    "every third": (torch.arange(0, 60_000, 3, dtype=torch.int32), 60_000),
    "a block": (at_random(512, 10_000), 10_000),
    "a block and one": (at_random(513, 10_000), 10_000),
    "many": (at_random(20_000, 10**6), 10**6),
    "nearly all": (torch.from_numpy(np.flatnonzero(np.arange(40_000) % 37 > 0).astype(np.int32)), 40_000),
    "dense": (at_random(30_000, 50_000), 50_000),
    "in layers": (in_layers(200_000), 200_000),
    "the largest": (torch.tensor([0, 5, 2**31 - 1], dtype=torch.int32), 2**31),
    "far apart": (at_random(3000, 2**31), 2**31),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indices, n", SETS.values(), ids=SETS)
def test_round_trip(bits: str, indices: torch.Tensor, n: int, form: str) -> None:
    if form == "bitmap" and n > 10**7:
        return  # a quarter of a gigabyte
    data = encode(indices, n, form)
    assert data.dtype == torch.uint8 and data.numel() <= bound(len(indices), n, form)
    back = decode(data, len(indices), n)
    assert back.dtype == torch.int32 and torch.equal(back, indices)


@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, 10**6), st.sampled_from(FORMS))
def test_round_trip_of_any_set(n: int, density: float, seed: int, form: str) -> None:
    rng = np.random.default_rng(seed)
    indices = torch.from_numpy(np.flatnonzero(rng.random(n) < density).astype(np.int32))
    assert torch.equal(decode(encode(indices, n, form), len(indices), n), indices)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=50), st.sampled_from(("auto", "int32", "delta")))
def test_round_trip_of_a_few_of_very_many(chosen: set[int], form: str) -> None:
    indices = torch.tensor(sorted(chosen), dtype=torch.int32)
    data = encode(indices, 2**31, form)
    assert data.numel() <= bound(len(indices), 2**31, form)
    assert torch.equal(decode(data, len(indices), 2**31), indices)


def _forms(indices: torch.Tensor) -> dict[int, int]:
    gaps = index_coding._gaps(indices.numpy())
    rice, rans = index_coding._encode_rice(gaps), index_coding._encode_rans(gaps)
    assert rice.size == gaps.rice_bytes + 1
    return {RICE: rice.size, RANS: rans.size}


@pytest.mark.parametrize("indices, n", [(indices, n) for indices, n in SETS.values() if 0 < len(indices) < n])
def test_auto_is_the_smallest(bits: str, indices: torch.Tensor, n: int) -> None:
    sizes = {INT32: 4 * len(indices) + 1, BITMAP: -(-n // 8) + 1, **_forms(indices)}
    if len(indices) < 1024:
        del sizes[RANS]
    data = encode(indices, n)
    if int(data[0]) == OTHERS:
        assert len(indices) > n * 15 / 16 and data.numel() <= min(sizes.values())
        return
    assert data.numel() == sizes[int(data[0])] <= min(sizes.values()) * 1.01 + 1


def test_every_form_is_the_smallest_somewhere() -> None:
    taken = {int(encode(indices, n)[0]) for indices, n in SETS.values() if 0 < len(indices) < n}
    assert taken - {INT32} == {BITMAP, RICE, RANS, OTHERS}


@pytest.mark.parametrize("ratio, most", [(0.1, 0.03), (0.01, 0.05), (0.001, 0.13)])
def test_bits_of_indices_at_random(ratio: float, most: float) -> None:
    n = 2_000_000
    k = int(n * ratio)
    used = 8 * encode(at_random(k, n), n).numel()
    assert 0 < used - _entropy_bits(k, n) < most * k


def test_a_density_that_changes_pays() -> None:
    indices = in_layers(1_000_000)
    k = len(indices)
    used = {form: 8 * size / k for form, size in _forms(indices).items()}
    assert used[RANS] < used[RICE] < _entropy_bits(k, 1_000_000) / k - 0.5


@needs_library
@pytest.mark.parametrize("seed", range(5))
def test_the_library_writes_the_bytes_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.integers(0, 32, 1000).astype(np.uint8)
    values = (rng.integers(0, 2**31, 1000) & ((1 << widths.astype(np.int64)) - 1)).astype(np.uint32)
    packed = kernels.pack(values, widths)
    np.testing.assert_array_equal(packed, index_coding_reference.pack(values, widths))
    for unpack in (kernels.unpack, index_coding_reference.unpack):
        np.testing.assert_array_equal(unpack(packed, widths), values)
    indices = np.flatnonzero(rng.random(3001) < 0.2)
    bitmap = kernels.set_bits(indices, 3001)
    np.testing.assert_array_equal(bitmap, index_coding_reference.set_bits(indices, 3001))
    for find in (kernels.find_bits, index_coding_reference.find_bits):
        found = find(bitmap, indices.size)
        assert found is not None
        np.testing.assert_array_equal(found, indices)
        assert find(bitmap, indices.size - 1) is None


@few(5, "n, k", [(1000, 100), (10**6, 5000), (10**6, 300_000), (10**4, 9_900), (2**31, 4)])
def test_damage_is_an_error_or_other_legal_indices(bits: str, n: int, k: int) -> None:
    """A changed byte may give other indices; it must never give some that do not ascend or lie outside, or an error of
    another kind.
    """
    indices = at_random(k, n)
    k = len(indices)
    for form in FORMS:
        if form == "bitmap" and n > 10**7:
            continue
        data = encode(indices, n, form)
        rng = np.random.default_rng(0)
        for at in [0, 1, data.numel() - 1, *rng.integers(0, data.numel(), 20).tolist()]:
            damaged = data.clone()
            damaged[at] ^= int(rng.integers(1, 256))
            try:
                found = decode(damaged, k, n).long()
            except MessageError:
                continue
            assert (
                len(found) == k and int(found[0]) >= 0 and int(found[-1]) < n and bool((found[1:] > found[:-1]).all())
            )
        for wrong in (
            data[:-1],
            data[:1],
            data[:0],
            torch.cat([data, data[:1]]),
            torch.cat([data, torch.zeros(1, dtype=torch.uint8)]),
        ):
            with pytest.raises(MessageError):
                decode(wrong, k, n)


@pytest.mark.parametrize(
    "data, k, n",
    [
        ([INT32, 5, 0, 0, 0, 5, 0, 0, 0], 2, 10),
        ([INT32, 5, 0, 0, 0, 4, 0, 0, 0], 2, 10),
        ([INT32, 5, 0, 0, 0, 10, 0, 0, 0], 2, 10),
        ([INT32, 255, 255, 255, 255], 1, 10),
        ([BITMAP, 3, 0], 1, 10),
        ([BITMAP, 0, 0], 1, 10),
        ([BITMAP, 0, 128], 1, 10),
        ([RICE, 32, 1], 1, 10),
        ([RICE, 31, 255, 255, 255, 127, 1], 1, 10),
        ([RICE, 0, 0, 16], 1, 10),
        ([OTHERS, BITMAP, 1, 0], 1, 10),
        ([OTHERS], 9, 10),
        ([OTHERS, BITMAP, 3, 0], 9, 10),
        ([OTHERS, OTHERS, BITMAP, 1, 0], 9, 10),
        ([5, 0], 1, 10),
        ([1], 0, 10),
        ([1], 10, 10),
        ([INT32], 11, 10),
    ],
)
def test_bytes_that_mean_no_indices(bits: str, data: list[int], k: int, n: int) -> None:
    with pytest.raises(MessageError):
        decode(torch.tensor(data, dtype=torch.uint8), k, n)
