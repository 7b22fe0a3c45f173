"""The record of the machine that a run ran on, and of the code that it ran."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from train.process import machine

CPU = torch.device("cpu")


def test_this_machine_without_any_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUQ_CODE", raising=False)
    found = machine.describe(CPU, tmp_path)
    assert set(found) == {"python", "torch", "cpu", "cores", "gpu", "commit", "dirty"}
    assert (found["torch"], found["gpu"], found["commit"], found["dirty"]) == (torch.__version__, "", "", False)
    assert found["cores"] >= 1 and found["cpu"]
    json.dumps(found)


def git(folder: Path, *words: str) -> str:
    named = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(named, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def code(folder: Path) -> tuple[str, bool]:
    found = machine.describe(CPU, folder)
    return found["commit"], found["dirty"]


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUQ_CODE", raising=False)
    git(tmp_path, "init", "-q")
    assert code(tmp_path) == ("", False)
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert code(tmp_path) == (commit, False)
    (tmp_path / "b").write_text("a file of one's own changes no code that is tracked")
    assert code(tmp_path) == (commit, False)
    (tmp_path / "a").write_text("2")
    assert code(tmp_path) == (commit, True)


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ('{"commit": "abc", "dirty": true}', ("abc", True)),
        ("{", ("", False)),
        ('{"digest": "abc"}', ("", False)),
        (None, ("", False)),
    ],
)
def test_the_commit_of_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str | None, told: tuple[str, bool]
) -> None:
    """A snapshot that says nothing is not taken for the checkout beside it."""
    git(tmp_path, "init", "-q")
    if manifest:
        (tmp_path / ".snapshot.json").write_text(manifest)
    monkeypatch.setenv("NUQ_CODE", str(tmp_path))
    assert code(tmp_path) == told


def test_a_git_that_fails_or_is_missing_or_hangs_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUQ_CODE", raising=False)
    (tmp_path / ".git").mkdir()  # no repository
    assert code(tmp_path) == ("", False)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert code(tmp_path) == ("", False)
    (programs / "git").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setattr(machine, "GIT_S", 0.05)
    assert code(tmp_path) == ("", False)


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    assert machine.describe(torch.device("cuda"), Path("/nowhere"))["gpu"] == "2 x NVIDIA H200, NVIDIA A100"
