"""A file of ``results/``: the figures of one measurement, and the command, commit, date and hardware that made them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import machine, processor
from files.atomic import write_text
from files.plain import read_json

ROOT = Path(__file__).parents[2]
RESULTS = "results"
# What changes no measurement: the pages, their templates and the tests.
NO_PRODUCT = ("docs", "results", "tests", "benchmarks/results/templates", "*.md")
DIRTY = "-dirty"
NEEDED = ("command", "commit", "date", "hardware", "seconds", "figures")
_SETS = {"avx2": "AVX2", "avx512": "AVX-512"}


def path_of(name: str, root: Path = ROOT) -> Path:
    """The file of a name."""
    return root / RESULTS / f"{name}.json"


def read(name: str, root: Path = ROOT) -> dict[str, Any]:
    """The values of a file.

    Raises ValueError, in a sentence that names the file, where it is not there or cannot be read.
    """
    path = path_of(name, root)
    try:
        values = read_json(path)
    except FileNotFoundError as error:
        raise ValueError(f"{RESULTS}/{name}.json is not there: python -m benchmarks.record {name} writes it") from error
    except OSError as error:
        raise ValueError(f"{RESULTS}/{name}.json cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{RESULTS}/{name}.json {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{RESULTS}/{name}.json is no JSON object")
    return values


def write(name: str, values: Mapping[str, Any], root: Path = ROOT) -> Path:
    """Write a file whole or not at all; returns its path."""
    path = path_of(name, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(values, indent=1) + "\n", durable=True)
    return path


def measured(values: Mapping[str, Any]) -> str:
    """The sentence that says which commit and hardware the numbers are of; of a GPU's file, those of each step.

    Raises ValueError where the file does not say it.
    """
    if "steps" in values:
        of_steps: dict[tuple[str, str], list[str]] = {}
        for name, step in values["steps"].items():
            of_steps.setdefault((step.get("commit", "not noted"), step["date"][:10]), []).append(name)
        told = [f"{', '.join(names)} at commit {commit} on {date}" for (commit, date), names in of_steps.items()]
        found = values["machine"]
        return f"Measured on one {found['gpu']}, torch {found['torch']}, Triton {found['triton']}: {'; '.join(told)}."
    if missing := [name for name in ("commit", "date", "hardware") if not values.get(name)]:
        raise ValueError(f"there is no {missing[0]!r} in the file")
    torch = f", torch {values['torch']}" if values.get("torch") else ""
    return f"Measured at commit {values['commit']} on {values['date']}: {values['hardware']}{torch}."


def today() -> str:
    """The date, as files give it."""
    return datetime.now(UTC).date().isoformat()


def digest(path: Path) -> str:
    """The first 16 digits of a file's SHA-256, by which a page's picture is known again."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """The commit of the checkout in 12 digits, marked where files differ from it that a measurement may depend on.

    Raises ValueError where there is no git checkout.
    """
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", ".", *(f":(exclude){name}" for name in NO_PRODUCT))
    return head + (DIRTY if changed else "")


def _git(root: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ValueError(f"git, which names the commit that is measured, does not start: {error.strerror}") from error
    if done.returncode:
        raise ValueError(f"{root} is no git checkout, so that no commit can be named: {done.stderr.strip()}")
    return done.stdout.strip()


def hardware() -> dict[str, str]:
    """The hardware in words (processor, vector instructions, cores that may be used, GPU), and the version of torch."""
    found = machine(os.environ)
    words = f"{processor()} ({instructions()}), {_cores()}" + (f", {found['gpu']}" if found["gpu"] else "")
    return {"hardware": words, "torch": found["torch"], "python": platform.python_version()}


def instructions() -> str:
    """The widest vector instructions that the C++ kernels use here, in words."""
    code = "from nuq import native; print(*native.instruction_sets())"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    sets = done.stdout.split()
    return _SETS.get(sets[-1], "no vector instructions") if sets else "without the C++ kernels"


def _cores() -> str:
    count = os.cpu_count() or 1
    with suppress(AttributeError):  # not on Linux
        count = len(os.sched_getaffinity(0))
    return f"{count} core{'' if count == 1 else 's'}"
