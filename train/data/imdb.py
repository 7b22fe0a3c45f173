"""IMDB: 50,000 film reviews, for or against.

Maas and others, "Learning word vectors for sentiment analysis", 2011.

The reviews are read from the folder aclImdb of their archive: ``{train,test}/{neg,pos}/*.txt``, one review each; the
class is 1 for ``pos``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from settings.text import IMDB_SIZES
from train.data.objective import CLASSES

from . import sentences
from .dataset import DataSet
from .sources import damaged, first_existing, missing

KINDS = ("neg", "pos")


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set of the reviews.

    FileNotFoundError for folders that are not there, ValueError for a review that is no text; both name the file.
    """
    data_dir = Path(config["data_dir"])
    home = first_existing(data_dir / place for place in ("aclImdb", "imdb/aclImdb", "imdb")) or data_dir / "aclImdb"
    remedy = f"unpack aclImdb_v1.tar.gz in data_dir (now {data_dir}), or set data_dir; nothing is downloaded here"
    splits = {split: _read(home / split, remedy) for split in ("train", "test")}
    return sentences.tokenized(config["data"], splits, len(KINDS), CLASSES, device)  # type: ignore[arg-type]


def true_size(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """The numbers of reviews of the two splits, and the bytes that they take in memory."""
    return *IMDB_SIZES, sentences.num_bytes(config["data"], sum(IMDB_SIZES))


def stand_in(config: Mapping[str, Any], device: torch.device, num_train: int, num_test: int) -> DataSet:
    """A stand-in of random tokens, always the same."""
    return sentences.random(config["data"], (num_train, num_test), False, len(KINDS), CLASSES, device)


def _read(folder: Path, remedy: str) -> sentences.Examples:
    texts, labels = [], []
    for label, kind in enumerate(KINDS):
        names = (
            sorted(name for name in os.listdir(folder / kind) if name.endswith(".txt"))
            if (folder / kind).is_dir()
            else []
        )
        if not names:
            raise missing("IMDB's reviews", f"{folder / kind}/*.txt", remedy)
        for name in names:
            path = folder / kind / name
            if path.is_dir():
                raise damaged(path, "a review in UTF-8", "a folder")
            try:
                texts.append((path.read_text(encoding="utf-8"),))
            except UnicodeDecodeError as error:
                raise damaged(path, "a review in UTF-8", error) from error
        labels += [label] * len(names)
    return texts, labels
