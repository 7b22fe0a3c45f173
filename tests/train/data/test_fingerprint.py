"""The fingerprint that tells one copy of a data set from another, and the runs that go on on their own data alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from settings import resolving
from settings.data import DATA
from tests.train.archive_files import draws, write_binary
from tests.train.data.test_data import load
from tests.train.data.test_pictures import write_imagenet, write_tree
from train import data
from train.data import fingerprint
from train.launch import launch

NAMES = [f"data_batch_{number}" for number in range(1, 6)]


def arrays(num: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (num, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, num)


@pytest.mark.parametrize("name", DATA)
def test_every_data_set_has_one(name: str) -> None:
    config = resolving.resolve({"data": name, **({"data.size": 8} if name == "folder" else {})})
    first, second = (data.stand_in(config, "cpu").fingerprint for _ in range(2))
    assert first == second and len(first) == 14 and int(first, 16)


def test_the_form_and_the_place_do_not_count_and_an_example_does(tmp_path: Path) -> None:
    prints = []
    for name, count in (("a", 4), ("b", 4), ("c", 5)):
        write_binary(
            tmp_path / name / "cifar-10-batches-bin", {**dict.fromkeys(NAMES, count), "test_batch": 4}, coarse=False
        )
        prints.append(load("cifar10", tmp_path / name).fingerprint)
    assert prints[0] == prints[1] != prints[2]
    images, labels = (np.concatenate([draws(4)[part]] * 5) for part in (0, 1))
    assert prints[0] == fingerprint.of_arrays([(images, labels), draws(4)]), "as decoded from whichever form"


@pytest.mark.parametrize("count", [100, 6000])  # 6,000 pictures are more than are hashed whole
def test_what_is_missing_moved_or_relabelled_is_noticed(count: int) -> None:
    inputs, labels = arrays(count)
    assert (inputs.nbytes > fingerprint.WHOLE_BYTES) == (count == 6000)
    relabelled = labels.copy()
    relabelled[count // 3] += 1
    others = [
        (inputs[:-1], labels[:-1]),
        (np.roll(inputs, 1, axis=0), np.roll(labels, 1)),
        (inputs, relabelled),
        (inputs[::-1], labels),
    ]
    own = fingerprint.of_arrays([(inputs, labels)])
    assert len({own, *(fingerprint.of_arrays([other]) for other in others)}) == 5
    assert own == fingerprint.of_arrays([(np.asfortranarray(inputs), labels.copy())])


def test_of_pictures_that_stay_on_disk_names_sizes_and_beginnings_count(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet")

    def own() -> str:
        return load("imagenet", tmp_path).fingerprint

    before = own()
    some = sorted((tmp_path / "imagenet" / "train").glob("*/*"))[0]
    content = some.read_bytes()
    seen = {before}
    for change in (content[:20] + b"\x07" + content[21:], content + b"more"):
        some.write_bytes(change)
        seen.add(own())
    some.write_bytes(content)
    assert own() == before
    some.rename(some.with_name("renamed.jpg"))
    seen.add(own())
    assert len(seen) == 4


def test_a_run_records_its_data_and_does_not_go_on_on_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The case is a run that began on 600 pictures and was started again where NUQ_DATA names the full CIFAR-10."""
    write_tree(tmp_path / "few" / "cifar10", {"train": 2, "test": 1})
    write_tree(tmp_path / "many" / "cifar10", {"train": 3, "test": 1})
    chosen = {
        "data": "cifar10",
        "model": "cifar_mlp",
        "method": "trn",
        "workers": 2,
        "batch_size": 2,
        "eval_train": False,
    }
    chosen |= {"steps": 2, "checkpoint_every": 1, "eval_every": 0, "run_dir": str(tmp_path / "run")}
    few, many = ({**chosen, "data_dir": str(tmp_path / name)} for name in ("few", "many"))
    assert launch(resolving.resolve(few)) == 0
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    own = load("cifar10", tmp_path / "few").fingerprint
    assert status["data"] == {"fingerprint": own, "num_train": 20, "num_test": 10}
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["fingerprint"] == own
    assert f"cifar_mlp on cifar10 (fingerprint {own})" in capsys.readouterr().out

    (tmp_path / "run" / "status.json").write_text(json.dumps({**status, "state": "preempted"}))
    assert launch(resolving.resolve(many)) == 2
    told = (
        f"the run began on data with the fingerprint {own}, and cifar10's here have "
        f"{load('cifar10', tmp_path / 'many').fingerprint}"
    )
    assert told in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "status.json").read_text())["data"]["fingerprint"] == own, (
        "what its steps were made on"
    )
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data_dir"] == str(tmp_path / "few"), (
        "where an evaluator looks"
    )
    assert launch(resolving.resolve(few)) == 0

    capsys.readouterr()
    for chosen, told in ((few, ""), (many, f" on the data of data_dir={tmp_path / 'few'} (fingerprint {own}), ")):
        assert launch(resolving.resolve(chosen)) == 0
        assert capsys.readouterr().out.startswith(f"{tmp_path / 'run'}: done already{told or chr(10)}")
