"""The walls of the house: who may import whom, what stays free of torch, and what every file looks like.

One table of rules is held against the syntax tree of every file, and the modules that must work without torch are
imported in a fresh interpreter.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("settings", "files", "nuq", "grid", "train", "analysis", "benchmarks", "tests")  # folders that hold code
MAX_LINES = 400


@dataclass(frozen=True)
class Rule:
    """The modules called ``names`` (or below them) may import ``allowed`` (or below) beside the standard library."""

    names: tuple[str, ...]
    allowed: tuple[str, ...]
    never: tuple[str, ...] = ()  # stated too, so that a wider ``allowed`` cannot let them in


# Rooms, and the rooms below them.  What stands beside them in a rule are packages of others that the room itself needs.
SETTINGS = ("nuq.registry", "nuq.settings")
PREDICTION = (*SETTINGS, "nuq.prediction")
LEVELS = ("nuq.settings", "nuq.native", "nuq.levels")  # without torch: tables, distributions and solvers in float64
KERNELS = (*LEVELS, "nuq.registry", "nuq.errors", "nuq.kernels")
DISPATCH = ("nuq.kernels.operators",)  # it imports the implementations of the operators
CODING = (*KERNELS, "nuq.coding")
COMPRESSORS = (*CODING, "nuq.compressors")
MODELS = (*COMPRESSORS, "nuq.parameters")
UNDER_COLLECTIVES = (
    "nuq.exchange.flat_layout",
    "nuq.exchange.finite",
    "nuq.exchange.missing",
    "nuq.exchange.payload",
    "nuq.exchange.transport",
)
ARRAYS = ("numpy", "torch")
HYDRA = ("hydra", "omegaconf")
OURS = ("args", "settings", "files")
SWEEPS = (*OURS, *SETTINGS, "grid.engine.sweeps")
SCRIPTS = (*SWEEPS, "grid.engine.scripts")
SLURM = (*SCRIPTS, "grid.engine.slurm")
STATES = (*SLURM, "grid.engine.states")
PROCESS = (*OURS, "nuq", "train.process")
DATA = (*PROCESS, "train.data")
STEPS = (*DATA, "train.models", "train.logs", "train.steps")

ANALYSIS = ("numpy", "scipy", "pandas", "matplotlib", "bokeh", "jinja2", "markupsafe", "rich", "yaml")

# Room by room, as in CONTRIBUTING.md.  The first rule that names a module holds for it.
RULES = (
    Rule(("settings.completion",), (*OURS, *SETTINGS)),
    Rule(("args", "settings"), (*OURS[:2], *SETTINGS, "hydra")),
    Rule(("files",), ("files", "yaml", "pyarrow", "argcomplete")),
    Rule(SETTINGS, SETTINGS),
    Rule(("nuq.prediction",), PREDICTION),
    Rule(("nuq.errors",), ()),
    Rule(("nuq.native",), ("nuq.native", "numpy")),
    Rule(("nuq.levels",), (*LEVELS, "numpy", "scipy")),
    Rule(
        ("nuq.kernels.spec", "nuq.kernels.bit_packing"),
        ("nuq.errors", "nuq.kernels.bit_packing", *ARRAYS, "jaxtyping"),
    ),
    Rule(("nuq.kernels.cuda",), (*KERNELS, "torch", "triton"), never=DISPATCH),
    Rule(("nuq.kernels.reference", "nuq.kernels.cpu"), (*KERNELS, "torch", "jaxtyping"), never=DISPATCH),
    Rule(("nuq.kernels",), (*KERNELS, *ARRAYS, "jaxtyping")),
    Rule(("nuq.coding",), (*CODING, *ARRAYS)),
    Rule(("nuq.compressors",), (*COMPRESSORS, *ARRAYS)),
    Rule(("nuq.parameters",), ("nuq.kernels.spec", "torch")),
    Rule(("nuq.exchange.collectives",), (*MODELS, *UNDER_COLLECTIVES, "nuq.exchange.collectives", "torch")),
    Rule(UNDER_COLLECTIVES, (*MODELS, *UNDER_COLLECTIVES, "nuq.exchange.agreement", "torch")),
    Rule(("nuq.exchange.hook",), (*MODELS, "nuq.exchange", "torch")),
    Rule(("nuq.exchange",), (*MODELS, "nuq.exchange", "torch"), never=("nuq.exchange.hook",)),
    Rule(("nuq.quantized_training",), (*MODELS, "nuq.quantized_training", *ARRAYS)),
    Rule(("nuq.testing",), (*COMPRESSORS, "nuq.testing", "torch", "pytest")),
    Rule(("nuq",), ("nuq", "torch")),
    Rule(("grid.engine.sweeps",), (*SWEEPS, "grid", "hydra")),  # which looks for families
    Rule(("grid.engine.sweep",), SWEEPS),
    Rule(("grid.engine.scripts",), SCRIPTS),
    Rule(("grid.engine.slurm",), (*SLURM, "submitit", "yaml")),
    Rule(("grid.engine.states",), (*STATES, "yaml")),
    Rule(("grid.engine.submission",), (*STATES, "grid.engine.submission")),
    Rule(("grid.engine.local",), (*STATES, "grid.engine.local")),
    Rule(("grid", "grid_run"), (*STATES, "grid", "yaml", "argcomplete")),
    Rule(("train.process",), (*PROCESS, "torch", "yaml")),
    Rule(("train.logs",), (*PROCESS, "train.logs", "numpy", "tensorboardX")),
    Rule(("train.data",), (*DATA, *ARRAYS, "scipy", "PIL", "tokenizers")),
    Rule(("train.models",), (*DATA, "train.models", "torch", "transformers", "safetensors")),
    Rule(("train.steps",), (*STEPS, *ARRAYS)),
    Rule(("train",), (*STEPS, "train", "torch", "tensorboardX", "yaml")),
    Rule(("analysis",), (*OURS, *PREDICTION, "grid", "analysis", *ANALYSIS)),
    Rule(("main",), (*OURS, *HYDRA, "train")),
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
    if name in ("args", "grid_run")
    or name.startswith(("settings", "files", "grid", "analysis", *PREDICTION, "nuq.native", "nuq.levels"))
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


def test_imports_follow_the_table() -> None:
    wrong = []
    for path in RULED:
        module = _module(path)
        names = imported(_tree(path), module, is_package=path.name == "__init__.py")
        rule = next((rule for rule in RULES if _within(module, rule.names)), None)
        wrong += [f"{module} is in no rule of the table"] if rule is None else []
        wrong += [f"{module} must not import {name}" for name in (broken(rule, names) if rule else [])]
    assert not wrong


@pytest.mark.parametrize(
    ("rule", "source", "offender"),
    [
        ("grid", "def run():\n    import torch.nn\n", "torch.nn"),
        ("grid", "from nuq.kernels import operators", "nuq.kernels.operators"),
        ("grid", "from nuq import registry", None),
        ("grid", "from ..nuq import alq", None),  # relative: grid.nuq, the sweeps
        ("grid", "from nuq import alq", "nuq.alq"),
        ("train", "if True:\n    from grid.engine.states import judge", "grid.engine.states.judge"),
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


def private(tree: ast.Module) -> list[str]:
    """The private names of this repository's modules that a file imports by ``from .. import``."""
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "", alias.name) for node in taken for alias in node.names]
    return [f"{module}.{name}" for module, name in names if name[0] == "_" and module.split(".")[0] in ROOMS]


def test_private_names_stay_in_their_file() -> None:
    assert private(ast.parse("if 1:\n    from nuq.ddp import _a, b\nfrom torch import _C")) == ["nuq.ddp._a"]
    assert not [name for path in FILES if not _module(path).startswith("tests") for name in private(_tree(path))]


def circles(edges: Mapping[str, set[str]]) -> list[str]:
    """The modules that lie on a circle of imports: each reaches itself."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            for name in edges[ahead.pop()] - found:
                found.add(name)
                ahead.append(name)
        return found

    return sorted(name for name in edges if name in reached(name))


READERS = ("grid", "train", "files", "analysis", "settings", "nuq", "benchmarks/gpu", "benchmarks/results")


def test_texts_of_other_programs_are_read_with_replacement() -> None:
    """What git, a compiler, nvidia-smi or a site's sbatch says may have any bytes."""
    strict = []
    for path in (path for room in READERS for path in (ROOT / room).rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = [({item.arg for item in call.keywords}, call) for call in calls]
        strict += [
            f"{path}:{call.lineno}"
            for names, call in named
            if "text" in names and not names & {"errors"} and ast.unparse(call.func).startswith("subprocess.")
        ]
    assert not strict


@pytest.mark.slow
def test_nothing_imports_in_a_circle() -> None:
    """Imports inside functions and for typing count too; those of a package's own ``__init__`` do not, unless it is
    named.
    """
    known = {_module(path): path for path in FILES}
    edges = {}
    for module, path in known.items():
        names = imported(_tree(path), module, is_package=path.name == "__init__.py")
        found = {name if name in known else name.rpartition(".")[0] for name in names}
        edges[module] = {name for name in found if name in known and name != module}
    assert sum(map(len, edges.values())) > 1000
    assert circles(edges) == []


def test_a_circle_is_found() -> None:
    edges: dict[str, set[str]] = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "c"}}
    assert circles(edges) == ["b", "c"]


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
