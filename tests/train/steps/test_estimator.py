"""The measured variances against NumPy, on gradients made up for the purpose."""

import numpy as np
import pytest
import torch

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.levels.truncated_normals import CondTruncNorm, TruncNorm
from nuq.registry import METHODS
from nuq.simulation import Workers
from train.steps import estimator

SHAPES = {"a": torch.Size([20, 5]), "b": torch.Size([30])}


def workers(name: str, **settings) -> Workers:
    return Workers(name, METHODS[name].settings(**settings), 4, SHAPES, 1, torch.device("cpu"))


def samples(count: int = 6) -> np.ndarray:
    """float32[count, 4, 130]"""
    return np.random.default_rng(0).standard_normal((count, 4, 130)).astype(np.float32)


def measured(of: Workers, values: np.ndarray) -> estimator.Measured:
    gradients = [[torch.tensor(g) for g in sample] for sample in values]
    return estimator.measure(of, gradients, seed=1, step=0)


def measure(of: Workers, values: np.ndarray) -> dict[str, float]:
    return measured(of, values).scalars


def test_full_precision_against_numpy():
    values = samples()
    got = measure(workers("supersgd"), values)
    mean, flat = values.astype(float).mean(axis=1), values.astype(float).reshape(-1, 130)
    assert got["est_var"] == pytest.approx(mean.var(axis=0, ddof=1).mean(), rel=1e-6)
    assert got["super_var"] == pytest.approx(got["est_var"], rel=1e-6)
    assert got["sgd_var"] == pytest.approx(flat.var(axis=0, ddof=1).mean(), rel=1e-6)
    noise, signal = ((flat - flat.mean(axis=0)) ** 2).sum(axis=0), (flat**2).sum(axis=0)
    assert got["sgd_nvar"] == pytest.approx((noise / (signal + 1e-7)).mean(), rel=1e-6)
    assert got["sgd_snr"] == pytest.approx((np.log(signal + 1e-10) - np.log(noise + 1e-10)).mean(), rel=1e-6)
    assert got["grad_bias"] == pytest.approx(0, abs=1e-7)


def test_the_tails_of_what_a_method_adds():
    values, of = samples(), workers("qsgdinf", bits=2, bucket_size=64)
    assert not {"error_kurtosis", "error_max"} & set(measure(workers("supersgd"), values))
    errors, means = [], values.mean(axis=1)
    for number, sample in enumerate(values):
        keys = [Key(1, 0, worker, f"measure/{number}", workers=4) for worker in range(4)]
        payloads = [of.encode(torch.tensor(one), key) for one, key in zip(sample, keys, strict=True)]
        errors.append(of.average(payloads).numpy() - means[number])
    got, squares = measure(of, values), np.square(np.array(errors, float))
    assert got["error_kurtosis"] == pytest.approx((squares**2).mean() / squares.mean() ** 2, rel=1e-5)
    assert got["error_max"] == pytest.approx((squares.max() / np.square(means).mean()) ** 0.5, rel=1e-5)


def test_sgd_is_the_gradient_of_any_one_worker():
    values = samples()
    got = measure(workers("sgd"), values)
    assert got["est_var"] == pytest.approx(values.reshape(-1, 130).astype(float).var(axis=0, ddof=1).mean(), rel=1e-6)


def test_a_quantizer_adds_its_own_variance_divided_by_the_workers():
    values = np.repeat(samples(1), 60, axis=0)  # the same minibatches: all that varies is the rounding
    of = workers("qsgdinf", bits=2, bucket_size=64, rounding="stochastic")
    got = measure(of, values)
    assert got["super_var"] == pytest.approx(0, abs=1e-12)
    expected = 0.0
    for g in values[0].astype(float):
        for bucket in (g[:64], g[64:128], g[128:]):
            norm = abs(bucket).max()
            r = bucket / norm
            lower = np.floor((np.minimum(r, 0.999999) + 1) * 1.5) / 1.5 - 1
            expected += norm**2 * ((r - lower) * (lower + 2 / 3 - r)).sum()
    assert got["est_var"] == pytest.approx(expected / 16 / 130, rel=0.1)


def test_level_tags():
    got = measure(workers("alq", bits=2, bucket_size=64), samples())
    assert [f"levels/{i}" in got for i in range(5)] == [True] * 4 + [False]
    assert (got["bits"], got["positive_levels"], got["negative_levels"], got["includes_zero"]) == (2, 2, 2, 0)
    assert 0 < got["nb_error"] < 1 and 0 < got["nb_error_measured"] < 1
    assert measure(workers("nuqsgd", p=0.25), samples())["multiplier"] == 0.25
    assert "nb_error" not in measure(workers("supersgd"), samples())


def logged(of: Workers) -> dict[str, float]:
    assert isinstance(of.compressor, AdaptiveQuantizer)
    return estimator.level_scalars(of.compressor)


def test_the_distance_from_the_best_levels_is_logged_and_saved():
    values = samples(1)[0]
    gradients = {w: torch.tensor(g) for w, g in enumerate(values)}
    gaps = {}
    for name, settings in {"alq": {}, "amq": {}, "optimal": {}}.items():
        of = workers(name, bits=3, bucket_size=64, **settings)
        assert "level_gap" not in logged(of)  # before the first update there is no distribution
        of.observe(gradients, 0)
        assert of.update_levels() is None
        gaps[name] = logged(of)["level_gap"]
        fresh = workers(name, bits=3, bucket_size=64, **settings)
        fresh.load_state_dict(of.state_dict())
        assert logged(fresh)["level_gap"] == gaps[name]
    assert gaps["optimal"] == 0 <= gaps["alq"] < gaps["amq"]


def buckets(values: np.ndarray, size: int) -> list[np.ndarray]:
    return [
        g[start : start + size] for sample in values.astype(float) for g in sample for start in range(0, g.size, size)
    ]


def test_the_coordinates_are_weighted_as_in_a_fit():
    """Each counts by the square of its bucket's norm; against NumPy's histogram."""
    values = samples()
    values[:, :, :64] *= 3  # buckets of different norms
    got = measured(workers("qsgdinf", bits=2, bucket_size=64), values).histograms
    scaled = [
        (bucket / abs(bucket).max(), np.full(bucket.size, abs(bucket).max() ** 2)) for bucket in buckets(values, 64)
    ]
    r, weights = (np.concatenate(parts) for parts in zip(*scaled, strict=True))
    expected, _ = np.histogram(r, estimator.HISTOGRAM_EDGES, weights=weights)
    np.testing.assert_allclose(got["stats/coordinates"], expected / weights.sum(), atol=1e-6)
    assert got["stats/coordinates"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "settings", "power"),
    [
        ("qsgdinf", {}, 2),
        ("alq", {"norm": "l2"}, 2),
        ("alq", {"norm": "l2", "fit": "mixture", "weights": "norm"}, 1),
        ("alq_n", {"norm": "l2"}, None),
    ],
)
def test_the_fitted_distribution_over_the_same_edges(name, settings, power):
    """The -N methods fit one truncated normal (power None), the others the mixture with weights norm^power."""
    values = samples()
    values[:, :, :64] *= 3
    of = workers(name, bits=3, bucket_size=64, **settings)
    fit = measured(of, values).histograms["stats/fit"]
    assert fit.shape == (len(estimator.HISTOGRAM_EDGES) - 1,)
    assert fit.sum() == pytest.approx(1)
    linf = name == "qsgdinf"
    norms = np.array([abs(b).max() if linf else np.linalg.norm(b) for b in buckets(values, 64)])
    scaled = [bucket / norm for bucket, norm in zip(buckets(values, 64), norms, strict=True)]
    means, sigmas = np.array([r.mean() for r in scaled]), np.array([r.std(ddof=1) for r in scaled])
    if power is None:
        lengths = np.array([r.size for r in scaled])
        distribution = TruncNorm(
            np.concatenate(scaled).mean(), float(np.sqrt((sigmas**2 * (lengths - 1)).sum() / lengths.sum()))
        )
    else:
        distribution = CondTruncNorm(means, sigmas, norms**power)
    np.testing.assert_allclose(fit, np.diff(distribution.cdf(estimator.HISTOGRAM_EDGES)), atol=1e-6)


def test_under_quantile_the_distribution_is_logged_as_one_of_r():
    """It is fitted to r / reach."""
    found = measured(workers("amq", bits=3, bucket_size=64, norm="quantile"), samples()).histograms
    middles = (estimator.HISTOGRAM_EDGES[:-1] + estimator.HISTOGRAM_EDGES[1:]) / 2
    spread, fitted = (np.sqrt(found[tag] @ middles**2) for tag in ("stats/coordinates", "stats/fit"))
    assert found["stats/fit"].sum() == pytest.approx(1)
    assert fitted == pytest.approx(spread, rel=0.1)


def test_without_a_quantizer_there_is_nothing_to_draw():
    assert measured(workers("supersgd"), samples()).histograms == {}
    assert measured(workers("alq"), np.zeros((2, 4, 130), np.float32)).histograms == {}


def by_hand(above: list[np.ndarray], below: list[np.ndarray]) -> float:
    """The jackknife in plain NumPy: each sample is left out, and everything computed anew."""
    logs = []
    for out in range(len(above)):
        variances = [
            np.concatenate([rows for group, rows in enumerate(groups) if group != out])
            .astype(float)
            .var(axis=0, ddof=1)
            .mean()
            for groups in (above, below)
        ]
        logs.append(np.log(variances[0] / variances[1]))
    return float(np.sqrt((len(logs) - 1) / len(logs) * np.square(np.array(logs) - np.mean(logs)).sum()))


def test_the_error_of_the_relative_variance_is_the_jackknifes():
    values = samples(7) * np.linspace(1, 3, 7, dtype=np.float32)[:, None, None]
    means = [sample.mean(axis=0, keepdims=True) for sample in values]
    assert measure(workers("sgd"), values)["relative_var_se"] == pytest.approx(by_hand(list(values), means), rel=1e-4)
    assert measure(workers("supersgd"), values)["relative_var_se"] == pytest.approx(0, abs=1e-6)
    assert "relative_var_se" not in measure(workers("sgd"), values[:2])


@pytest.mark.slow
def test_one_workers_sgd_has_four_times_the_variance_within_its_interval():
    """The control of every relative variance, on heavy-tailed gradients; the interval covers as often as it says."""
    rng, covered, errors = np.random.default_rng(3), 0, []
    of = workers("sgd")
    for _ in range(60):
        scale = np.exp(rng.standard_normal((10, 4, 1)))  # a minibatch is large or small as a whole
        got = measure(of, (rng.standard_normal((10, 4, 130)) * scale).astype(np.float32))
        error = np.log(got["est_var"] / got["super_var"] / 4)
        covered += abs(error) < 1.96 * got["relative_var_se"]
        errors.append(error)
    assert 48 <= covered <= 60
    assert 0.01 < np.std(errors) < 0.5


def test_of_a_long_gradient_a_part_tells_no_smaller_an_error(monkeypatch: pytest.MonkeyPatch):
    values = samples(8) * np.linspace(1, 3, 8, dtype=np.float32)[:, None, None]
    whole = measure(workers("sgd"), values)["relative_var_se"]
    monkeypatch.setattr(estimator, "SPREAD_COORDINATES", 40)
    assert whole < measure(workers("sgd"), values)["relative_var_se"] < 4 * whole
