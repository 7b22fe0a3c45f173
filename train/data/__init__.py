"""The data sets: ``load`` reads one, ``stand_in`` draws random tensors of its shape.

Adding a data set is one file here, with a ``source.Source``, and one line in the catalog, ``settings.data.DATA``.

This room may import ``settings``, ``train.process`` and the rooms below it, and torchvision by ``torchvision_import``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from nuq.settings import plugins, unknown
from settings.data import DATA

from .dataset import DataSet
from .source import Size, Source

__all__ = ["DataSet", "Size", "Source", "load", "source_of", "stand_in", "true_size"]


def source_of(config: Mapping[str, Any]) -> Source:
    """The data set of a resolved configuration, of which nothing is read yet."""
    name = config["data"]["name"]
    if name not in DATA:
        raise unknown("data set", name, DATA)
    return plugins.imported(DATA[name].code)(config)


def load(config: Mapping[str, Any], device: torch.device | str) -> DataSet:
    """The data set of a resolved configuration, on ``device``; its stand-in where the configuration asks for that.

    Raises FileNotFoundError for files that are not there and ValueError for damaged ones; both name the file, what was
    expected and how to get it.
    """
    return stand_in(config, device) if config["stand_in"] else source_of(config).load(torch.device(device))


def stand_in(config: Mapping[str, Any], device: torch.device | str) -> DataSet:
    """Random tensors, always the same, with the data set's shape, type, classes and augmentation of small images."""
    found = source_of(config)
    return found.stand_in(torch.device(device), found.record.num_stand_ins, found.record.num_stand_ins // 4)


def true_size(config: Mapping[str, Any]) -> Size:
    """The size of the data set, here or not; FileNotFoundError where only the files could tell.

    The examples are those that ``data.limit`` leaves; in memory the whole set is, while it is read.
    """
    found = source_of(config)
    num_train, num_test = found.sizes()
    return Size(config["data"]["limit"] or num_train, num_test, found.num_bytes())
