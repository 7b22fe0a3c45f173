"""The setting of every data set that trains on a part of it.  Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import setting

LIMIT = (
    "train on the first so many examples alone (0: on all; of a text, windows); where they lie class by class, the "
    "classes take turns; the test set stays whole"
)


@dataclass
class Limited:
    """The setting that all data sets have."""

    limit: int = setting(0, LIMIT, low=0, identity="unless default")


def check_within(data: Mapping[str, Any], num_train: int) -> None:
    """Raise ValueError where the limit of these settings of a data set is above its training examples."""
    if data["limit"] > num_train:
        raise ValueError(
            f"data.limit={data['limit']}: data={data['name']} has {num_train} training examples; legal: at most "
            f"{num_train}, or 0 for all of them"
        )
