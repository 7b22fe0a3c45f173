"""The wrong changes can be made: each has its place in today's code, changes it, and leaves code that can be read."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.wrong_changes import CHANGES

ROOT = Path(__file__).parent.parent


def test_every_wrong_change_has_one_place_and_leaves_python_that_parses() -> None:
    wrong = []
    for name, change in CHANGES.items():
        for file, old, new in change.edits:
            text = (ROOT / file).read_text(encoding="utf-8")
            if text.count(old) != 1 or old == new:
                wrong.append(f"{name}: {text.count(old)} times in {file}")
            elif file.endswith(".py"):
                ast.parse(text.replace(old, new), file)
    assert not wrong


def test_every_wrong_change_names_tests_that_are_there() -> None:
    assert not [path for each in CHANGES.values() for path in each.tests.split() if not (ROOT / path).exists()]
