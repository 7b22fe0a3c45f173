"""The pieces of bash that scripts are made of, one file for each.

``@name@`` is filled in; lines that begin with ``#:`` are for readers of the file and do not reach the script.
Imports the standard library alone.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"@([a-z_]+)@")


def filled(name: str, **values: object) -> str:
    """The piece in ``name``.sh with its names filled in; raises KeyError for a name without a value."""
    return _NAME.sub(lambda match: str(values[match.group(1)]), piece(name))


@cache
def piece(name: str) -> str:
    """The piece in ``name``.sh, unchanged."""
    lines = (Path(__file__).parent / f"{name}.sh").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#:"))
