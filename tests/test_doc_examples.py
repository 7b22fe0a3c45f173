"""The Python in README and the pages of docs/ works."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import nuq
import nuq.ddp
import nuq.fsdp

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


def test_the_example_method_works() -> None:
    space: dict[str, Any] = {}
    exec(compile(_python("docs/methods.md", "class Half"), "methods.md", "exec"), space)
    method = space["Half"](None)
    vector = torch.tensor([0.5, -1.25, 0.0, 1e-3, 3.0])
    message = method.encode(vector, None)
    assert message.num_bytes == method.message_bytes(5) == 28 + 10
    assert torch.equal(space["Half"](None).decode(message), vector.half().float())


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


@pytest.mark.slow
@pytest.mark.parametrize("document", ["README.md", "docs/library.md"])
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
    assert re.search("collective gather|alq by gather: 20 steps", done.stdout)
