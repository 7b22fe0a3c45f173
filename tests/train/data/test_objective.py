"""Losses and scores against formulas written out, and libraries' own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics
from torch import Tensor, nn

from settings import resolving
from train import data
from train.data import objective
from train.data.objective import CLASSES, SCORES, Tally
from train.steps import gradients

SMALL = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30)
TWO = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


def columns(pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    return [np.array(column) for column in zip(*pairs, strict=True)]


@given(SMALL)
def test_correlations_are_scipys_and_zero_where_it_has_none(pairs: list[tuple[int, int]]) -> None:
    x, y = columns(pairs)
    for name, theirs in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.ConstantInputWarning)
            expected = float(theirs(x, y).statistic)  # type: ignore[union-attr]
        assert SCORES[name](x, y) == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-9)


@given(TWO)
def test_scores_of_two_classes_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    predicted, true = columns(pairs)
    f1 = metrics.f1_score(true, predicted, zero_division=0.0)  # type: ignore[arg-type]
    assert objective.f1(predicted, true) == pytest.approx(f1)
    expected = metrics.matthews_corrcoef(true, predicted) if len(set(true) | set(predicted)) > 1 else 0
    assert objective.matthews(predicted, true) == pytest.approx(expected, abs=1e-9)


def test_the_loss_of_numbers_is_their_squared_distance() -> None:
    output, target = torch.tensor([[1.0], [4.0], [0.5]]), torch.tensor([2.0, 2.0, 0.5])
    assert float(objective.squared_error(output, target)) == pytest.approx(5 / 3)
    assert float(objective.squared_error(output, target, reduction="sum")) == 5


def test_a_tally_of_batches_is_that_of_the_whole() -> None:
    draws = torch.Generator().manual_seed(0)
    output, target = torch.randn(20, 1, generator=draws), torch.rand(20, generator=draws)
    parts, whole = Tally(objective.numbers(["pearson", "spearman"])), Tally(objective.numbers(["pearson", "spearman"]))
    whole.add(output, target)
    for start in (0, 7, 14):
        parts.add(output[start : start + 7], target[start : start + 7])
    assert parts.values() == pytest.approx(whole.values(), rel=1e-6)
    assert whole.values().keys() == {"loss", "pearson", "spearman"}
    assert whole.values()["loss"] == pytest.approx(float((output[:, 0] - target).square().mean()))


class Rows:
    """A data set of six examples."""

    objective = CLASSES

    def batches(self, split: str, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        del split
        for start in range(0, 6, batch_size):
            yield (
                torch.eye(3)[[0, 1, 2, 0, 1, 2]][start : start + batch_size],
                torch.tensor([0, 1, 1, 0, 2, 2])[start : start + batch_size],
            )


def test_classes_are_what_a_data_set_asks_for_unless_it_says_otherwise() -> None:
    assert data.load(resolving.resolve({}), "cpu").objective is CLASSES
    found = gradients.evaluate(nn.Identity(), Rows(), "train", 4)  # type: ignore[arg-type]
    right, wrong = float(np.log(1 + 2 / np.e)), float(np.log(2 + np.e))
    assert found == pytest.approx(
        {"Tloss": (4 * right + 2 * wrong) / 6, "Tcorrect": 4, "Twrong": 2, "Tacc": 100 * 4 / 6, "Terror": 100 * 2 / 6}
    )


def test_an_evaluation_in_words() -> None:
    assert (
        objective.told({"Vloss": 0.27131, "Vacc": 91.301, "Vf1": 0.5})
        == "test accuracy 91.30 %, test F1 0.5000, test loss 0.2713"
    )
    found = objective.told({"Vloss": 1.0, "Vpearson": 0.79421, "Vspearman": 0.7})
    assert found == "test Pearson's correlation 0.7942, test Spearman's 0.7000, test loss 1.0000"
