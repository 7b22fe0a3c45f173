"""The fingerprint that tells one copy of a data set from another: 14 hexadecimal digits of a SHA-256.

It is the same wherever and in whatever form the files lie.  A data set that is small is hashed whole; of a large one
all labels (or all names), and a sample spread evenly over its examples.  So it takes milliseconds, and an example that
is missing, added or moved is noticed; one that is changed in place only where it was sampled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .pictures import Tree

DIGITS = 14
WHOLE_BYTES = 2**24  # the limit of one split's inputs: 16 MB, which take some 10 ms
NUM_SAMPLED = 1024  # examples of a larger split
NUM_OPENED = 64  # pictures that are opened; of NUM_SAMPLED of them the size is asked for
HEAD_BYTES = 4096


def of_arrays(splits: Iterable[tuple[np.ndarray, np.ndarray]]) -> str:
    """The fingerprint of the decoded (inputs, labels) of each split, whatever the form of the files."""
    digest = hashlib.sha256()
    for inputs, labels in splits:
        chosen = inputs if inputs.nbytes <= WHOLE_BYTES else inputs[_sample(len(inputs), NUM_SAMPLED)]
        for values in (labels, chosen):
            digest.update(f"{values.dtype} {values.shape} {len(inputs)} ".encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:DIGITS]


def of_trees(trees: Iterable[Tree]) -> str:
    """The fingerprint of pictures decoded while training: all their names, some sizes, a few beginnings."""
    digest = hashlib.sha256()
    for tree in trees:
        for name, files in zip(tree.classes, tree.files, strict=True):
            digest.update("\n".join((f"/{name}", *files, "")).encode(errors="surrogateescape"))
        paths = tree.paths()
        for place in _sample(len(paths), NUM_SAMPLED):
            digest.update(b"%d " % os.stat(paths[place]).st_size)
        for place in _sample(len(paths), NUM_OPENED):
            with Path(paths[place]).open("rb") as file:
                digest.update(file.read(HEAD_BYTES))
    return digest.hexdigest()[:DIGITS]


def _sample(count: int, most: int) -> np.ndarray:
    """The indices of at most so many of ``count`` things, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) if count else np.zeros(0, np.int64)
