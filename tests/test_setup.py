"""Set-up: the pins agree with each other, and the Makefile says clearly what is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from grid.engine.sweep import load

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
PINS: dict[str, str] = {canonicalize_name(name): version for name, version in PINNED}
OPTIONAL = {"tensorboard", "parquet"}  # not installed by make, so not pinned

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def _requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    texts = [
        *PROJECT["dependencies"],
        *(text for name, part in extras.items() if name not in OPTIONAL for text in part),
    ]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("requirement", _requirements(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    if requirement.name == PROJECT["name"]:
        return
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_the_pair_of_torch_is_pinned_alike_everywhere() -> None:
    conda = dict(re.findall(r"^  - ([\w-]+)=([\d.]+)$", (ROOT / "environment.yml").read_text(), re.M))
    assert (PINS["torch"], PINS["torchvision"]) == ("2.13.0", "0.28.0")
    assert (conda["pytorch"], conda["torchvision"]) == (PINS["torch"], PINS["torchvision"])
    assert (conda["numpy"], conda["setuptools"]) == (PINS["numpy"], PINS["setuptools"])


def test_only_nuq_is_installed() -> None:
    from setuptools import find_packages

    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    found = find_packages(str(ROOT), include=include)
    assert "nuq" in found
    assert "nuq.compressors" in found
    assert {name.split(".")[0] for name in found} == {"nuq"}


def _make(tmp_path: Path, python: str, *words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """``make WORDS`` with a pretended system Python (a bash body over $*), and the command lines that it was given."""
    calls = tmp_path / "calls"
    stub = tmp_path / "python3"
    stub.write_text(f'#!/usr/bin/env bash\necho "$*" >> {calls}\n{python}\n')
    stub.chmod(0o755)
    command = ["make", "-C", str(ROOT), f"PYTHON={stub}", f"VENV={tmp_path / 'venv'}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done, calls.read_text().splitlines() if calls.exists() else []


@needs_make
def test_a_missing_venv_module_is_one_sentence(tmp_path: Path) -> None:
    done, _ = _make(tmp_path, 'case "$*" in *ensurepip*) exit 1 ;; esac', "setup")
    told = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert len(told) == 1
    assert "apt install python3-venv" in told[0]


@needs_make
def test_an_old_python_is_named(tmp_path: Path) -> None:
    done, _ = _make(tmp_path, 'case "$*" in *version_info*) exit 1 ;; esac', "setup")
    assert done.returncode != 0
    assert "Python 3.11 or later is needed" in done.stderr


@needs_make
@pytest.mark.parametrize("has_torch", [True, False])
def test_an_installed_torch_is_used(tmp_path: Path, has_torch: bool) -> None:
    body = f'case "$*" in *"import sys, torch"*) exit {0 if has_torch else 1} ;; "-m venv"*) exit 7 ;; esac'
    done, calls = _make(tmp_path, body, "setup")
    (created,) = [line for line in calls if line.startswith("-m venv")]
    assert ("--system-site-packages" in created) == has_torch
    assert done.returncode != 0  # the pretended venv fails: nothing may go on as if it had worked


@needs_make
@pytest.mark.parametrize(
    ("words", "run_name", "folder", "few"),
    [([], "demo", "demo", ""), (["QUICK=1"], "quick", "demo_quick", " --most-figures 8")],
)
def test_the_demo_is_four_commands(words: list[str], run_name: str, folder: str, few: str) -> None:
    command = ["make", "-C", str(ROOT), "-n", "demo", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"python (grid_run\.py .*|-m analysis .*)", done.stdout)
    assert found == [
        f"grid_run.py run demo {run_name}",
        f"-m analysis figures {folder}",
        f"-m analysis table {folder}",
        f"-m analysis report {folder}{few}",
    ]
    assert load("demo", run_name).experiments()[0].folder == folder


def test_ci_runs_the_linters_and_all_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines.index("set -euo pipefail") < lines.index("make lint") < lines.index("make test-all")
    assert "make test" in (ROOT / "README.md").read_text()
