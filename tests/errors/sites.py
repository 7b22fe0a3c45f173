"""Where product code raises: every ``raise`` with an exception of its own, and which of them an error came from.

A site is called by its file, its function and its place among those of the function: ``nuq/ddp.py:DDPHook.load 2``.
A bare ``raise`` passes on what others raised, and is none.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ROOMS = {
    "nuq": ("nuq",),
    "settings": ("args.py", "settings", "files"),
    "grid": ("grid_run.py", "grid"),
    "train": ("main.py", "train"),
    "analysis": ("analysis",),
}
_RAISE = dis.opmap["RAISE_VARARGS"]


def sites(room: str) -> list[str]:
    """The names of all sites of a room, in the order of its files."""
    found = []
    for name in ROOMS[room]:
        for path in sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]:
            if not path.is_relative_to(ROOT / "nuq/testing"):  # which pytest runs
                found += _sites(path).values()
    return found


def of_error(error: BaseException) -> set[str]:
    """The sites that an error passed, its causes and contexts included."""
    found, chain = set(), list[BaseException | None]([error])
    seen = set()
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        chain += [one.__cause__, one.__context__]
        trace = one.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            path = Path(code.co_filename)
            if code.co_code[trace.tb_lasti] == _RAISE and path.is_relative_to(ROOT):
                found |= {site for site in [_sites(path).get(trace.tb_lineno)] if site}
            trace = trace.tb_next
    return found


@cache
def _sites(path: Path) -> dict[int, str]:
    """The site of each line on which a ``raise`` of a file begins."""
    file, found, counts = path.relative_to(ROOT).as_posix(), {}, dict[str, int]()
    for function, line in _raises(ast.parse(path.read_text()), ""):
        counts[function] = counts.get(function, 0) + 1
        found[line] = f"{file}:{function} {counts[function]}"
    return found


def _raises(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _raises(child, f"{function}.{child.name}".lstrip("."))
        else:
            if isinstance(child, ast.Raise) and child.exc is not None:
                yield function, child.lineno
            yield from _raises(child, function)
