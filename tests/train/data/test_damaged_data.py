"""Files of a data set that break a run after it has begun (pictures of 96x96 are read as they are needed), or are
folders.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from settings import resolving
from tests.train.data.test_picture_sets import write_folder
from train.launch import launch
from train.process.status import read

SETTINGS = {
    "data": "folder",
    "data.size": 96,
    "model": "mlp",
    "method": "supersgd",
    "batch_size": 2,
    "workers": 2,
    "steps": 8,
}


@pytest.mark.parametrize("broken", ["train/ant/1.png", "test/bee/0.png"])
def test_a_damaged_picture_met_in_training_or_evaluation(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "data")
    (path,) = (tmp_path / "data").glob(broken)
    path.write_bytes(path.read_bytes()[:100])
    run_dir = tmp_path / "run"
    more = {
        "data_dir": str(tmp_path / "data"),
        "run_dir": str(run_dir),
        "eval_every": 0 if broken.startswith("train") else 1,
    }
    assert launch(resolving.resolve(SETTINGS | more)) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"main.py: {path}: damaged or not the right file: expected a whole JPEG or PNG picture")
    assert (read(run_dir)["state"], read(run_dir)["exit_code"]) == ("failed", 2)


def test_a_folder_in_place_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mnist" / "train-images-idx3-ubyte").mkdir(parents=True)
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (tmp_path / "mnist" / name).write_bytes(b"")
    more = {"data": "mnist", "model": "mlp", "data_dir": str(tmp_path), "run_dir": str(tmp_path / "run")}
    assert launch(resolving.resolve(more)) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "Is a directory" in error and "train-images-idx3-ubyte" in error
