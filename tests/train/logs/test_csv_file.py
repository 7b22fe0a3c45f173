"""Scalars as CSV: what the event files hold, over all attempts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from analysis.logs.load import load
from settings import resolving
from train.launch import launch
from train.logs.csv_file import NAME, CsvFile

SMALL = {"data": "digits", "model": "logreg", "eval_every": 2, "log_every": 1, "eval_train": False, "steps": 3}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_file_holds_what_the_event_file_holds(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "s" / "one"
    assert launch(resolving.resolve({**SMALL, "method": "qsgd", "log.csv": True, "run_dir": str(folder)})) == 0
    told = {(row["tag"], int(row["step"])): float(row["value"]) for row in rows_of(folder / "scalars.csv")}
    logged = load(tmp_path / "runs", "s", cache=False)
    for tag in ("loss", "Vacc", "Vloss", "lr", "comm/bytes"):
        of_tag = {step: value for (name, step), value in told.items() if name == tag}
        assert of_tag, tag
        assert of_tag == pytest.approx(logged.of_tag(tag)["one"].dropna().to_dict(), rel=1e-6), tag
    assert not (tmp_path / "runs" / "s" / "two").exists()


def test_attempts_append_and_without_the_setting_there_is_no_file(tmp_path: Path) -> None:
    for attempt in (1, 2):
        file = CsvFile(tmp_path, attempt)
        file.scalars(10 * attempt, {"a,b": 0.1, "loss": float("nan")})
        file.close()
        with (tmp_path / NAME).open("a") as torn:
            torn.write("1,99,lo")  # killed in the middle of a row
    CsvFile(tmp_path, 3).close()
    rows = rows_of(tmp_path / "scalars.csv")
    assert [(row["attempt"], row["step"], row["tag"]) for row in rows] == [
        ("1", "10", "a,b"), ("1", "10", "loss"), ("2", "20", "a,b"), ("2", "20", "loss"),
    ]  # fmt: skip
    assert launch(resolving.resolve({**SMALL, "method": "qsgd", "run_dir": str(tmp_path / "without")})) == 0
    assert not (tmp_path / "without" / "scalars.csv").exists()


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    (tmp_path / NAME).symlink_to("/dev/full")
    file = CsvFile(tmp_path, 1)
    file.scalars(1, {"loss": 1.0})
    with pytest.raises(OSError, match=r"No space left on device: '.*scalars\.csv'"):
        file.flush()
    with pytest.raises(OSError, match="No space left"):
        file.close()
