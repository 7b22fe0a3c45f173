"""Files of GLUE and IMDB in their true format, and what the tests skip without the extra ``nlp``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from settings import text

HAS_EXTRA = all(importlib.util.find_spec(name) for name in ("transformers", "tokenizers"))
needs_extra = pytest.mark.skipif(
    not HAS_EXTRA, reason="transformers and tokenizers are not installed: pip install '.[nlp]'"
)

# The columns of the official files, training and dev; a letter for the place of a sentence or a label, else what is in
# them.
HEADERS = {
    "sst2": "sentence label",
    "mrpc": "Quality,#1 ID,#2 ID,#1 String,#2 String",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "stsb": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "mnli": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
    "sentence1 sentence2 label1 gold_label",
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
}
MNLI_DEV = HEADERS["mnli"].replace("label1", "label1 label2 label3 label4 label5")
SUBJECTS = ("the cat", "a dog", "one bird", "my friend", 'the "old" man', "a naïve girl")
VERBS = ("sees", "likes", "does not like", "finds", "eats")


def sentence(number: int) -> str:
    """One of 150; those of the same number are the same."""
    subject, verb, thing = SUBJECTS[number % 6], VERBS[number // 6 % 5], SUBJECTS[number // 30 % 5]
    return f"{subject.capitalize()} {verb} {thing}."


def label(task: str, number: int) -> str:
    """The labels in turn; a score is higher where the two sentences are more alike."""
    labels = text.TASKS[task].labels
    return labels[number % len(labels)] if labels else f"{number % 6 * 0.95:.3f}"


def texts(task: str, number: int) -> tuple[str, ...]:
    """The texts of a row: the sentence of its number and, in pairs, itself or another."""
    return tuple(sentence(number + place * (5 - number % 6)) for place in range(len(text.TASKS[task].texts)))


def row(task: str, number: int, header: str = "") -> str:
    """One line of the task's file."""
    chosen = text.TASKS[task]
    if task == "cola":
        return "\t".join(["gj04", label(task, number), "*" * (number % 2), sentence(number)])
    names = columns(header or HEADERS[task])
    fields = dict(zip(chosen.texts, texts(task, number), strict=True)) | {chosen.label: label(task, number)}
    return "\t".join(
        fields.get(name, f"{number}" if "ID" in name or name in ("index", "id") else "(a)") for name in names
    )


def columns(header: str) -> list[str]:
    return header.split("," if "," in header else None)


def write_task(data_dir: Path, task: str, num_train: int = 48, num_dev: int = 12) -> Path:
    """``data_dir/glue/<task's folder>`` with train.tsv and dev.tsv; returns the folder."""
    chosen = text.TASKS[task]
    folder = data_dir / "glue" / chosen.folder
    folder.mkdir(parents=True)
    for name, numbers in (("train.tsv", range(num_train)), (chosen.dev, range(num_train, num_train + num_dev))):
        header = MNLI_DEV if name == "dev_matched.tsv" else HEADERS.get(task, "")
        head = ["\t".join(columns(header))] if header else []
        (folder / name).write_text(
            "\n".join([*head, *(row(task, number, header) for number in numbers)]) + "\n", encoding="utf-8"
        )
    return folder


def write_imdb(data_dir: Path, count: int = 12) -> Path:
    """``data_dir/aclImdb`` with so many reviews of each kind in each split, and what else the archive holds; returns
    the folder.
    """
    home = data_dir / "aclImdb"
    for split in ("train", "test"):
        for kind, stars in (("neg", 2), ("pos", 9)):
            folder = home / split / kind
            folder.mkdir(parents=True)
            for number in range(count):
                text = f"{sentence(number)}<br /><br />I {'hate' if kind == 'neg' else 'love'} it."
                (folder / f"{number}_{stars}.txt").write_text(text, encoding="utf-8")
        (home / split / "labeledBow.feat").write_text("9 0:9 1:1\n")
    (home / "train" / "unsup").mkdir()
    (home / "train" / "unsup" / "0_0.txt").write_text("A review without a label.")
    (home / "imdb.vocab").write_text("the\nand\n")
    return home


def write_vocabulary(folder: Path, *words: str) -> Path:
    """A folder with a ``vocab.txt``; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n", encoding="utf-8"
    )
    return folder
