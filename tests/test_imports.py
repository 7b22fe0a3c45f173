"""The walls of the house: who may import whom, what stays free of torch, and what every file looks like.

One table of rules is held against the syntax tree of every file, and the modules that must work without torch are
imported in a fresh interpreter.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("nuq", "grid", "train", "analysis", "benchmarks", "tests")  # folders that hold code
# The part of nuq without torch: tables, laws and solvers in float64.
NUMPY_PART = (
    "nuq.settings.layers",
    "nuq.registry",
    "nuq.settings",
    "nuq.levels.level_sets",
    "nuq.levels.lloyd_max",
    "nuq.levels.distribution",
    "nuq.levels.truncated_normals",
    "nuq.levels.histogram",
    "nuq.levels.lattice",
    "nuq.levels.objective",
    "nuq.levels.update_rules",
    "nuq.levels.solver_exact",
    "nuq.levels.solver_optimal",
    "nuq.levels.solver_paper",
    "nuq.coding.entropy",
    "nuq.coding.entropy_reference",
    "nuq.coding.entropy_tables",
    "nuq.native",
)
MAX_LINES = 400


@dataclass(frozen=True)
class Rule:
    """The modules called ``names`` (or below them) may import ``allowed`` (or below) beside the standard library."""

    names: tuple[str, ...]
    allowed: tuple[str, ...]
    never: tuple[str, ...] = ()  # stated too, so that a wider ``allowed`` cannot let them in


# The first rule that names a module holds for it.
RULES = (
    Rule(
        ("args", "command_line", "run_settings", "task_settings", "text_settings", "nuq.settings.layers", "nuq.registry", "nuq.settings"),
        (
            "command_line",
            "run_settings",
            "task_settings",
            "text_settings",
            "nuq.settings.layers",
            "nuq.registry",
            "nuq.settings",
            "omegaconf",
            "hydra",
        ),
        never=("torch",),
    ),
    Rule(("nuq.kernels.cpu",), ("torch", "jaxtyping", "nuq"), never=("nuq.kernels.reference",)),  # tensors, unlike the rest of nuq.native
    Rule(NUMPY_PART, ("numpy", "scipy", *NUMPY_PART), never=("torch",)),
    Rule(
        ("nuq",), ("torch", "numpy", "scipy", "triton", "jaxtyping", "nuq"), never=("args", "main", "train", "grid", "grid_run", "analysis")
    ),
    Rule(
        ("grid", "grid_run"),
        (
            "args",
            "task_settings",
            "text_settings",
            "nuq.registry",
            "nuq.settings",
            "hydra",
            "omegaconf",
            "yaml",
            "submitit",
            "rich",
            "grid",
        ),
        never=("torch", "torchvision", "train", "nuq.kernels.operators"),
    ),
    Rule(
        ("train",),
        (
            *("args", "command_line", "text_settings", "nuq", "torch", "torchvision", "numpy", "scipy", "sklearn", "PIL", "yaml"),
            *("tensorboardX", "transformers", "tokenizers", "safetensors", "train"),
        ),
        never=("grid", "grid_run", "analysis"),
    ),
    Rule(
        ("analysis",),
        (
            "args",
            "grid",
            *NUMPY_PART,
            "numpy",
            "pandas",
            "scipy",
            "matplotlib",
            "yaml",
            "rich",
            "google",
            "tensorboardX",
            "bokeh",
            "analysis",
        ),
        never=("torch", "torchvision", "train"),
    ),
    Rule(("main",), ("args", "command_line", "train", "hydra", "omegaconf")),
    Rule(("setup",), ("setuptools",)),
)


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted([*ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))])
RULED = [path for path in FILES if not _module(path).startswith(("tests", "benchmarks"))]
TORCH_FREE = [
    name
    for name in map(_module, FILES)
    if name in ("args", "command_line", "run_settings", "task_settings", "text_settings", "grid_run", *NUMPY_PART)
    or name.split(".")[0] in ("grid", "analysis")
]


def _within(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imported(tree: ast.Module, module: str, *, is_package: bool) -> set[str]:
    """Every module that ``tree`` imports, anywhere in it, by its full dotted name (``from a import b`` is ``a.b``)."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parent = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parent, *([base] if base else [])])
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def broken(rule: Rule, names: set[str]) -> list[str]:
    """The imports that ``rule`` forbids."""
    outside = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    return sorted(name for name in outside if _within(name, rule.never) or not _within(name, rule.allowed))


@pytest.mark.parametrize("path", RULED, ids=_module)
def test_imports_follow_the_table(path: Path) -> None:
    module = _module(path)
    rules = [rule for rule in RULES if _within(module, rule.names)]
    assert rules, f"{module} is in no rule of the table"
    names = imported(_tree(path), module, is_package=path.name == "__init__.py")
    assert not broken(rules[0], names), f"{module} must not import {', '.join(broken(rules[0], names))}"


@pytest.mark.parametrize(
    ("rule", "source", "offender"),
    [
        ("grid", "def run():\n    import torch.nn\n", "torch.nn"),
        ("grid", "from nuq import ops", "nuq.kernels.operators"),
        ("grid", "from nuq import registry", None),
        ("grid", "from ..nuq import alq", None),  # relative: grid.nuq, the sweeps
        ("grid", "from nuq import alq", "nuq.alq"),
        ("train", "if True:\n    from grid.engine import state", "grid.engine.states.run_files"),
        ("nuq", "import args", "args"),
        ("nuq", "from .levels import Levels", None),
        ("analysis", "import nuq.simulation", "nuq.simulation"),
        ("args", "import numpy", "numpy"),
    ],
)
def test_the_walk_finds_what_is_hidden(rule: str, source: str, offender: str | None) -> None:
    (chosen,) = (entry for entry in RULES if rule in entry.names)
    module = {"grid": "grid.engine", "nuq": "nuq"}.get(rule, rule)
    assert broken(chosen, imported(ast.parse(source), module, is_package=True)) == ([offender] if offender else [])


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_torch_stays_out() -> None:
    """All torch-free modules in one fresh interpreter, named one by one as torch appears."""
    assert {"args", "nuq.registry", "nuq.levels.update_rules", "grid_run", "grid.demo", "analysis"} <= set(TORCH_FREE)
    lines = ["import importlib, sys"]
    for name in TORCH_FREE:
        if not name.endswith("__main__"):
            lines += [f"importlib.import_module({name!r})", f"assert 'torch' not in sys.modules, '{name} brings torch in'"]
    done = _python("-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr


def _imports_of(*arguments: str) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """The modules that ``python ARGUMENTS`` imports, as its own import clock reports them."""
    done = _python("-X", "importtime", *arguments)
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in timed}, done


HEAVY = {"torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "sklearn", "submitit", "tensorboardX"}


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
    """What makes a start slow is what it imports: independent of this machine's speed."""
    modules, done = _imports_of(*script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not modules & never


# --- every file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_file_is_short_documented_and_well_named(path: Path) -> None:
    text = path.read_text()
    lines = len(text.splitlines())
    assert lines <= MAX_LINES, f"{path.relative_to(ROOT)} has {lines} lines; {MAX_LINES} is the ceiling"
    words = path.stem.lower().split("_")
    banned = {"util", "utils", "helper", "helpers", "common", "misc"} & set(words)
    assert not banned, f"{path.relative_to(ROOT)}: a name says what is inside; {banned.pop()!r} does not"
    assert ("TO" + "DO") not in text
    if path in RULED and text.strip():
        assert ast.get_docstring(_tree(path)), f"{path.relative_to(ROOT)} has no docstring"


def _is_settings(node: ast.ClassDef) -> bool:
    """A dataclass: its fields say what it is, and ``args.help_text`` prints their reasons."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("path", RULED, ids=_module)
def test_public_names_are_documented(path: Path) -> None:
    public = [node for node in _tree(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")]
    plain = [node for node in public if not (isinstance(node, ast.ClassDef) and _is_settings(node))]
    assert not [node.name for node in plain if not ast.get_docstring(node)]
