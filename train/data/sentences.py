"""Sentences and pairs of them as tokens in memory, shared by GLUE and IMDB."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train.data.objective import Objective

from . import wordpiece
from .dataset import Arrays, Split

LABEL_BYTES = 8


class Sentences:
    """Examples of sentences, (2, length) of int64: the tokens, and the sentence that each belongs to.

    The second row is 1 for the first sentence's tokens, 2 for the second's, 0 for padding.
    """

    def __init__(
        self,
        name: str,
        train: Arrays,
        test: Arrays,
        num_classes: int,
        objective: Objective,
        device: torch.device,
        *,
        is_stand_in: bool,
    ) -> None:
        """Make the data set of the splits train and test.

        They are of ``wordpiece.encode``, with labels int64 in [0, num_classes) or float32 numbers.
        """
        self.name, self.device, self.is_stand_in = name, device, is_stand_in
        self.num_train, self.num_test = len(train.labels), len(test.labels)
        self.input_shape, self.num_classes, self.objective = train.inputs.shape[1:], num_classes, objective
        digest = hashlib.sha256()
        for arrays in (train, test):
            for values in (arrays.inputs, arrays.labels):
                digest.update(f"{values.dtype} {values.shape} ".encode() + values.tobytes())
        self.fingerprint = digest.hexdigest()[:14]
        self._splits = {
            split: (torch.from_numpy(arrays.inputs).to(device), torch.from_numpy(arrays.labels).to(device))
            for split, arrays in (("train", train), ("test", test))
        }

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The tokens, int64 (batch, 2, length), and labels (batch) of a batch; nothing is random here."""
        del generator
        inputs, labels = self._splits["train"]
        indices = indices.to(self.device)
        return inputs.index_select(0, indices).long(), labels.index_select(0, indices)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels = self._splits[split]
        for start in range(0, len(labels), batch_size):
            yield inputs[start : start + batch_size].long(), labels[start : start + batch_size]


Examples = tuple[list[tuple[str, ...]], Sequence[float]]  # texts, and a class number or a score of each


def tokenized(
    settings: Mapping[str, Any],
    splits: Mapping[Split, Examples],
    num_classes: int,
    objective: Objective,
    device: torch.device,
) -> Sentences:
    """Both splits in the tokens of ``data.tokenizer``, or of a vocabulary that is learned from the training split."""
    tokens = wordpiece.vocabulary(settings, splits["train"][0])
    train, test = (
        Arrays(
            wordpiece.encode(tokens, texts, settings["length"]),
            np.asarray(labels, dtype=np.int64 if objective.counts else np.float32),
        )
        for texts, labels in (splits["train"], splits["test"])
    )
    return Sentences(settings["name"], train, test, num_classes, objective, device, is_stand_in=False)


def random(
    settings: Mapping[str, Any],
    counts: tuple[int, int],
    pairs: bool,
    num_classes: int,
    objective: Objective,
    device: torch.device,
) -> Sentences:
    """Random tokens, always the same, in sentences of random lengths; counts: the numbers of the two splits."""
    draws, length = np.random.default_rng(0), settings["length"]

    def split(count: int) -> Arrays:
        ends = np.sort(draws.integers(3, length + 1, (count, 2, 1)), axis=1)
        places = np.arange(length)
        whose = (places < ends[:, 1]) * (1 + (pairs & (places >= ends[:, 0])))
        tokens = draws.integers(0, wordpiece.num_tokens(settings), (count, length)) * (whose > 0)
        labels = np.arange(count) % num_classes if objective.counts else draws.uniform(0, 5, count).astype(np.float32)
        return Arrays(np.stack([tokens, whose], axis=1).astype(np.int32), labels)

    return Sentences(
        settings["name"], split(counts[0]), split(counts[1]), num_classes, objective, device, is_stand_in=True
    )


def num_bytes(settings: Mapping[str, Any], count: int) -> int:
    """The bytes that so many examples take in memory."""
    token_bytes = 2 if wordpiece.num_tokens(settings) <= 2**15 else 4
    return count * (2 * settings["length"] * token_bytes + LABEL_BYTES)
