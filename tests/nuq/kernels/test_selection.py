"""The selection of the coordinates that are sent: C++ and PyTorch against a plain sort, ties, buckets, thresholds, and
what is not finite.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq import native
from nuq.errors import NonFiniteError
from nuq.kernels import selection
from nuq.kernels.selection import Share

SETS = native.instruction_sets()
CPU = torch.device("cpu")


@pytest.fixture(params=[*SETS, "reference"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every instruction set of the library, and PyTorch."""
    if request.param == "reference":
        monkeypatch.setattr(native, "library", lambda: None)
        yield request.param
    else:
        with native.using(request.param):
            yield request.param


def heavy(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp()


def by_sorting(keys: np.ndarray, share: Share) -> list[int]:
    """The k largest keys of every bucket, the lower place first among equal ones."""
    indices: list[int] = []
    for first in range(0, len(keys), share.bucket_size):
        bucket = keys[first : first + share.bucket_size]
        k = share.k if first + share.bucket_size < len(keys) else share.k_last
        indices += sorted(first + int(i) for i in np.argsort(-bucket, kind="stable")[:k])
    return indices


def many_ties(n: int) -> torch.Tensor:
    return torch.randint(-3, 4, (n,), generator=torch.Generator().manual_seed(n)).float()


VECTORS = {
    "heavy": heavy(20_000),
    "a few more than blocks": heavy(64 * 70 + 17),
    "ties": many_ties(9000),
    "constant": torch.full((5000,), -2.0),
    "sorted": heavy(6000).abs().sort().values,
    "large ones at the end": torch.cat([torch.zeros(7000), heavy(300)]),
    "every 64th": torch.where(torch.arange(8192) % 64 == 0, 5.0, 1.0) * heavy(8192).sign(),
    "denormal": heavy(4000) * 1e-41,
    "signed zeros": torch.tensor([0.0, -0.0, 0.0, -0.0]),
    "one": torch.tensor([-3.0]),
}


@pytest.mark.parametrize("x", VECTORS.values(), ids=VECTORS)
def test_top_is_the_head_of_a_stable_sort(kernels: str, x: torch.Tensor) -> None:
    for bucket, ratio in itertools.product((0, 64, 1000, 4096), (0.001, 0.1, 0.6, 1.0)):
        share = Share.of(len(x), bucket, ratio)
        indices = selection.top(x, share)
        assert indices.dtype == torch.int32 and len(indices) == share.total
        assert indices.tolist() == by_sorting(x.abs().numpy(), share), (bucket, ratio)


@settings(max_examples=80)
@given(
    st.lists(st.floats(-4, 4, width=16) | st.sampled_from([0.0, 1.0, -1.0]), min_size=1, max_size=300),
    st.integers(0, 70),
    st.floats(1e-3, 1),
)
def test_top_of_anything(values: list[float], bucket: int, ratio: float) -> None:
    x = torch.tensor(values)
    share = Share.of(len(x), bucket, ratio)
    assert selection.top(x, share).tolist() == by_sorting(x.abs().numpy(), share)


def test_threads_change_nothing() -> None:
    x = heavy(300_000)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            shares = (Share.of(len(x), 0, 0.01), Share.of(len(x), 100_001, 0.2), Share.of(len(x), 5000, 0.01))
            tops = [selection.top(x, share) for share in shares]
            found.append(
                [
                    *tops,
                    selection.at_least(x, 2.0),
                    selection.half_of_largest(x, 0),
                    selection.chosen(shares[0], (3, 4), CPU),
                ]
            )
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert found[0][0].tolist() == by_sorting(x.abs().numpy(), shares[0])


@pytest.mark.parametrize("ratio", ["0.001", "0.01", "0.1", "0.3", "0.07", "1"])
@pytest.mark.parametrize("n", [1, 7, 1000, 10_000_000, 2**31])
def test_num_kept_is_exact_in_decimals(n: int, ratio: str) -> None:
    numerator, denominator = (
        (int(ratio.replace(".", "")), 10 ** len(ratio.partition(".")[2])) if "." in ratio else (int(ratio), 1)
    )
    assert selection.num_kept(n, float(ratio)) == max(1, -(-n * numerator // denominator))
    assert selection.num_kept(0, float(ratio)) == 0


def test_at_least(kernels: str) -> None:
    x = torch.cat([heavy(1000), torch.tensor([0.5, -0.5, 0.1, -0.1, 0.0])])
    for threshold in (0.0, 0.1, 0.5, 1e-300, 3.0, 1e30, 1e60):
        wide = x.double().abs()
        assert selection.at_least(x, threshold).tolist() == (wide >= threshold).nonzero().view(-1).tolist()
    negative = -torch.rand(100, generator=torch.Generator().manual_seed(0)) * 0.5
    assert not len(selection.at_least(negative, 0.6))


@pytest.mark.parametrize("x", VECTORS.values(), ids=VECTORS)
def test_half_of_largest(kernels: str, x: torch.Tensor) -> None:
    for bucket in (0, 100, 5000):
        size = bucket or len(x)
        expected = []
        for first in range(0, len(x), size):
            part = x[first : first + size].double().abs()
            expected += [first + int(i) for i in ((2 * part >= part.max()) & (part > 0)).nonzero()]
        assert selection.half_of_largest(x, bucket).tolist() == expected


def test_chosen_is_the_same_everywhere_and_uniform(kernels: str) -> None:
    from nuq.kernels import reference

    for n, bucket, ratio in ((1, 0, 0.5), (5000, 0, 0.01), (5000, 64, 0.1), (70_000, 0, 0.3), (1000, 999, 0.5)):
        share, words = Share.of(n, bucket, ratio), (123, 0xFFFFFFF0)
        keys = -(reference.hash_bits(n, words).long() & 0xFFFFFFFF).numpy()
        assert selection.chosen(share, words, CPU).tolist() == by_sorting(keys, share)


def test_every_coordinate_is_chosen_as_often() -> None:
    share, draws = Share.of(40, 0, 0.2), 4000
    from nuq.kernels.spec import Key

    counts, pairs = torch.zeros(40), torch.zeros(40, 40)
    for step in range(draws):
        indices = selection.chosen(share, Key(1, step, 0, "x").words(), CPU).long()
        counts[indices] += 1
        pairs[indices[:, None], indices[None]] += 1
    chi = float(((counts - draws * 0.2).square() / (draws * 0.2 * 0.8)).sum()) * 39 / 40
    assert 39 - 4 * (2 * 39) ** 0.5 < chi < 39 + 4 * (2 * 39) ** 0.5
    together = pairs[~torch.eye(40, dtype=torch.bool)]
    expected = draws * 8 * 7 / (40 * 39)
    assert float((together - expected).abs().max()) < 6 * expected**0.5


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.2])
def test_sampled_sends_the_largest_and_about_as_many(kernels: str, ratio: float) -> None:
    for seed in range(5):
        x = heavy(50_000, seed)
        k, indices = selection.num_kept(len(x), ratio), selection.sampled(x, ratio)
        assert 0.8 * k <= len(indices) <= k
        assert indices.tolist() == by_sorting(x.abs().numpy(), Share(len(x), len(x), len(indices), len(indices)))


@pytest.mark.parametrize("x", VECTORS.values(), ids=VECTORS)
def test_sampled_always_sends_the_largest(kernels: str, x: torch.Tensor) -> None:
    indices = selection.sampled(x, 0.01)
    assert 1 <= len(indices) <= selection.num_kept(len(x), 0.01)
    assert indices.tolist() == by_sorting(x.abs().numpy(), Share(len(x), len(x), len(indices), len(indices)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 63, 4000, 4999])
def test_what_is_not_finite(kernels: str, bad: float, place: int) -> None:
    x = heavy(5000)
    x[place] = bad
    for select in (
        lambda: selection.top(x, Share.of(5000, 0, 0.01)),
        lambda: selection.top(x, Share.of(5000, 64, 0.01)),
        lambda: selection.top(x, Share.of(5000, 0, 1.0)),
        lambda: selection.sampled(x, 0.001),
        lambda: selection.at_least(x, 1.0),
        lambda: selection.half_of_largest(x, 0),
        lambda: selection.check_finite(x),
    ):
        with pytest.raises(NonFiniteError):
            select()


def test_scatter(kernels: str) -> None:
    indices, values = torch.tensor([0, 3, 9], dtype=torch.int32), torch.tensor([1.0, 2.0, 3.0])
    total = torch.ones(10)
    selection.scatter(indices, values, total, accumulate=True)
    assert total.tolist() == [2, 1, 1, 3, 1, 1, 1, 1, 1, 4]
    selection.scatter(indices, values, total, accumulate=False)
    assert total.tolist() == [1, 1, 1, 2, 1, 1, 1, 1, 1, 3]
