"""IMDB: 50,000 film reviews, for or against.

Maas and others, "Learning word vectors for sentiment analysis", 2011.  The reviews are read from the folder aclImdb of
their archive: ``{train,test}/{neg,pos}/*.txt``, one review each; the class is 1 for ``pos``.
"""

from __future__ import annotations

import os
from pathlib import Path

from .data_files import damaged, first_existing, missing
from .sentences import Examples, SentenceSource

KINDS = ("neg", "pos")


class Imdb(SentenceSource):
    """The reviews; errors name the folder that is not there, or the review that is no text."""

    def texts(self) -> tuple[Examples, Examples]:
        data_dir = self.data_dir
        home = first_existing(data_dir / place for place in self.record.places) or data_dir / self.record.places[0]
        remedy = f"unpack aclImdb_v1.tar.gz in data_dir (now {data_dir}), or set data_dir; nothing is downloaded here"
        return _read(home / "train", remedy), _read(home / "test", remedy)


def _read(folder: Path, remedy: str) -> Examples:
    texts, labels = [], []
    for label, kind in enumerate(KINDS):
        found = os.listdir(folder / kind) if (folder / kind).is_dir() else []
        names = sorted(name for name in found if name.endswith(".txt"))
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
