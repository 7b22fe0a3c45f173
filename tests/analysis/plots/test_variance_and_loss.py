"""What variance and tails explain of the final loss, on losses that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import linregress, t

from analysis.logs.load import load
from analysis.plots.finished import styled
from analysis.plots.variance_and_loss import regression, variance_and_loss
from tests.analysis.plots.test_comparisons import assert_nothing_overlaps

GENERATOR = np.random.default_rng(3)


def test_the_regression_is_scipys_for_one_quantity() -> None:
    x, noise = GENERATOR.standard_normal(20), GENERATOR.standard_normal(20)
    loss = 1 + 0.3 * x + 0.1 * noise
    slope, _, correlation, _, error = map(float, linregress(np.delete(x, 3), np.delete(loss, 3)))
    x[3] = np.nan
    found = regression(loss, {"variance": x})
    assert found is not None
    assert found.slopes["variance"] == pytest.approx((slope, t.ppf(0.975, 17) * error))
    assert (found.r2, found.n) == (pytest.approx(float(correlation) ** 2), 19)


def test_two_quantities_part_what_they_explain() -> None:
    variance, kurtosis = GENERATOR.standard_normal((2, 30))
    found = regression(2 + 0.5 * variance - 0.2 * kurtosis, {"variance": variance, "error_kurtosis": kurtosis})
    assert found is not None
    assert found.slopes["variance"] == pytest.approx((0.5, 0), abs=1e-9)
    assert found.slopes["error_kurtosis"] == pytest.approx((-0.2, 0), abs=1e-9)
    assert found.r2 == pytest.approx(1)


def test_too_few_methods_or_equal_columns_have_no_line() -> None:
    some, many = GENERATOR.standard_normal(7), np.arange(20.0)
    assert regression(some, {"variance": some}) is None
    assert regression(many, {"variance": many, "error_max": 2 * many}) is None
    assert regression(np.ones(20), {"variance": many}) is None


def runs(write_run: Callable[..., Path], bits: range) -> None:
    """QSGDinf and ALQ, whose losses are .1 times the logarithm of the added variance above 1."""
    for place, method in enumerate(("qsgdinf", "alq")):
        for each in bits:
            added = 4.0 ** (place - each)
            measured = [("est_var", 0, 1 + added), ("super_var", 0, 1.0), ("error_kurtosis", 0, 3.0 + each)]
            for seed in (1, 2):
                loss = 1 + 0.1 * np.log10(added) + 0.001 * seed
                write_run("s", {"method": method, "method.bits": each, "seed": seed}, [*measured, ("Vloss", 5, loss)])
    write_run("s", {"method": "alq", "method.bits": 3, "seed": 3}, [("Vloss", 1, 9.0)], state="running")
    write_run("s", {"method": "supersgd"}, [("Vloss", 5, 1.0)])


def test_the_figure_has_a_point_for_each_method_and_says_the_slope(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    runs(write_run, range(2, 7))
    figure = variance_and_loss(load(tmp_path / "runs", "s"), 7.0)
    assert isinstance(figure, Figure)
    first, second = figure.axes  # nobody logged the largest error
    pm, squared = "\N{PLUS-MINUS SIGN}", "R\N{SUPERSCRIPT TWO}"
    assert first.get_title("right") == f"+0.100 {pm} 0.000 per factor of 10\n{squared} 1.00, n 10"
    assert f"\n+0.000 {pm} 0.000 given the variance" in second.get_title("right")
    points = {line.get_label(): np.asarray(line.get_xdata(), float) for line in first.lines if line.get_gid() == "mean"}
    np.testing.assert_allclose(points["ALQ (10 of 11 runs)"], 4.0 ** -np.arange(5.0, 0, -1))
    assert set(points) == {"ALQ (10 of 11 runs)", "QSGDinf"}
    assert max(float(np.max(line.get_ydata())) for line in first.lines) < 2


def test_three_panels_stand_side_by_side_on_a_page(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for bits in range(2, 7):
        for place, method in enumerate(("qsgdinf", "alq")):
            added = 4.0 ** (place - bits)
            rows = [("est_var", 0, 1 + added), ("super_var", 0, 1.0), ("error_kurtosis", 0, 3.0 + bits)]
            write_run(
                "s", {"method": method, "method.bits": bits}, [*rows, ("error_max", 0, 2.0 + bits), ("Vloss", 5, added)]
            )
    figure = styled(variance_and_loss, load(tmp_path / "runs", "s"), 7.0)
    assert isinstance(figure, Figure)
    assert_nothing_overlaps(figure)
    assert len({round(axes.get_position().y1, 3) for axes in figure.axes}) == 1
    assert [axes.get_ylabel() for axes in figure.axes] == ["final validation loss", "", ""]


def test_few_methods_have_no_figure(write_run: Callable[..., Path], tmp_path: Path) -> None:
    runs(write_run, range(2, 4))
    found = variance_and_loss(load(tmp_path / "runs", "s"), 7.0)
    assert isinstance(found, str)
    assert "fewer than 8 settings of methods have logged Vloss and est_var" in found
