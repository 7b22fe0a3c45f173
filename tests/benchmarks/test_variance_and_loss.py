"""Whether variance predicts training: the arithmetic, on settings whose line is known."""

from __future__ import annotations

import math

import pytest

from benchmarks.variance_and_loss import KURTOSIS, LARGEST, RATE, explained


def rows(slope: float, count: int = 12, of_rate: float = 0.0) -> list[dict[str, float]]:
    """Settings on a line of the variance, whose tails and rates are other directions."""
    return [
        {
            "loss": 1 + slope * x / 10 + of_rate * (x % 3),
            "variance": x / 10,
            KURTOSIS: (7 * x % 12) / 5,
            LARGEST: (5 * x % 12) / 7,
            RATE: float(x % 3),
        }
        for x in range(count)
    ]


def test_a_line_is_found_and_nothing_beside_it() -> None:
    found = explained(rows(0.5))
    variance = found["variance"]
    assert variance["slope"] == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5})
    assert (variance["r2"], variance["tau"], variance["settings"]) == (pytest.approx(1), pytest.approx(1), 12)
    assert found[KURTOSIS]["r2"] < 0.2
    assert found[LARGEST]["beside_variance"]["slope"]["mean"] == pytest.approx(0, abs=1e-9)


def test_what_the_rate_explains_is_not_the_variances() -> None:
    variance = explained(rows(0.5, of_rate=-3.0))["variance"]
    assert variance["slope"]["high"] - variance["slope"]["low"] > 1, "alone it drowns"
    assert variance["beside_rate"]["slope"] == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5})


def test_a_setting_without_a_variance_counts_for_the_tails_alone() -> None:
    found = explained([*rows(-0.2), {"loss": 2.0, "variance": math.nan, KURTOSIS: 1.0, LARGEST: 1.0, RATE: 0.0}])
    assert found["settings"] == 13
    assert found["variance"]["settings"] == found[KURTOSIS]["beside_variance"]["settings"] == 12
    assert found[KURTOSIS]["settings"] == 13
    assert found["variance"]["tau"] == pytest.approx(-1)


def test_too_few_settings_are_told() -> None:
    with pytest.raises(SystemExit, match="5 settings have logged variance and a loss: too few"):
        explained(rows(0.5, 5))
