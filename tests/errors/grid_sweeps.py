"""Errors of a sweep: points and how they combine, seeds and resources, files of sweeps, and sweeps of --sweep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grid.engine.sweep import (
    Point,
    Sweep,
    after,
    axis,
    needs,
    point,
    product,
    rows,
    union,
    when,
    where_read,
    without,
    zipped,
)
from grid.engine.sweeps import written
from grid.engine.sweeps.families import find, load, parse_seeds
from grid.engine.sweeps.points import kept
from grid.engine.sweeps.rates import sparse_ratio
from tests.errors.rows import Row, row

METHODS = union(point("SGD", method="sgd"), point("QSGD", method="qsgd"), point("ALQ", method="alq"))
A, B = point("a", method="qsgd"), point("b", method="trn")
FROM_A = point("c", {"model.weights_file": "{after}/c.pt"}, method="trn")


def points(given: str, make: Callable[[], object]) -> Row:
    """A function for points with a bad argument; ``given`` is the call."""
    function, _, arguments = given.partition("(")
    return row(f"grid.engine.sweep.{function}()", arguments.removesuffix(")") or "no argument", make)


def text(given: str) -> Row:
    return row("grid.engine.sweep.axis()", repr(given), lambda: axis(given))


def _experiments(listed: Sequence[Point], **others: Any) -> object:
    return Sweep(listed, **{"grid": "g", "run_name": "r", **others}).experiments()


def sweep(what: str, given: str, listed: Sequence[Point], **others: Any) -> Row:
    """A sweep whose points can be made, and whose experiments cannot."""
    return row(f"Sweep: {what}", given, lambda: _experiments(listed, **others))


def fork(given: str, **settings: Any) -> Row:
    start = point("a", {"checkpoint_at": [10], "steps": 20}, method="alq")
    named = {name.replace("__", "."): value for name, value in settings.items()}
    end = product(point("b", {"fork.run": "{after}", "steps": 20, **named}, method="qsgd"), after("a"))
    return sweep("fork.run={after}", given, union(start, end))


def resources(given: str, value: Any) -> Row:
    return sweep("resources=", given, axis("workers=2,4"), resources=value)


def override(given: str, grid: str = "demo", run_name: str = "demo", **settings: Any) -> Row:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return row("grid_run.py --set", given, lambda: load(grid, run_name).override(named))


def own_file(given: str, body: str, *, head: str = "def mine() -> Sweep:\n    ") -> Row:
    """A file of sweeps, named as a file of ours, of which the sweep ``mine`` is asked for."""

    def make(folder: Path) -> None:
        (folder / "points.py").write_text(f"from grid.engine.sweep import *\n\n{head}{body}\n")
        load("points.py", "mine").experiments()

    return row("grid_run.py --grid FILE.py", given, make)


def named(given: str, grid: str, run_name: str = "mine") -> Row:
    return row("grid_run.py GRID RUN_NAME", given, lambda: load(grid, run_name))


def _in_a_package(folder: Path) -> None:
    (folder / "own_sweeps").mkdir()
    (folder / "own_sweeps/__init__.py").touch()
    sys.path.insert(0, str(folder))
    try:
        load("own_sweeps.none", "mine")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("own_sweeps", None)


def line(*words: str, name: str | None = None) -> Row:
    def make() -> None:
        made = load(written.GRID, written.run_name(words, name))
        made.check_read()
        made.experiments()

    return row("grid_run.py --sweep" if name is None else "grid_run.py --name", name or repr(" ".join(words)), make)


ROWS = [
    # points
    points("axis('model', 'resnet8')", lambda: axis("model", "resnet8")),
    points("axis('steps', 3)", lambda: axis("steps", 3)),  # pyright: ignore[reportArgumentType]
    points("axis('steps', [])", lambda: axis("steps", [])),
    text("method.bist=1,2"),
    text("method=glob(a*)"),
    text("+steps=1,2"),
    text("~steps"),
    text("optim.lr=interval(0,1)"),
    text("steps=shuffle(1,2)"),
    text("steps=tag(a,choice(1,2))"),
    text("method@x=alq,qsgd"),
    text("steps={a:1},2"),
    text("data_dir=${oc.env:HOME},b"),
    text("steps=1,"),
    text("steps"),
    text("=3"),
    points("where_read({'workers': 2})", lambda: where_read({"workers": 2})),
    points("zipped(two, three)", lambda: zipped(axis("workers=1,2"), axis("steps=1,2,3"))),
    points("product(METHODS, 'steps=1,2')", lambda: product(METHODS, "steps=1,2")),  # pyright: ignore[reportArgumentType]
    points("union(when(...))", lambda: union(when("method=alq", axis("steps=1")))),  # pyright: ignore[reportArgumentType]
    points("when('method=trn')", lambda: product(METHODS, when("method=trn", axis("steps=1")))),
    points("when({'workrs': 4})", lambda: product(METHODS, when({"workrs": 4}, axis("steps=1")))),
    points("when('workers=4'), before its axis", lambda: product(when("workers=4", needs(gpus=1)), axis("workers=4"))),
    points("without('method=trn')", lambda: without(METHODS, "method=trn")),
    points("without(every method)", lambda: without(METHODS, "method=alq", "method=qsgd", "method=sgd")),
    points("without('stesp=1')", lambda: without(METHODS, "stesp=1")),
    points("rows(['method=alq,qsgd'])", lambda: rows(["method=alq,qsgd"])),
    points("rows('method=alq')", lambda: rows("method=alq")),
    points("rows(3)", lambda: rows(3)),  # pyright: ignore[reportArgumentType]
    points("rows({'resources': 3})", lambda: rows({"resources": 3})),
    points("needs(gpu=1)", lambda: needs(gpu=1)),
    points("needs(time='12h')", lambda: needs(time="12h")),
    points("needs(nodes=0)", lambda: needs(nodes=0)),
    points("after()", lambda: after()),
    points("after(3)", lambda: after(3)),  # pyright: ignore[reportArgumentType]
    points("point(method='qsdg')", lambda: kept(point(method="qsdg"))),
    row("grid.engine.sweeps.rates.sparse_ratio(bits)", "20", lambda: sparse_ratio(20)),
    # experiments
    row("Sweep(seeds=)", "0", lambda: Sweep([A], seeds=0)),
    sweep("the folder", "main", [A], folder="main"),
    sweep("a point", "method='qsdg'", [point("A", method="qsdg")]),
    sweep("a point", "steps='many'", [point("A", steps="many")]),
    sweep("a point", "seed=3", axis("seed", [3])),
    sweep("a point", "run_dir=3", axis("run_dir", [3])),
    sweep("a point", "seed=1, without a label", [A, point("", {"seed": 1})]),
    sweep("a point", "steps=0, without a label", [A, point("", {"method": "sgd", "steps": 0})]),
    sweep("after()", "what comes later", union(product(A, after("b")), B)),
    sweep("after()", "itself", union(product(A, after("a")))),
    sweep("after()", "a label that is none", union(A, product(B, after("aa")))),
    sweep("after()", "of a run that is listed before", union(A, B, product(point("c", A.settings), after("b")))),
    sweep("{after}", "without after()", [FROM_A]),
    sweep("{after}", "of two labels", union(A, B, product(FROM_A, after("a", "b")))),
    sweep("{after}", "with keep=True", union(A, product(FROM_A, after("a"))), keep=True),
    fork("at=11, which is not kept", fork__at=11),
    fork("at=20, the last step", fork__at=20),
    fork("workers=8, of a run with 4", fork__at=10, workers=8),
    resources("{'gpu': 1}", {"gpu": 1}),
    resources("{'mem': ['1GB']}", {"mem": ["1GB"]}),
    resources("{'nodes': 2, 'ranks': 3}", {"nodes": 2, "ranks": 3}),
    resources("a function to '12h'", lambda config: {"time": "12h"}),
    resources("a function to 3", lambda config: 3),
    override("seed=3", seed=3),
    override("run_dir=3", run_dir=3),
    override("what no method reads", "nuq", "mnist", method__clip_sigma=1.0),
    # files
    own_file("a wrong setting", "return Sweep(axis('method.bist=2,3'))"),
    own_file(
        "a call on several lines", "return Sweep(product(\n        axis('steps=1,2'),\n        needs(time='12h')))"
    ),
    own_file("an error in a function of resources", "return Sweep([point()], resources=lambda config: config['x'])"),
    own_file("an error in a condition", "return Sweep(product(point(), when(lambda given: given['x'], point())))"),
    own_file("sys.exit()", "import sys; sys.exit(3)"),
    own_file("a wrong line", "return Sweep("),
    own_file("no function", "x = 3", head=""),
    own_file("no annotation", "return Sweep([point()])", head="def mine():\n    "),
    own_file("another name", "return Sweep([point()])", head="def mein() -> Sweep:\n    "),
    own_file("an argument", "return Sweep([point()])", head="def mine(bits) -> Sweep:\n    "),
    own_file("returns 3", "return 3"),
    own_file("points=3", "return Sweep(3)"),
    own_file("points=[3]", "return Sweep([3])"),
    own_file("seeds='1,2'", "return Sweep([point()], seeds='1,2')"),
    own_file("resources=[3]", "return Sweep([point()], resources=[3])"),
    own_file("a name that is none", "return Sweep(pint())"),
    own_file("a module that is not here", "return 3\nimport nonesuch"),
    own_file("no points", "return Sweep([])"),
    own_file("no seeds", "return Sweep([point()], seeds=[])"),
    own_file("seeds=0", "return Sweep([point()], seeds=0)"),
    own_file("folder='../../evil'", "return Sweep([point()], folder='../../evil')"),
    own_file("arguments by name", "return 3", head="def mine(bits, *, lr, seed=1) -> Sweep:\n    "),
    own_file("folder='a b'", "return Sweep([point()], folder='a b')"),
    named("no such file", "none.py"),
    named("no such family", "nuk"),
    named("no such package", "own_sweeps.none"),
    named("no such run name", "nuq", "mnits"),
    row("grid_run.py GRID RUN_NAME", "no such module of a package", _in_a_package),
    row("grid_run.py --seeds", "'0'", lambda: parse_seeds("0")),
    row("grid_run.py --seeds", "'1,b'", lambda: parse_seeds("1,b")),
    row("grid_run.py NAME", "'TNR bits=2'", lambda: find(load("abl", "bits").experiments(), "TNR bits=2")),
    # --sweep
    line("method=trn", "method.bits=2,3"),
    line("method.bitz=2,3"),
    line("methd=qsgd,alq"),
    line("method=qsgd,alg"),
    line("method=qsgd", "method=alq"),
    line("method=qsgd", "ALQ"),
    line("=3"),
    line("seed=1,2"),
    line("run_dir=x"),
    line("data=digits", "data.num_train=5"),
    line("method=qsgd", name="a b"),
]

INTERNAL = {"grid/engine/sweeps/families.py:_load_file 2": "invariant: a path that ends in .py has a loader"}
