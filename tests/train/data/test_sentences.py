"""WordPiece, and the readers of GLUE and IMDB, on small files of their true format."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from settings import resolving, text
from tests.train import glue_files
from tests.train.glue_files import needs_extra, write_imdb, write_task, write_vocabulary
from train import data
from train.data import wordpiece
from train.data.sentences import Sentences

TASKS = list(text.TASKS)
SMALL = {"data.vocabulary": 200, "data.length": 24}


def load(name: str, data_dir: Path, /, **chosen: object) -> Sentences:
    settings = {
        "data": name,
        "data_dir": str(data_dir),
        **SMALL,
        **{f"data.{key}": value for key, value in chosen.items()},
    }
    if chosen.get("tokenizer"):
        del settings["data.vocabulary"]
    found = data.load(resolving.resolve(settings), "cpu")
    assert isinstance(found, Sentences)
    return found


def everything(dataset: Sentences, split: str) -> tuple[np.ndarray, np.ndarray]:
    parts = list(dataset.batches(split, 7))  # type: ignore[arg-type]
    return torch.cat([x for x, _ in parts]).numpy(), torch.cat([y for _, y in parts]).numpy()


# --- WordPiece -----------------------------------------------------------------------------------------------------


def test_the_most_frequent_pair_is_joined() -> None:
    counts = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
    special, letters = list(wordpiece.SPECIAL), ["##u", "##g", "p", "##n", "h", "##s", "b"]
    found = wordpiece.learned(counts, 5 + 14)
    assert found[: 5 + 7] == special + letters
    # u-g 20, then u-n 16, h-ug 15, then p-un 12; hug-s and p-ug have 5 each, so the alphabet decides, and b-un has 4
    assert found[5 + 7 :] == ["##ug", "##un", "hug", "pun", "hugs", "pug", "bun"]
    assert wordpiece.learned(counts, 5 + 20)[-6:] == [f"[unused{number}]" for number in range(6)]
    assert (
        len(wordpiece.learned(counts, 5 + 8)) == 13 and wordpiece.learned(counts, 5 + 8)[5:9] == letters[:4]
    )  # half are letters


def test_the_order_of_words_does_not_matter() -> None:
    draws = random.Random(0)
    counts = {"".join(draws.choices("abcd", k=draws.randint(1, 6))): draws.randint(1, 3) for _ in range(300)}
    shuffled = list(counts.items())
    draws.shuffle(shuffled)
    found = wordpiece.learned(counts, 120)
    assert found == wordpiece.learned(dict(shuffled), 120)
    assert len(set(found)) == 120 and not [token for token in found if token.startswith("[unused")]


@pytest.mark.slow
def test_the_same_tokens_in_every_process(tmp_path: Path) -> None:
    program = "from train.data import wordpiece; print(wordpiece.learned({'abc': 2, 'bcd': 2, 'cde': 2, 'aab': 2}, 30))"
    root = Path(__file__).parents[3]
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1 and found != {""}


@needs_extra
def test_words_are_berts() -> None:
    text = "Don't be naïve: it's 3.5 LÄRM\u00a0!\x00"
    expected = ["don", "'", "t", "be", "naive", ":", "it", "'", "s", "3", ".", "5", "larm", "!"]
    found = wordpiece.words([text, "be"])
    assert found["be"] == 2 and found["'"] == 2
    assert set(found) == set(expected)


@needs_extra
def test_tokens_of_a_pair_padding_and_cutting(tmp_path: Path) -> None:
    tokens = wordpiece.in_folder(write_vocabulary(tmp_path, "a", "b", "play", "##ing", "##s", "!"))
    number = {token: place for place, token in enumerate(tokens)}

    def row(*texts: str, length: int = 10) -> tuple[list[str], list[int]]:
        (found,) = wordpiece.encode(tokens, [texts], length)
        return [tokens[place] for place in found[0]], found[1].tolist()

    assert row("A playing!") == (["[CLS]", "a", "play", "##ing", "!", "[SEP]", *["[PAD]"] * 4], [1] * 6 + [0] * 4)
    pair = ["[CLS]", "a", "[SEP]", "b", "play", "##s", "[SEP]", *["[PAD]"] * 3]
    assert row("á", "b plays") == (pair, [1, 1, 1, 2, 2, 2, 2, 0, 0, 0])
    assert row("a", "b b b b b b b b b b")[0] == ["[CLS]", "a", "[SEP]", *["b"] * 6, "[SEP]"]  # the longer one is cut
    assert row("a [SEP] zebra")[0][:6] == [
        "[CLS]",
        "a",
        "[UNK]",
        "[UNK]",
        "[UNK]",
        "[UNK]",
    ]  # not the special token, which is for ends
    assert row("", "")[0][:3] == ["[CLS]", "[SEP]", "[SEP]"]
    assert number["[PAD]"] == 0 and wordpiece.encode(tokens, [("a",)], 8).dtype == np.int16


@needs_extra
def test_a_vocabulary_with_capitals_keeps_them(tmp_path: Path) -> None:
    tokens = wordpiece.in_folder(write_vocabulary(tmp_path, "A", "a"))
    (row,) = wordpiece.encode(tokens, [("A a Á",)], 8)
    assert [tokens[place] for place in row[0]][:5] == ["[CLS]", "A", "a", "[UNK]", "[SEP]"]


# --- GLUE ----------------------------------------------------------------------------------------------------------


@needs_extra
@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_read(task: str, tmp_path: Path) -> None:
    write_task(tmp_path, task)
    dataset, chosen = load("glue", tmp_path, task=task), text.TASKS[task]
    assert (dataset.num_train, dataset.num_test, dataset.input_shape) == (48, 12, (2, 24))
    assert dataset.num_classes == max(len(chosen.labels), 1) and not dataset.is_stand_in
    tokens = wordpiece.learned(
        wordpiece.words(text for number in range(48) for text in glue_files.texts(task, number)), 200
    )
    for split, numbers in (("train", range(48)), ("test", range(48, 60))):
        x, y = everything(dataset, split)
        assert np.array_equal(x, wordpiece.encode(tokens, [glue_files.texts(task, number) for number in numbers], 24))
        words = [glue_files.label(task, number) for number in numbers]
        if chosen.labels:
            assert y.dtype == np.int64 and [chosen.labels[place] for place in y] == words
        else:
            assert y.dtype == np.float32 and np.array_equal(y, np.array(words, dtype=np.float32))
        assert set(np.unique(x[:, 1])) == set(range(1 + len(chosen.texts)))
    x, y = dataset.train_batch(torch.tensor([5, 0]), torch.Generator())
    assert x.dtype == torch.int64 and torch.equal(x, torch.from_numpy(everything(dataset, "train")[0][[5, 0]]))
    assert len(y) == 2


@needs_extra
def test_quotes_and_other_ends_of_lines_are_text(tmp_path: Path) -> None:
    """A quotation mark opens nothing, and what Unicode calls the end of a line ends none."""
    folder = write_task(tmp_path, "rte")
    lines = ['1\t"the cat\tit is\u2028the \x85cat"\tentailment', '2\ta "dog\tthe cat\tnot_entailment']
    (folder / "dev.tsv").write_bytes("\r\n".join(["index\tsentence1\tsentence2\tlabel", *lines, ""]).encode())
    dataset = load("glue", tmp_path, task="rte")
    assert dataset.num_test == 2 and everything(dataset, "test")[1].tolist() == [0, 1]


@needs_extra
def test_mrpc_from_microsofts_file(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "mrpc")
    theirs = (folder / "train.tsv").read_text(encoding="utf-8")
    (folder / "msr_paraphrase_train.txt").write_bytes(b"\xef\xbb\xbf" + theirs.replace("\n", "\r\n").encode())
    direct = load("glue", tmp_path, task="mrpc")
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"expected .*dev_ids\.tsv"):
        load("glue", tmp_path, task="mrpc")
    (folder / "dev_ids.tsv").write_text("3\t3\n40\t40\n")
    dataset = load("glue", tmp_path, task="mrpc")
    assert (dataset.num_train, dataset.num_test) == (46, 2)
    assert everything(dataset, "test")[1].tolist() == everything(direct, "train")[1][[3, 40]].tolist()
    for taken, found in (
        ("x\ty\n", "none of them"),
        ("".join(f"{number}\t{number}\n" for number in range(48)), "all of them"),
    ):
        (folder / "dev_ids.tsv").write_text(taken)
        with pytest.raises(
            ValueError, match=rf"dev_ids\.tsv: .*some pairs of msr_paraphrase_train\.txt, not of all, found {found}"
        ):
            load("glue", tmp_path, task="mrpc")


@needs_extra
def test_rows_of_qqp_that_are_cut_short_are_left_out_and_many_are_damage(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "qqp", num_train=2000)
    lines = (folder / "train.tsv").read_text(encoding="utf-8").split("\n")
    lines[7] = lines[7].rpartition("\t")[0]
    (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    assert load("glue", tmp_path, task="qqp").num_train == 1999
    lines[3:6] = ["", "1\t2", "3"]
    (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"train\.tsv: damaged .*expected 6 fields in each line, found 1 in line 6"):
        load("glue", tmp_path, task="qqp")


# --- IMDB ----------------------------------------------------------------------------------------------------------


@needs_extra
@pytest.mark.parametrize("place", ["", "imdb"])
def test_imdb_is_read(place: str, tmp_path: Path) -> None:
    home = write_imdb(tmp_path / place)
    dataset = load("imdb", tmp_path)
    assert (dataset.num_train, dataset.num_test, dataset.num_classes, dataset.input_shape) == (24, 24, 2, (2, 24))
    x, y = everything(dataset, "train")
    assert y.tolist() == [0] * 12 + [1] * 12 and set(np.unique(x[:, 1])) == {0, 1}
    assert not np.array_equal(x[0], x[12])  # hate and love
    (home / "test" / "pos" / "3_9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"test/pos/3_9\.txt: damaged .*a review in UTF-8"):
        load("imdb", tmp_path)


# --- what else a data set has --------------------------------------------------------------------------------------


@needs_extra
def test_tokens_of_a_folder_and_a_fingerprint_that_tells_them_apart(tmp_path: Path) -> None:
    write_task(tmp_path, "rte")
    words = write_vocabulary(tmp_path / "words", "the", "cat", "a", "dog", "sees", ".")
    others = write_vocabulary(tmp_path / "others", "cat", "the", "a", "dog", "sees", ".")
    prints = [
        load("glue", tmp_path, task="rte", **more).fingerprint
        for more in ({}, {"tokenizer": str(words)}, {"tokenizer": str(others)})
    ]
    assert len(set(prints)) == 3
    assert load("glue", tmp_path, task="rte", tokenizer=str(words)).fingerprint == prints[1]
    with pytest.raises(ValueError, match=r"data\.vocabulary=300: has no effect with data\.tokenizer='words'"):
        resolving.resolve({"data": "glue", "data.tokenizer": "words", "data.vocabulary": 300})


@pytest.mark.parametrize("task", TASKS)
def test_stand_ins_and_true_sizes(task: str) -> None:
    config = resolving.resolve({"data": "glue", "data.task": task, "stand_in": True, **SMALL})
    dataset, chosen = data.load(config, "cpu"), text.TASKS[task]
    x, y = dataset.train_batch(torch.arange(dataset.num_train), torch.Generator())
    assert dataset.is_stand_in and x.shape == (1024, 2, 24) and x[:, 0].min() >= 0 and x[:, 0].max() == 199
    assert set(x[:, 1].unique().tolist()) == set(range(1 + len(chosen.texts)))
    assert (x[:, 1, 0] == 1).all() and not x[:, 0][x[:, 1] == 0].any()
    assert y.is_floating_point() == (not chosen.labels) and y.min() >= 0 and y.max() < (len(chosen.labels) or 5)
    assert torch.equal(x, data.load(config, "cpu").train_batch(torch.arange(dataset.num_train), torch.Generator())[0])
    size = data.true_size(config)
    assert (size.num_train, size.num_test) == (chosen.num_train, chosen.num_dev)
    assert size.num_bytes == (size.num_train + size.num_test) * (2 * 24 * 2 + 8)


def test_a_stand_in_needs_no_vocabulary(tmp_path: Path) -> None:
    config = resolving.resolve({"data": "imdb", "data.tokenizer": str(tmp_path / "nowhere"), "stand_in": True})
    assert data.source_of(config).num_tokens() == 30_522 and data.load(config, "cpu").is_stand_in
    write_vocabulary(tmp_path / "nowhere", "a")
    assert data.source_of(config).num_tokens() == 7
    assert data.source_of(resolving.resolve({})).num_tokens() == 0
