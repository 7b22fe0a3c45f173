"""A record of what was drawn, so that the same files are not drawn twice.

The file ``.drawn.json`` lies beside the figures. It holds a digest of all files that they were drawn from and of this
package's own (names, sizes, times of change), the arguments, the paths and the notes. The digest is taken before the
logs are read: what changes meanwhile counts as new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from analysis.logs import discovery
from files.atomic import write_text

STAMP = ".drawn.json"
_OWN = ("*.py", "*.js", "*.css", "*.html", "*.json")
_NOT_READ = (".log", ".pt", ".pth", ".tar", ".ckpt", ".sh")


def digest(sweep_dir: Path) -> str:
    """A digest of all that a sweep's figures and reports come from, unread: the same until something has changed."""
    total = hashlib.sha256()
    package = Path(__file__).parent
    for path in sorted(path for pattern in _OWN for path in package.rglob(pattern)):
        total.update(f"{path.relative_to(package)} {path.stat().st_mtime_ns}\0".encode())
    for run in discovery.find(sweep_dir, []):
        total.update(f"{run.name}\0".encode(errors="surrogateescape"))
        for name, mark in sorted(run.files.items()):
            if not name.endswith(_NOT_READ):
                total.update(f"{name} {mark}\0".encode(errors="surrogateescape"))
    return total.hexdigest()


def drawn_before(folder: Path, of: str, arguments: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The paths and notes drawn from the files of this digest; None where any is missing or drawn otherwise."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
        same = (stamp["digest"], stamp["arguments"]) == (of, list(arguments))
        paths, notes = stamp["paths"], stamp["notes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (paths, notes) if same and all(Path(path).exists() for path in paths) else None


def remember(folder: Path, of: str, arguments: Sequence[str], paths: Sequence[str], notes: Sequence[str]) -> None:
    """Write the record of what was drawn; call it after the last figure is written."""
    text = json.dumps({"digest": of, "arguments": list(arguments), "paths": list(paths), "notes": list(notes)})
    write_text(folder / STAMP, text)
