"""``benchmarks.mean_error``: its figures by hand, and that a bias would be seen."""

from __future__ import annotations

import pytest
import torch

from benchmarks import mean_error
from benchmarks.mean_error import Error, figures, measured, quantizer
from nuq.compressors.quantized import trn
from nuq.settings.quantizers import TRN


def gradients() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    common = torch.randn(2000, generator=generator)
    return [common + torch.randn(2000, generator=generator) for _ in range(4)]


@pytest.mark.slow
def test_what_is_unbiased_passes_and_what_clips_does_not() -> None:
    x = gradients()
    for rounding in mean_error.ROUNDINGS:
        assert measured(quantizer("QSGDinf", rounding, x), x, 150).bias_sigma < 4
    assert measured(trn(TRN(clip_sigma=1.0)), x, 150).bias_sigma > 10


def test_the_error_of_a_mean_is_a_quarter_of_a_messages_where_workers_differ() -> None:
    """With as much length in the mean as in a worker's gradient, which is where R = 1."""
    x = [torch.randn(2000, generator=torch.Generator().manual_seed(1))] * 4
    found = measured(quantizer("QSGDinf", "stochastic", x), x, 60)
    assert found.of_mean == pytest.approx(found.of_message / 4, rel=0.1)
    assert found.bits == pytest.approx(3.1, abs=0.2)


def test_figures_are_medians_over_moments() -> None:
    def errors(*of_mean: float) -> list[Error]:
        return [Error(value, 1.0, 3.0, value) for value in of_mean]

    titles = ("QSGDinf", "ALQ, l2")
    found = {(titles[0], "stochastic"): errors(1, 1, 1), (titles[0], "correlated"): errors(0.5, 0.2, 0.4)}
    found |= {(titles[1], "stochastic"): errors(2, 2, 2), (titles[1], "correlated"): errors(1, 1, 2.5)}
    said = figures(found, {"QSGDinf": (1.0, 0.9, 1.4), "ALQ, l2": (1.2, 1.1, 1.3)}, "those")
    assert said["corr_over_ind_qsgdinf"] == {"median": 0.4, "low": 0.2, "high": 0.5}
    assert said["corr_over_ind_alq_l2"] == {"median": 0.5, "low": 0.5, "high": 1.25}
    assert (said["best"], said["best_over_alq_l2"]) == ("QSGDinf", {"median": 0.2, "low": 0.1, "high": 0.25})
    assert (said["bias_sigma"], said["bits"]) == (2.5, [3.0, 3.0])
    assert said["encode_cost"] == {"median": 1.1, "low": 1.0, "high": 1.2}
    assert said["encode_costs"]["QSGDinf"] == (1.0, 0.9, 1.4)
