"""Synthetic logistic regression: points of a random linear model with label noise."""

from __future__ import annotations

import numpy as np

from .dataset import Arrays
from .source import Source, Splits


class Points(Source):
    """The points x ~ N(0, I) with label argmax_c <w_c, x>, w_c ~ N(0, I).

    A share ``noise`` of labels is drawn at random.  The task (w), its training points and its test points each have a
    stream of ``data_seed`` of their own: more training points leave the first ones, the task and the test set as they
    were.  The class count is part of the name (``logreg5``).  The best possible accuracy is 1 - noise * (1 - 1 /
    classes), and a linear model reaches it.
    """

    def read(self) -> Splits:
        settings, num_classes = self.settings, self.num_classes
        seed, num_features = settings["data_seed"], settings["num_features"]
        weights = np.random.default_rng([seed, num_classes, 0]).standard_normal((num_features, num_classes))

        def points(split: int, count: int) -> Arrays:
            inputs = np.random.default_rng([seed, num_classes, split, 0]).standard_normal((count, num_features))
            noise, anything = np.random.default_rng([seed, num_classes, split, 1]).random((count, 2)).T
            labels = np.argmax(inputs @ weights, axis=1)
            labels = np.where(noise < settings["noise"], (anything * num_classes).astype(np.int64), labels)
            return Arrays(inputs.astype(np.float32), labels)

        return points(1, settings["num_train"]), points(2, settings["num_test"])

    def input_shape(self) -> tuple[int, ...]:
        return (self.settings["num_features"],)

    def example_bytes(self) -> int:
        return 4 * self.settings["num_features"]

    def _drawn(self, draws: np.random.Generator, count: int) -> np.ndarray:
        return draws.standard_normal((count, *self.input_shape()), dtype=np.float32)
