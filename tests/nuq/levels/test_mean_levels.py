"""Levels for the mean: the functional against the kernels' own rounding, its gradient, and what the solver finds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.level_updates import fit_levels
from nuq.exchange.mean_error import second_settings
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, update_rules
from nuq.levels.histogram import Histogram
from nuq.levels.level_sets import Levels
from nuq.levels.mean_levels import MeanObjective, refit
from nuq.levels.truncated_normals import TruncNorm
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers

BUCKET_SIZE = 1024


def vectors(workers: int, size: int = 1 << 15, heavy: bool = True, loud: float = 0.0) -> list[torch.Tensor]:
    """Independent vectors of one law; loud: how much the sizes of buckets differ, each worker's by itself."""
    draw = np.random.default_rng(3)
    rows = draw.laplace(size=(workers, size)) if heavy else draw.standard_normal((workers, size))
    rows = rows * np.exp(loud * draw.standard_normal((workers, size // BUCKET_SIZE))).repeat(BUCKET_SIZE, axis=1)
    return list(torch.tensor(rows, dtype=torch.float32))


def quantizer(name: str = "alq", **settings: Any) -> AdaptiveQuantizer:
    given = {"bucket_size": BUCKET_SIZE, "rounding": "correlated", "objective": "mean", **settings}
    (made,) = sorted_settings(name, (), given, {})
    return METHODS[name].load()(made)


def fitted(rows: list[torch.Tensor], made: AdaptiveQuantizer) -> Statistics:
    """The merged statistics of the workers, by which the levels have been updated."""
    merged = Statistics.empty(8, sketched=True)
    for worker, vector in enumerate(rows):
        own = Statistics.empty(8, sketched=True)
        made.observe(vector, Key(0, 0, worker, "model"), own)
        merged.merge(Statistics.from_array(own.to_array(), 8))
    made.update(merged)
    return merged


def errors(made: AdaptiveQuantizer, rows: list[torch.Tensor], repeats: int) -> np.ndarray:
    """M times the squared error of the mean over that of E[s^2], by repetition."""
    scales = torch.stack(rows).view(len(rows), -1, BUCKET_SIZE).abs().amax(dim=2)
    unit = float(scales.square().mean()) * rows[0].numel()
    found = []
    for step in range(repeats):
        keys = [Key(7, step, worker, "model", workers=len(rows)) for worker in range(len(rows))]
        decoded = [made.decode(made.encode(x, key)) - x for x, key in zip(rows, keys, strict=True)]
        found.append(len(rows) * float(torch.stack(decoded).mean(dim=0).square().sum()) / unit)
    return np.array(found)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("bits", [2, 3])
def test_the_functional_is_the_error_that_the_kernels_make(workers, bits):
    rows, made = vectors(workers, loud=0.3), quantizer(bits=bits)
    merged = fitted(rows, made)
    for levels in (made.levels, update_rules.alq(merged.fit("histogram"), bits).levels):
        made.set_levels(levels)
        expected = MeanObjective(merged.fit("histogram"), merged.agreement, 512).value(levels.values)
        assert errors(made, rows, 6).mean() == pytest.approx(expected, rel=0.04)


def test_scales_agree_as_they_do():
    for loud in (0.0, 0.3, 1.0):
        rows = vectors(4, 1 << 16, loud=loud)
        scales = torch.stack(rows).view(4, -1, BUCKET_SIZE).abs().amax(dim=2).double()
        products = (scales.sum(dim=0).square() - scales.square().sum(dim=0)).sum() / 3
        assert fitted(rows, quantizer()).agreement == pytest.approx(float(products / scales.square().sum()), abs=0.12)
    assert fitted(rows[:1] * 3, quantizer()).agreement == pytest.approx(1.0)
    assert fitted(rows[:1], quantizer()).agreement == 0.0


def test_gradient():
    """On a law whose density is constant between knots, as the functional takes it."""
    edges = np.linspace(-1, 1, 33)
    masses = np.exp(-3 * np.abs(edges[1:] + edges[:-1]))
    middles = (edges[1:] + edges[:-1]) / 2
    law = Histogram(edges, masses, masses * middles, masses * (middles**2 + 1 / 3 / 32**2))
    objective = MeanObjective(law, 0.8)
    levels = np.array([-1, -0.41, -0.09, 0.02, 0.33, 1.0])
    _, gradient = objective.value_and_gradient(levels)
    for place in range(1, 5):
        step = np.where(np.arange(6) == place, 1e-6, 0.0)
        slope = (objective.value(levels + step) - objective.value(levels - step)) / 2e-6
        assert gradient[place - 1] == pytest.approx(slope, rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("sigma", [0.02, 0.2])
def test_no_grid_holds_better_levels(sigma):
    """Six levels, by brute force over a grid of their two free numbers."""
    law = TruncNorm(0.0, sigma)
    found = refit(update_rules.optimal(law, 6), law, symmetric=True, workers=4, agreement=0.95)
    objective = MeanObjective(law.tabulated(), 0.95)
    grid = sigma * np.linspace(0.1, 5.0, 50)
    pairs = [pair for pair in itertools.combinations(grid, 2) if pair[1] < 1]
    best = min(objective.value(level_sets.from_positive([*pair, 1.0]).values) for pair in pairs)
    assert objective.value(found.levels.values) <= best


@pytest.mark.parametrize("law", [TruncNorm(0.0, 0.05), TruncNorm(0.1, 0.3)])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("num_levels", [4, 7, 16])
def test_levels_for_the_mean_lie_below_those_for_a_message(law, symmetric, num_levels):
    start = update_rules.optimal(law, num_levels, symmetric=symmetric)
    found = refit(start, law, symmetric=symmetric, workers=4, agreement=1.0)
    objective = MeanObjective(law.tabulated(), 1.0)
    assert objective.value(found.levels.values) < 0.999 * objective.value(start.levels.values)
    assert found.levels.symmetric == symmetric or not symmetric
    assert found.expected_variance >= start.expected_variance * (1 - 1e-6)
    assert refit(start, law, symmetric=symmetric, workers=1, agreement=1.0) is start
    apart = refit(start, law, symmetric=symmetric, workers=4, agreement=0.0)  # nothing cancels
    assert apart.levels.values == pytest.approx(start.levels.values, abs=2e-3)


def test_the_multiplier_for_the_mean_is_the_best_of_a_grid():
    law = TruncNorm(0.0, 0.1)
    found = refit(update_rules.amq(law, 3), law, symmetric=True, workers=2, agreement=1.0)
    assert found.p is not None and found.levels == level_sets.exponential(3, found.p)
    objective = MeanObjective(law.tabulated(), 1.0)
    best = min(objective.value(level_sets.exponential(3, p).values) for p in np.linspace(0.05, 0.95, 300))
    assert objective.value(found.levels.values) <= best * 1.0001


@pytest.mark.parametrize("name", ["alq", "amq"])
@pytest.mark.parametrize("loud", [0.0, 1.5])
def test_the_mean_errs_less_and_never_much_more(name, loud):
    """Workers whose scales differ (E[s s'] is a third of E[s^2]) must not lose by it."""
    rows = vectors(4, loud=loud)
    both = {}
    for objective in ("message", "mean"):
        made = quantizer(name=name, bits=2, objective=objective)
        fitted(rows, made)
        both[objective] = errors(made, rows, 8).mean()
    assert both["mean"] < (0.97 if loud == 0 else 1.01) * both["message"]


def test_every_worker_stays_unbiased():
    (x, *others), repeats = vectors(3, 2048), 200
    made = quantizer(bits=2)
    fitted([x, *others], made)
    keys = [Key(1, step, 0, "a", workers=3) for step in range(repeats)]
    found = torch.stack([made.decode(made.encode(x, key)) for key in keys]) - x
    for part in (x, x.abs()):
        along = found @ part
        assert abs(float(along.mean())) < 4.5 * float(along.std()) / repeats**0.5


def test_in_an_exchange():
    """Workers' statistics, their signs and their number reach the solver, and the levels of two stages' means stay."""
    rows = vectors(4)
    seen = {}
    for objective in ("message", "mean"):
        settings = quantizer(bits=2, objective=objective).settings
        shapes = {"a": torch.Size([rows[0].numel()])}
        exchange = Exchange(collective="two_stage")
        of = Workers("alq", settings, 4, shapes, 1, torch.device("cpu"), exchange=exchange)
        of.observe(dict(enumerate(rows)), 0)
        assert of.update_levels() is None
        seen[objective] = of.driver.compressors.every[0].adaptive
    (message, second), (mean, second_of_mean) = seen["message"], seen["mean"]
    made = quantizer(bits=2)
    fitted(rows, made)
    assert mean.levels != message.levels and second_of_mean.levels == second.levels
    assert mean.levels.values == pytest.approx(made.levels.values, abs=0.02)  # other signs, nearly the same agreement


def test_what_it_needs():
    with pytest.raises(ValueError, match="rounding"):
        quantizer(rounding="stochastic")
    with pytest.raises(ValueError, match="median"):
        quantizer(objective="median")
    with pytest.raises(ValueError, match="objective"):
        sorted_settings("qsgdinf", (), {"objective": "mean"}, {})
    with pytest.raises(ValueError, match="objective='mean'"):
        fit_levels(CompressorMap("alq", quantizer().settings, 8), torch.ones(9), [], Key(0, 0, 0))
    made = quantizer()
    assert second_settings("alq", made.settings, 8)[1].objective == "message"
    made.update(fitted(vectors(1), made))  # alone
    assert isinstance(made.levels, Levels)
