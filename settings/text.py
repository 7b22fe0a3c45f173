"""Settings of data sets of sentences and of the models that read them, and what the GLUE tasks are.

This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import setting
from settings.limit import Limited

# --- data ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One of GLUE's tasks: its folder in the official archive, its training pairs and those of dev, the test split that
    papers report.

    labels: as the files have them, a class being the place of its own; none for a score.  texts, label: names of
    columns.  scores: what is reported beside accuracy, or in its place.
    """

    folder: str
    num_train: int
    num_dev: int
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    label: str = "label"
    dev: str = "dev.tsv"
    columns: tuple[str, ...] = ()  # of files without a header
    scores: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Outputs of a model: one for a score."""
        return len(self.labels) or 1


NO_YES = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
PAIR = ("sentence1", "sentence2")
TASKS: dict[str, Task] = {
    "cola": Task(
        "CoLA", 8551, 1043, NO_YES, ("sentence",), columns=("source", "label", "mark", "sentence"), scores=("matthews",)
    ),
    "sst2": Task("SST-2", 67_349, 872, NO_YES, ("sentence",)),
    "mrpc": Task("MRPC", 3668, 408, NO_YES, ("#1 String", "#2 String"), label="Quality", scores=("f1",)),
    "qqp": Task("QQP", 363_846, 40_430, NO_YES, ("question1", "question2"), label="is_duplicate", scores=("f1",)),
    "stsb": Task("STS-B", 5749, 1500, (), PAIR, label="score", scores=("pearson", "spearman")),
    "mnli": Task(
        "MNLI",
        392_702,
        9815,
        ("entailment", "neutral", "contradiction"),
        PAIR,
        label="gold_label",
        dev="dev_matched.tsv",
    ),
    "qnli": Task("QNLI", 104_743, 5463, ENTAILMENT, ("question", "sentence")),
    "rte": Task("RTE", 2490, 277, ENTAILMENT, PAIR),
    "wnli": Task("WNLI", 635, 71, NO_YES, PAIR),
}


@dataclass
class Sentences(Limited):
    """Sentences, or pairs of them, as tokens of BERT's WordPiece."""

    length: int = setting(
        128,
        "tokens of an example, [CLS] and [SEP] counted: longer ones are cut, shorter ones padded",
        low=8,
        high=100_000,
    )
    tokenizer: str = setting(
        "",
        "folder with BERT's vocab.txt; empty: a vocabulary learned from the training split, so that nothing is needed",
    )
    vocabulary: int = setting(
        8000,
        "tokens of the learned vocabulary; BERT's own, for far more text, has 30522",
        low=100,
        high=10**6,
        read_if=("tokenizer", ""),
    )


@dataclass
class Glue(Sentences):
    """GLUE's tasks, from the files of its archive in ``data_dir/glue``; dev is the test split."""

    task: str = setting(
        "stsb", "which of GLUE's; SmaQ's are stsb (a score, so that the loss is squared) and wnli", choices=tuple(TASKS)
    )


@dataclass
class Imdb(Sentences):
    """Film reviews that are for or against, from the folder aclImdb of their archive, in ``data_dir``."""


# --- models -------------------------------------------------------------------------------------------------------

FROM_SCRATCH = ("weights", "")


@dataclass
class BertSettings:
    """Settings of BERT beside those of all models."""

    weights: str = setting(
        "",
        "folder with config.json and model.safetensors or pytorch_model.bin, from which training starts; empty: from "
        "scratch",
    )
    layers: int = setting(
        2, "blocks; small enough for a laptop (bert-base: 12)", low=1, high=1000, read_if=FROM_SCRATCH
    )
    heads: int = setting(
        2, "heads of an attention; they divide the width (bert-base: 12)", low=1, high=1000, read_if=FROM_SCRATCH
    )
    width: int = setting(128, "size of an embedding (bert-base: 768)", low=1, high=100_000, read_if=FROM_SCRATCH)
    dropout: float = setting(
        0.1, "share of activations, and of attention, that is dropped in training; BERT's value", low=0, high=1
    )


def check_text(config: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of sentences do not go with one another or with the rest.

    The settings of a model of sentences count, too.
    """
    data, model = config["data"], config["model"]
    if data.get("task") == "stsb" and config["label_smoothing"]:
        raise ValueError(
            f"label_smoothing={config['label_smoothing']}: data.task=stsb has scores, not classes; legal here: 0"
        )
    if model.get("weights") and data.get("tokenizer") == "":
        raise ValueError(
            f"model.weights={model['weights']!r}: these weights know the tokens of their own vocab.txt, and "
            "data.tokenizer='' learns others; set data.tokenizer to its folder, customarily the same"
        )
