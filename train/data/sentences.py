"""Sentences and pairs of them as tokens in memory, shared by GLUE and IMDB."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from . import limit, wordpiece
from .dataset import Arrays, InMemory
from .objective import CLASSES, Objective
from .source import Source

Examples = tuple[list[tuple[str, ...]], Sequence[float]]  # texts, and a class number or a score of each


class Sentences(InMemory):
    """Examples of sentences, (2, length) of int64: the tokens, and the sentence that each belongs to.

    They are of ``wordpiece.encode``: the second row is 1 for the first sentence's tokens, 2 for the second's, 0 for
    padding.  Labels are int64 in [0, num_classes) or float32 numbers.
    """

    def _digits_of(self, train: Arrays, test: Arrays) -> str:
        digest = hashlib.sha256()
        for arrays in (train, test):
            for values in (arrays.inputs, arrays.labels):
                digest.update(f"{values.dtype} {values.shape} ".encode() + values.tobytes())
        return digest.hexdigest()[:14]

    def _prepared(self, inputs: Tensor) -> Tensor:
        return inputs.long()


class SentenceSource(Source):
    """A data set of sentences, in the tokens of ``data.tokenizer`` or of a vocabulary learned from those to train."""

    objective: Objective = CLASSES
    pairs = False  # two sentences an example

    def texts(self) -> tuple[Examples, Examples]:
        """Both splits as read.  FileNotFoundError for files that are not there, ValueError for damaged ones."""
        raise NotImplementedError

    def load(self, device: torch.device) -> Sentences:
        (texts, labels), test = self.texts()
        self.tell_other_sizes((len(texts), len(test[0])), self.record.sizes)
        kept = np.arange(len(texts))[limit.chosen(np.asarray(labels), self.settings)]
        train = [texts[place] for place in kept], [labels[place] for place in kept]
        tokens = wordpiece.vocabulary(self.settings, train[0])

        def encoded(examples: Examples) -> Arrays:
            texts, labels = examples
            inputs = wordpiece.encode(tokens, texts, self.settings["length"])
            return Arrays(inputs, np.asarray(labels, dtype=np.int64 if self.objective.counts else np.float32))

        return self._sentences(encoded(train), encoded(test), device)

    def input_shape(self) -> tuple[int, ...]:
        return (2, self.settings["length"])

    def num_tokens(self) -> int:
        return wordpiece.num_tokens(self.settings)

    def example_bytes(self) -> int:
        return 2 * self.settings["length"] * (2 if self.num_tokens() <= 2**15 else 4)

    def stand_in(self, device: torch.device, num_train: int, num_test: int) -> Sentences:
        """So many examples of random tokens, always the same, in sentences of random lengths."""
        draws, length = np.random.default_rng(0), self.settings["length"]

        def split(count: int) -> Arrays:
            ends = np.sort(draws.integers(3, length + 1, (count, 2, 1)), axis=1)
            places = np.arange(length)
            whose = (places < ends[:, 1]) * (1 + (self.pairs & (places >= ends[:, 0])))
            tokens = draws.integers(0, self.num_tokens(), (count, length)) * (whose > 0)
            classes = np.arange(count) % self.num_classes
            labels = classes if self.objective.counts else draws.uniform(0, 5, count).astype(np.float32)
            return Arrays(np.stack([tokens, whose], axis=1).astype(np.int32), labels)

        return self._sentences(split(num_train), split(num_test), device, is_stand_in=True)

    def _sentences(self, train: Arrays, test: Arrays, device: torch.device, *, is_stand_in: bool = False) -> Sentences:
        return Sentences(
            self.name, train, test, self.num_classes, device, objective=self.objective, is_stand_in=is_stand_in
        )
