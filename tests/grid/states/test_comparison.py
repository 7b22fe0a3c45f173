"""diff: what differs between two run folders, and the results of both."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

import grid_run

STATUS = {
    "state": "done",
    "host": "n1",
    "step": 9,
    "steps": 9,
    "seconds": 10.0,
    "threads": 2,
    "device": "cpu",
    "machine": {"python": "3.11.7", "torch": "2.13.0", "cpu": "a CPU", "cores": 2, "gpu": "", "commit": "a" * 40},
    "metrics": {"loss": 0.5, "Vacc": 60.0, "comm/bits_per_coordinate": 3.25},
}
CONFIG = {"method": {"name": "qsgd", "bits": 3}, "seed": 1, "lr": 0.1, "run_dir": "runs/x"}


def run(folder: Path, config: object = CONFIG, **status: object) -> Path:
    """A run folder."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "status.json").write_text(json.dumps({**STATUS, **status}))
    return folder


def diff(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit code, the output and the error of the command."""
    try:
        code = grid_run.main(["diff", *shlex.split(words)])
    except SystemExit as error:
        code = int(str(error.code))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of two runs ``a`` and ``b`` in the present one."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "runs/x/a")
    machine = {**STATUS["machine"], "torch": "2.12.0", "commit": "b" * 40, "dirty": True}  # type: ignore[dict-item]
    changed = {"host": "n2", "machine": machine, "state": "failed", "step": 7, "metrics": {"loss": 0.75}}
    run(tmp_path / "runs/x/b", {**CONFIG, "method": {"name": "topk", "ratio": 0.01}, "run_dir": "other"}, **changed)
    return tmp_path


def test_a_table(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = diff("runs/x/a runs/x/b", capsys)
    assert (code, err) == (0, "")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert rows[:2] == ["FIRST runs/x/a", "SECOND runs/x/b"]
    assert rows[4] == "settings method qsgd topk"
    for row in (
        "method.bits 3 (no such setting)",
        "method.ratio (no such setting) 0.01",
        "code commit aaaaaaaaaaaa bbbbbbbbbbbb with changes",
        "versions PyTorch 2.13.0 2.12.0",
        "machine host n1 n2",
        "results state done failed",
        "step 9 7 -2",
        "loss 0.5 0.75 +0.25",
        "Vacc 60 (not recorded)",
        "bits per coordinate 3.25 (not recorded)",
        "seconds 10 10",
    ):
        assert row in rows, out
    assert not any(row.startswith(("run_dir", "seed", "lr", "GPU", "cores")) for row in rows), "what is equal"
    assert len({line.index("FIRST") for line in out.splitlines()[3:] if "FIRST" in line}) == 1


def test_a_document(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = diff("runs/x/a runs/x/b --json", capsys)
    found = json.loads(out)
    assert code == 0
    assert found["runs"] == ["runs/x/a", "runs/x/b"]
    assert found["different"]["settings"]["method"] == ["qsgd", "topk"]
    assert found["different"]["versions"] == {"PyTorch": ["2.13.0", "2.12.0"]}
    assert found["results"]["loss"] == [0.5, 0.75]
    assert found["results"]["Vacc"] == [60.0, None]


def test_an_odd_configuration(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(two / "odd", {"method": [1], 3: {"a": None}})
    assert "[1]" in diff("runs/x/a odd", capsys)[1]


def test_equal_runs_and_a_run_that_has_not_begun(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(two / "runs/x/c")
    assert diff("runs/x/a runs/x/c", capsys)[1].count("(no difference is recorded)") == 4
    (two / "runs/x/c/status.json").unlink()
    out = diff("runs/x/a runs/x/c", capsys)[1]
    assert "(not recorded)" in out
    assert "new" in out
