"""Figures that are newer than everything they are drawn from are not drawn again.

Beside them lies ``.drawn.json`` with the arguments they were drawn with, the paths and the notes; it is compared, by time of change,
with the logs, settings and states of the sweep's runs and with this package's own files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

STAMP = ".drawn.json"
_READ = ("events.out.tfevents.*", "config.yaml", "status.json")


def _sources(sweep_dir: Path) -> Iterator[Path]:
    yield sweep_dir  # a run that came or went
    yield from Path(__file__).parent.glob("*.py")
    for pattern in _READ:
        yield from sweep_dir.glob(f"*/{pattern}")


def drawn_before(folder: Path, sweep_dir: Path, arguments: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """(paths, notes) of figures that are still right; None where something is newer, missing or drawn otherwise."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
        when = (folder / STAMP).stat().st_mtime_ns
        fresh = all(source.stat().st_mtime_ns < when for source in _sources(sweep_dir))
    except (OSError, json.JSONDecodeError):
        return None
    if not fresh or stamp["arguments"] != list(arguments) or not all(Path(path).exists() for path in stamp["paths"]):
        return None
    return stamp["paths"], stamp["notes"]


def remember(folder: Path, arguments: Sequence[str], paths: Sequence[str], notes: Sequence[str]) -> None:
    """Leave the stamp; call it after the last figure is written."""
    text = json.dumps({"arguments": list(arguments), "paths": list(paths), "notes": list(notes)})
    aside = folder / f"{STAMP}.tmp"
    aside.write_text(text)
    aside.replace(folder / STAMP)
