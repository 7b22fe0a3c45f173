"""What stays free of torch, how little a start imports, and what every file looks like.

Who may import whom stands in ``.importlinter``, which `make lint` holds.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("settings", "files", "nuq", "grid", "train", "analysis", "benchmarks", "tests")  # folders that hold code
TORCH_FREE_OF_NUQ = ("nuq.registry", "nuq.settings", "nuq.prediction", "nuq.native", "nuq.levels")
MAX_LINES = 400


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted([*ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))])
RULED = [path for path in FILES if not _module(path).startswith(("tests", "benchmarks"))]
TORCH_FREE = [
    name
    for name in map(_module, FILES)
    if name in ("args", "grid_run") or name.startswith(("settings", "files", "grid", "analysis", *TORCH_FREE_OF_NUQ))
]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def private(text: str) -> list[str]:
    """The imports by ``from .. import`` of private names of this repository's modules."""
    taken = re.findall(rf"from ((?:{'|'.join(ROOMS)})\b[\w.]*) import (\([^)]*\)|[^\n]*)", text)
    return [f"{module}.{name}" for module, names in taken for name in re.findall(r"(?<![\w ] )\b_\w+", names)]


def test_private_names_stay_in_their_file() -> None:
    assert private("if 1:\n    from nuq.ddp import _a, b as _b\nfrom torch import _C") == ["nuq.ddp._a"]
    assert not [name for path in FILES if not _module(path).startswith("tests") for name in private(path.read_text())]


READERS = ("grid", "train", "files", "analysis", "settings", "nuq", "benchmarks/gpu", "benchmarks/results")


def test_texts_of_other_programs_are_read_with_replacement() -> None:
    """What git, a compiler, nvidia-smi or a site's sbatch says may have any bytes."""
    strict = []
    for path in (path for room in READERS for path in (ROOT / room).rglob("*.py")):
        calls = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
        named = [({item.arg for item in call.keywords}, call) for call in calls]
        strict += [
            f"{path}:{call.lineno}"
            for names, call in named
            if "text" in names and not names & {"errors"} and ast.unparse(call.func).startswith("subprocess.")
        ]
    assert not strict


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_torch_stays_out() -> None:
    """All torch-free modules in one fresh interpreter, named one by one as torch appears."""
    assert {"args", "nuq.registry", "nuq.levels.update_rules", "grid_run", "grid.demo", "analysis"} <= set(TORCH_FREE)
    lines = ["import importlib, sys"]
    for name in TORCH_FREE:
        if not name.endswith("__main__"):
            lines += [
                f"importlib.import_module({name!r})",
                f"assert 'torch' not in sys.modules, '{name} brings torch in'",
            ]
    done = _python("-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr


def _imports_of(*arguments: str) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """The modules that ``python ARGUMENTS`` imports, as its own import clock reports them."""
    done = _python("-X", "importtime", *arguments)
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in timed}, done


HEAVY = {"torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "sklearn", "submitit", "tensorboardX"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "never"),
    [
        (("grid_run.py", "--help"), HEAVY | {"hydra", "omegaconf", "rich", "grid.engine"}),
        (("grid_run.py", "list"), HEAVY | {"hydra", "omegaconf", "rich"}),
        (("grid_run.py", "status", "demo", "demo"), HEAVY | {"hydra", "omegaconf"}),
        (("main.py", "--help"), HEAVY),
        (("-m", "analysis", "--help"), {"torch", "torchvision", "matplotlib", "sklearn"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_start_is_instant(script: tuple[str, ...], never: set[str]) -> None:
    """A start is slow by what it imports: independent of this machine's speed."""
    modules, done = _imports_of(*script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not modules & never


# --- every file ---------------------------------------------------------------------------------------------------


def test_each_room_says_what_it_may_import() -> None:
    rooms = [path for path in FILES if path.name == "__init__.py" and not _module(path).startswith("tests")]
    said = {_module(path): ast.get_docstring(_tree(path)) or "" for path in rooms}
    assert not [name for name, text in said.items() if "import" not in text.lower() and "stand on" not in text]


def test_files_are_short_documented_and_well_named() -> None:
    wrong = [f"{path.relative_to(ROOT)} {words}" for path in FILES for words in _wrong_with(path)]
    assert not wrong


def _wrong_with(path: Path) -> Iterator[str]:
    text = path.read_text()
    if (lines := len(text.splitlines())) > MAX_LINES:
        yield f"has {lines} lines; {MAX_LINES} is the ceiling"
    if banned := {"util", "utils", "helper", "helpers", "common", "misc"} & set(path.stem.lower().split("_")):
        yield f"has {banned.pop()!r} in its name, which does not say what is inside"
    if ("TO" + "DO") in text:
        yield "is unfinished"
    if path in RULED and text.strip() and not ast.get_docstring(_tree(path)):
        yield "has no docstring"


def _is_settings(node: ast.ClassDef) -> bool:
    """A dataclass: its fields say what it is, and ``settings.command_line.help_text`` prints their reasons."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_public_names_are_documented() -> None:
    public = [
        (path, node)
        for path in RULED
        for node in _tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    plain = [(path, node) for path, node in public if not (isinstance(node, ast.ClassDef) and _is_settings(node))]
    assert not [f"{_module(path)}.{node.name}" for path, node in plain if not ast.get_docstring(node)]
