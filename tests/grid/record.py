"""Checked-in records of generated texts."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
ACCEPT = "ACCEPT_GOLDEN=1 python -m pytest tests/grid"


def check(name: str, text: str) -> None:
    """The text equals its record exactly; a failure shows the changed lines and how to accept them."""
    record = GOLDEN / name
    if os.environ.get("ACCEPT_GOLDEN") == "1":
        record.write_text(text)
    known = record.read_text() if record.is_file() else ""
    changed = "\n".join(difflib.unified_diff(known.split("\n"), text.split("\n"), f"golden/{name}", "now", lineterm=""))
    assert text == known, f"the text of {name} changed:\n{changed}\nif it should, accept it with: {ACCEPT}"
