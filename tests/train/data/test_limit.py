"""``data.limit``: which examples are left to train on, what stays whole, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from settings import resolving, run_identity
from settings.data import DATA
from settings.limit import Limited
from tests.train.archive_files import write_cifar100, write_svhn
from tests.train.data.test_data import write_mnist
from tests.train.data.test_picture_sets import write_folder
from tests.train.data.test_pictures import write_imagenet
from tests.train.glue_files import write_imdb
from train import data
from train.data import limit

SMALL = {"workers": 1, "batch_size": 2}


def load(name: str, data_dir: Path | str = "nowhere", /, **chosen: object) -> data.DataSet:
    settings: dict[str, Any] = {f"data.{key}": value for key, value in chosen.items()}
    return data.load(resolving.resolve({**SMALL, "data": name, "data_dir": str(data_dir), **settings}), "cpu")


def labels(dataset: data.DataSet, split: Any = "train") -> list[Any]:
    return torch.cat([y for _, y in dataset.batches(split, 7)]).tolist()


@pytest.mark.parametrize("name", ["digits", "logreg5"])
def test_the_first_examples_are_left_and_the_test_set_is_whole(name: str) -> None:
    whole, part = load(name), load(name, limit=50)
    assert (part.num_train, part.num_test) == (50, whole.num_test)
    (x, y), (expected_x, expected_y) = (next(iter(one.batches("train", 50))) for one in (part, whole))
    assert torch.equal(x, expected_x) and torch.equal(y, expected_y) and len(labels(part)) == 50
    assert labels(part, "test") == labels(whole, "test")
    assert part.fingerprint != whole.fingerprint
    assert load(name, limit=whole.num_train).fingerprint == whole.fingerprint


def test_of_a_text_the_first_windows_are_left() -> None:
    part, same = load("text", limit=3, num_train=9, length=5), load("text", num_train=3, length=5)
    assert (part.num_train, part.fingerprint) == (3, same.fingerprint)


@pytest.mark.parametrize("size", [40, 80])  # decoded in memory, and batch by batch
def test_of_pictures_that_lie_by_class_the_classes_take_turns(tmp_path: Path, size: int) -> None:
    write_folder(tmp_path)  # three classes of four, two of each to test
    whole, part = (
        load("folder", tmp_path, size=size, augment=False),
        load("folder", tmp_path, size=size, augment=False, limit=5),
    )
    assert labels(part) == [0, 0, 1, 1, 2] and labels(part, "test") == [0, 0, 1, 1, 2, 2]
    (x, _), (of_all, _) = (next(iter(one.batches("train", 12))) for one in (part, whole))
    assert torch.equal(x, of_all[[0, 1, 4, 5, 8]])
    drawn, _ = part.train_batch(torch.tensor([4, 2]), torch.Generator())
    assert torch.equal(drawn, of_all[[8, 4]])
    assert (part.num_train, part.num_classes) == (5, 3)
    with pytest.raises(
        ValueError, match=r"data\.limit=13: data=folder has 12 training examples; legal: at most 12, or 0"
    ):
        load("folder", tmp_path, size=size, limit=13)


def test_of_reviews_as_many_are_for_as_against(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write_imdb(tmp_path)  # 24 to train, the 12 against first
    part = load("imdb", tmp_path, limit=6, length=24, vocabulary=200)
    assert labels(part) == [0, 0, 0, 1, 1, 1] and part.num_test == 24


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"data": "digits", "data.limit": 1443}, "data=digits has 1442 training examples; legal: at most 1442"),
        ({"data": "logreg2", "data.num_train": 99, "data.limit": 100}, "data=logreg2 has 99 training examples"),
        ({"data": "glue", "data.task": "wnli", "data.limit": 636}, "data=glue has 635 training examples"),
        (
            {"data.limit": 7, "workers": 4, "compute.accumulate": 2},
            "a step takes 16 samples .* legal: at least 16, or 0 for all examples$",
        ),
        (
            {"data.limit": 15, "workers": 2, "batch_size": 4, "compute.accumulate": 3},
            "at least 24, or 0 for all examples; or set batch_size to at most 2$",
        ),
        ({"data.limit": -1}, "data.limit=-1: must be at least 0"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_before_anything_is_read(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolving.resolve({**SMALL, **chosen})


def test_every_data_set_has_the_setting_and_runs_without_it_keep_their_names() -> None:
    for name, record in DATA.items():
        assert issubclass(record.settings, Limited), name
        config = resolving.resolve({"data": name})
        older = config | {"data": {key: value for key, value in config["data"].items() if key != "limit"}}
        assert run_identity.identity(older) == run_identity.identity(config)


def test_other_numbers_of_examples_than_the_catalog_says_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the catalog's numbers dry runs estimate, and a limit is refused before anything is read."""
    monkeypatch.setitem(DATA, "digits", replace(DATA["digits"], sizes=(1500, 355)))
    with pytest.raises(ValueError, match=r"digits: 1442 training and 355 test examples.*\(1500, 355\)"):
        load("digits")
    assert data.stand_in(resolving.resolve({"data": "digits"}), "cpu").num_train == DATA["digits"].num_stand_ins


@pytest.mark.parametrize("name", ["mnist", "cifar100", "svhn", "imagenet"])
def test_other_numbers_of_examples_than_a_published_set_has_are_told_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    {
        "mnist": lambda: write_mnist(tmp_path / "mnist"),
        "cifar100": lambda: write_cifar100(tmp_path / "cifar-100-python"),
        "svhn": lambda: write_svhn(tmp_path / "svhn"),
        "imagenet": lambda: write_imagenet(tmp_path / "imagenet"),
    }[name]()
    unverified = {} if name == "imagenet" else {"verify": False}
    found = load(name, tmp_path, **unverified)
    (line,) = capsys.readouterr().err.splitlines()
    here, known = (found.num_train, found.num_test), DATA[name].sizes
    assert known is not None
    assert f"{here[0]} training and {here[1]} test examples in {tmp_path}" in line
    assert line.endswith(f"the published set has {known[0]} and {known[1]}")
    monkeypatch.setenv("RANK", "1")
    load(name, tmp_path, **unverified)  # the other rank
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setitem(DATA, name, replace(DATA[name], sizes=here))
    load(name, tmp_path, **unverified)
    assert capsys.readouterr().err == ""


def test_a_dry_run_counts_what_is_left() -> None:
    size = data.true_size(resolving.resolve({**SMALL, "data": "cifar10", "data.limit": 500}))
    assert (size.num_train, size.num_test) == (500, 10_000)


@pytest.mark.parametrize(("of", "kept"), [(1, [0]), (3, [0, 3, 4]), (5, [0, 1, 3, 4, 5]), (7, [0, 1, 2, 3, 4, 5, 6])])
def test_classes_of_unequal_size_take_turns(of: int, kept: list[int]) -> None:
    by_class, shuffled = np.array([3, 3, 3, 5, 8, 8, 8, 8]), np.array([3, 8, 3, 5, 8, 3, 8, 8])
    assert np.arange(8)[limit.chosen(by_class, {"limit": of})].tolist() == kept
    assert np.arange(8)[limit.chosen(shuffled, {"limit": of})].tolist() == list(range(of))
