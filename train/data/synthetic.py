"""Synthetic logistic regression: points of a random linear model with label noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .dataset import Arrays, DataSet, InMemory


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The points x ~ N(0, I) with label argmax_c <w_c, x>, w_c ~ N(0, I).

    A share ``noise`` of labels is drawn at random.

    The task (w), its training points and its test points each have a stream of ``data_seed`` of their own: more
    training points leave the first ones, the task and the test set as they were.  The class count is part of the name
    (``logreg5``).  The best possible accuracy is 1 - noise * (1 - 1 / classes), and a linear model reaches it.
    """
    settings = config["data"]
    num_classes = int(settings["name"].removeprefix("logreg"))
    seed, num_features = settings["data_seed"], settings["num_features"]
    if seed < 0:
        raise ValueError(f"data.data_seed={seed}: must be at least 0")
    weights = np.random.default_rng([seed, num_classes, 0]).standard_normal((num_features, num_classes))

    def points(split: int, count: int) -> Arrays:
        inputs = np.random.default_rng([seed, num_classes, split, 0]).standard_normal((count, num_features))
        noise, anything = np.random.default_rng([seed, num_classes, split, 1]).random((count, 2)).T
        labels = np.argmax(inputs @ weights, axis=1)
        labels = np.where(noise < settings["noise"], (anything * num_classes).astype(np.int64), labels)
        return Arrays(inputs.astype(np.float32), labels)

    return InMemory(
        settings["name"], points(1, settings["num_train"]), points(2, settings["num_test"]), num_classes, device
    )
