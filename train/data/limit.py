"""The examples that ``data.limit`` leaves to train on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from settings.limit import check_within


def chosen(labels: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray | slice:
    """The indices of the examples to train on, in order; ValueError for a limit above their number.

    These are the first ``data.limit``.  Where the examples lie class by class, as files in one folder per class do, the
    first ones would be of one class: there the first of each class comes first, then the second of each, and so on.
    """
    limit = settings["limit"]
    check_within(settings, len(labels))
    if not limit:
        return slice(None)
    if (labels[:-1] > labels[1:]).any():
        return np.arange(limit)
    _, starts, classes = np.unique(labels, return_index=True, return_inverse=True)
    place_in_class = np.arange(len(labels)) - starts[classes]
    return np.sort(np.lexsort((classes, place_in_class))[:limit])
