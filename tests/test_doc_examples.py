"""The Python in README and the pages of docs/ works."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nuq
import nuq.ddp
import nuq.fsdp
from tests.tiers import few

ROOT = Path(__file__).parent.parent
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
PYTHON = [
    (document, source)
    for document, text in DOCUMENTS.items()
    for source in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]


def _python(document: str, part: str) -> str:
    (source,) = (source for name, source in PYTHON if name == document and part in source)
    return source


@pytest.mark.parametrize(("document", "source"), PYTHON)
def test_python_calls_what_nuq_has(document: str, source: str) -> None:
    """Every ``nuq.name`` is public, and takes the arguments that it is given."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "nuq":
            assert node.attr in nuq.__all__
        if isinstance(node, ast.Call) and re.fullmatch(r"nuq\.\w+", ast.unparse(node.func)):
            called = getattr(nuq, ast.unparse(node.func).removeprefix("nuq."))
            words = {word.arg: None for word in node.keywords if word.arg}
            inspect.signature(called).bind(*node.args, **words)


HALF = """
from dataclasses import dataclass
from nuq.registry import METHODS, Method
__version__ = "1"
@dataclass
class Half:
    pass
"""

CONTRACT = "-m pytest -p nuq --pyargs nuq.testing -p no:cacheprovider -q --import my_half --method half"


def _package(folder: Path) -> None:
    """A package with the example of a method and the entry that the page gives, which lies in the package here."""
    text = DOCUMENTS["docs/methods.md"]
    (entry,) = re.findall(r"`(METHODS\[\"half\"\] = [^`]*)`", text)
    (folder / "my_half").mkdir()
    (folder / "my_half" / "half.py").write_text(_python("docs/methods.md", "class Half"))
    moved = entry.replace("nuq.compressors.half:", "my_half.half:")
    (folder / "my_half" / "__init__.py").write_text(f"{HALF}{moved}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (CONTRACT.split(), r"\b2\d passed"),
        (["main.py", "--import", "my_half", "method=half", "data=digits", "model=logreg", "steps=2"], "done: 2 steps"),
    ],
    ids=["contract", "training"],
)
def test_the_example_method_works(words: list[str], said: str, tmp_path: Path) -> None:
    _package(tmp_path)
    runs = [f"run_dir={tmp_path}/run"] if words[0] == "main.py" else []
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, *runs], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(said, done.stdout), done.stdout


def test_the_example_message_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(_python("docs/library.md", "to_bytes"), "library.md", "exec"), {})
    bits, error = (float(word) for word in capsys.readouterr().out.split())
    assert 1.9 < bits < 2.1
    assert 0.09 < error < 0.11  # normal coordinates: .0986 (docs/results/error_per_bit.md)


def test_the_example_sweep_is_what_its_docstring_says() -> None:
    space: dict[str, Any] = {}
    exec(compile(_python("docs/cluster.md", "def study"), "cluster.md", "exec"), space)
    points = space["study"]().points
    assert len(points) == 5 + 10  # bits by workers less one, and for ALQ each fit
    assert all(("method.fit" in point.settings) == (point.settings["method"] == "alq") for point in points)
    assert all((point.resources.get("ranks") == 2) == (point.settings["workers"] == 8) for point in points)


@few(1, "document", ["README.md", "docs/library.md"])
def test_the_ddp_example_trains(document: str, tmp_path: Path) -> None:
    source = _python(document, "compress_hook")
    (name,) = re.findall(r"^# (\w+\.py); torchrun --nproc-per-node=2 \1$", source, re.MULTILINE)
    (tmp_path / name).write_text(source)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(tmp_path / name)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d", done.stdout)) == ["rank 0", "rank 1"]
    assert re.search(r"alq by gather\n  steps +20\n|collective gather", done.stdout)
