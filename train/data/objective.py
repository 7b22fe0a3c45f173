"""The objective that a data set sets for a model: the loss that is trained on, and what an evaluation tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

Score = Callable[[np.ndarray, np.ndarray], float]  # a function of the predictions for a whole split, and its labels


class Loss(Protocol):
    """A loss of outputs and labels: the mean over them, or with reduction="sum" their sum."""

    def __call__(
        self, output: Tensor, target: Tensor, *, label_smoothing: float = 0.0, reduction: str = "mean"
    ) -> Tensor: ...


@dataclass(frozen=True)
class Objective:
    """The objective of a data set: a loss to train on, and what an evaluation tells.

    loss: what is trained on; predicted: of outputs; counts: whether predictions are right or wrong, so that there is an
    accuracy.

    scores: what else an evaluation tells, by name: functions of all predictions and labels of a split.
    """

    loss: Loss
    predicted: Callable[[Tensor], Tensor]
    counts: bool = True
    scores: Mapping[str, Score] = field(default_factory=dict)


def loss_of(output: Tensor, target: Tensor, *, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """The cross-entropy of logits (..., num_classes) against labels (...); a text has a prediction at every place."""
    return cross_entropy(
        output.reshape(-1, output.shape[-1]), target.reshape(-1), label_smoothing=label_smoothing, reduction=reduction
    )


def squared_error(output: Tensor, target: Tensor, *, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """The error (output - target)^2 of outputs (batch, 1) against numbers (batch); settings refuse to smooth them."""
    assert label_smoothing == 0
    return mse_loss(output.squeeze(-1), target, reduction=reduction)


def most_likely(output: Tensor) -> Tensor:
    """The class with the largest logit: (..., num_classes) to (...)."""
    return output.argmax(dim=-1)


CLASSES = Objective(loss_of, most_likely)


# --- scores -------------------------------------------------------------------------------------------------------


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The correlation of predictions and labels, in [-1, 1]; 0 where either is constant and so tells nothing."""
    x, y = (values - values.mean() for values in (predictions.astype(np.float64), labels.astype(np.float64)))
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The correlation of the ranks of predictions and labels; equal values share the mean of their ranks."""
    from scipy.stats import rankdata  # takes half a second to import, and few runs have scores

    return pearson(rankdata(predictions), rankdata(labels))


matthews = pearson  # Matthews' correlation of two classes is Pearson's


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The F1 score of class 1: 2 hits / (2 hits + misses + false alarms), in [0, 1]; 0 where there is none of it."""
    hits, either = int(((predictions == 1) & (labels == 1)).sum()), int((predictions == 1).sum() + (labels == 1).sum())
    return 2 * hits / either if either else 0.0


SCORES: dict[str, Score] = {"pearson": pearson, "spearman": spearman, "matthews": matthews, "f1": f1}


def classes(scores: Iterable[str] = ()) -> Objective:
    """The objective for classes, with the scores of these names beside the accuracy."""
    return Objective(loss_of, most_likely, scores={name: SCORES[name] for name in scores})


def numbers(scores: Iterable[str]) -> Objective:
    """The objective for numbers to come near to: an evaluation tells these of SCORES, and no accuracy."""
    chosen = {name: SCORES[name] for name in scores}
    return Objective(squared_error, lambda output: output.squeeze(-1), counts=False, scores=chosen)


class Tally:
    """The outputs and labels of a split, collected batch by batch, and the values computed from them."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.loss, self.correct, self.total = 0.0, 0, 0
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, output: Tensor, target: Tensor) -> None:
        """Add the outputs and labels of one batch."""
        self.loss += float(self.objective.loss(output, target, reduction="sum"))
        predicted = self.objective.predicted(output)
        if self.objective.counts:
            self.correct += int((predicted == target).sum())
        self.total += target.numel()
        if self.objective.scores:
            self._kept.append((predicted.cpu(), target.cpu()))

    def values(self) -> dict[str, float]:
        """The values: ``loss``; of right and wrong ``correct wrong acc error`` (acc, error in %); then the scores."""
        total, correct, found = self.total, self.correct, {"loss": self.loss / self.total}
        if self.objective.counts:
            wrong = total - correct
            found |= {"correct": float(correct), "wrong": float(wrong)}
            found |= {"acc": 100 * correct / total, "error": 100 * wrong / total}
        if self._kept:
            predicted, target = (torch.cat(parts).numpy() for parts in zip(*self._kept, strict=True))
            found |= {name: score(predicted, target) for name, score in self.objective.scores.items()}
        return found


WORDS = {"pearson": "Pearson's correlation", "spearman": "Spearman's", "matthews": "Matthews' correlation", "f1": "F1"}


def told(values: Mapping[str, float]) -> str:
    """An evaluation of the test split in words: ``test accuracy 91.30 %, test loss 0.2713``."""
    parts = [f"test accuracy {values['Vacc']:.2f} %"] if "Vacc" in values else []
    parts += [f"test {word} {values[f'V{name}']:.4f}" for name, word in WORDS.items() if f"V{name}" in values]
    return ", ".join([*parts, f"test loss {values['Vloss']:.4f}"])
