"""Statistics of gradients: every sum against NumPy, histograms, merging, and the fits from them."""

import numpy as np
import pytest
import torch

from nuq import native
from nuq.kernels import operators
from nuq.kernels.statistics import NUM_BINS, Statistics, _histogram, bin_edges


def collect(*vectors: torch.Tensor, bucket_size: int = 100, norm: str = "l2", num_components: int = 50) -> Statistics:
    statistics = Statistics.empty(num_components)
    for vector in vectors:
        statistics.add([vector], bucket_size, norm)
    return statistics


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_every_number_against_numpy(norm):
    x = normal(1030).numpy().astype(np.float64)  # ten buckets and a tail of 30
    statistics = collect(torch.tensor(x, dtype=torch.float32), norm=norm)
    rows, total, spread = [], 0.0, 0.0
    for bucket in np.split(x, range(100, 1030, 100)):
        size = np.linalg.norm(bucket) if norm == "l2" else np.abs(bucket).max()
        r = bucket / size
        rows.append((size, r.mean(), r.std(ddof=1)))
        total, spread = total + r.sum(), spread + r.var(ddof=1) * (len(r) - 1)
    assert np.allclose(statistics.components, sorted(rows, reverse=True), rtol=1e-5, atol=1e-6)
    assert statistics.mean == pytest.approx(total / 1030, abs=1e-7)
    assert statistics.sigma == pytest.approx((spread / 1030) ** 0.5, rel=1e-5)


def test_histogram_counts_each_coordinate_with_its_norm_squared():
    x = normal(1030) * 3
    statistics = collect(x)
    weight, _, second = statistics.histogram.sum(axis=1)
    norms = [float(bucket.norm()) for bucket in x.split(100)]
    assert weight == pytest.approx(sum(norm**2 * n for norm, n in zip(norms, [100] * 10 + [30], strict=True)), rel=1e-5)
    assert second == pytest.approx(sum(norm**2 for norm in norms), rel=1e-5)  # the squares of a bucket sum to one
    r = (x[:100] / x[:100].norm()).double().numpy()
    place = np.histogram(r, bin_edges())[0]
    alone = collect(x[:100]).histogram[0]
    assert np.abs(np.cumsum(alone) / alone.sum() - np.cumsum(place) / 100).max() <= 0.0101  # at most one on an edge


def test_bins_are_symmetric_and_fine_around_zero():
    edges = bin_edges()
    assert len(edges) == NUM_BINS + 1 and edges[0] == -1 and edges[-1] == 1 and edges[NUM_BINS // 2] == 0
    assert np.array_equal(edges, -edges[::-1]) and (np.diff(edges) > 0).all() and np.diff(edges).min() < 1e-6


def test_every_coordinate_falls_into_its_bin():
    """Found by the bits of a float32; here by comparison with the edges."""
    edges = bin_edges()
    inner = edges[1:-1].astype(np.float32)
    r = np.concatenate(
        [inner, np.nextafter(inner, np.float32(0)), [-1, 1, 0, 1e-30], np.random.default_rng(0).uniform(-1, 1, 1000)]
    )
    r = r.astype(np.float32)
    for value, where in zip(r, [_histogram(np.array([v]), np.ones(1))[0].argmax() for v in r], strict=True):
        assert edges[where] <= value <= edges[where + 1]


def test_levels_under_quantile_are_fitted_up_to_the_typical_largest_coordinate():
    x = normal(1 << 16)
    statistics = collect(x, bucket_size=4096, norm="quantile")
    scales = operators.bucket_scales(x, 4096, "quantile").view(-1, 2).double()
    typical = float((scales[:, 0] * scales[:, 1]).sum() / scales[:, 0].square().sum())
    assert typical <= statistics.reach <= typical * 1.02
    distribution = statistics.fit("histogram", reach=statistics.reach)
    r = (x.view(-1, 4096) / scales[:, :1] / statistics.reach).clamp(-1, 1).numpy().ravel()
    for place in (-0.5, 0.0, 0.3, 0.99):
        assert float(distribution.cdf(place)) == pytest.approx((r <= place).mean(), abs=0.01)
    weights = scales[:, :1].square().expand(16, 4096).numpy().ravel()
    assert float(distribution.partial_moment(2, -1, 1)) == pytest.approx(np.average(r**2, weights=weights), rel=0.03)


@pytest.mark.skipif(native.library() is None, reason="the C++ kernels are not built")
@pytest.mark.parametrize("norm", ["l2", "linf", "quantile"])
@pytest.mark.parametrize(("n", "bucket_size"), [(1, 8), (1030, 100), (70_000, 512), (300_000, 1 << 20)])
def test_compiled_sums_are_the_same_bits(monkeypatch, norm, n, bucket_size):
    x = normal(n)
    x[n // 2 : n // 2 + 200] = 0
    compiled = collect(x, bucket_size=bucket_size, norm=norm).to_array()
    monkeypatch.setattr(native, "library", lambda: None)
    assert np.array_equal(compiled, collect(x, bucket_size=bucket_size, norm=norm).to_array())


def test_merging_workers_equals_one_worker_with_all_gradients():
    vectors = [normal(500, seed) * (seed + 1) for seed in range(4)]
    together = collect(*vectors, num_components=7)
    merged = Statistics.empty(7)
    for vector in vectors:
        array = collect(vector, num_components=7).to_array()
        merged.merge(Statistics.from_array(array, 7))
    assert np.array_equal(merged.components, together.components)
    assert np.allclose(merged.totals, together.totals) and np.allclose(merged.histogram, together.histogram)


def test_zero_buckets_say_nothing():
    x = normal(300)
    padded = torch.cat([x[:100], torch.zeros(100), x[100:]])
    assert np.array_equal(collect(padded).components, collect(x).components)
    assert np.array_equal(collect(padded).totals, collect(x).totals)
    with pytest.raises(ValueError):
        collect(torch.zeros(300)).fit("histogram")


@pytest.mark.parametrize("kind", ["normal", "mixture", "histogram"])
def test_fits_agree_on_normal_data(kind):
    """300 buckets of normal data: every fit must give about the distribution N(0, 1/sqrt(100))."""
    distribution = collect(normal(30000), num_components=300).fit(kind)
    points = np.array([-0.2, -0.1, 0.0, 0.05, 0.3])
    from scipy.stats import norm

    assert np.allclose(distribution.cdf(points), norm.cdf(points * 10), atol=0.01)


def test_a_sampled_vector_counts_in_full():
    """6400 buckets, of which one in a hundred is looked at, beside 64 buckets that are all looked at."""
    large, small = normal(640000, 1), normal(6400, 2)
    statistics = Statistics.empty(10)
    statistics.add([large, small], 100, "l2")
    alone = collect(small).histogram[0].sum()
    assert alone / statistics.histogram[0].sum() == pytest.approx(
        float(small.square().sum() / (large.square().sum() + small.square().sum())), rel=0.05
    )
