"""All tables of errors, what a room's rows say, and the file of their sentences."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from tests.errors import sites
from tests.errors.rows import Made, Row, made

SENTENCES = Path(__file__).parent / "sentences.txt"


def _tables(room: str) -> list[object]:
    here = Path(__file__).parent
    names = sorted(path.stem for path in here.glob("*.py") if path.stem == room or path.stem.startswith(f"{room}_"))
    return [importlib.import_module(f"tests.errors.{name}") for name in names]


def rows(room: str) -> list[Row]:
    """The rows of a room's tables."""
    return [one for table in _tables(room) for one in getattr(table, "ROWS", [])]


def listed(room: str, name: str) -> dict[str, str]:
    """``INTERNAL`` or ``HELD`` of a room: a site, or a function with all its sites, and what is said of it."""
    return {key: value for table in _tables(room) for key, value in getattr(table, name, {}).items()}


@cache
def errors(room: str) -> list[tuple[str, Made]]:
    """The errors of a room's rows, made once, with their keys."""
    return [(f"{one.call}: {one.given}", made(one)) for one in rows(room)]


def lines(room: str) -> list[str]:
    """A room's lines of the file."""
    return sorted(f"{key} | {error.kind} | {error.sentence}" for key, error in errors(room))


def written() -> dict[str, list[str]]:
    """The lines of the file, room by room."""
    found = dict[str, list[str]]()
    for line in SENTENCES.read_text().splitlines() if SENTENCES.exists() else []:
        if line.startswith("# "):
            room = found.setdefault(line[2:], [])
        elif line:
            room.append(line)
    return found


def unlisted(room: str) -> list[str]:
    """The sites of a room that no row reaches and no list names."""
    reached = {site for _, error in errors(room) for site in error.sites}
    named = listed(room, "INTERNAL") | listed(room, "HELD")
    return [site for site in sites.sites(room) if not {site, site.rpartition(" ")[0]} & {*reached, *named}]


def stale(room: str) -> list[str]:
    """The entries of a room's lists that name no site, or only sites that rows reach."""
    reached = {site for _, error in errors(room) for site in error.sites}
    left = [site for site in sites.sites(room) if site not in reached]
    named = [*listed(room, "INTERNAL"), *listed(room, "HELD")]
    return [name for name in named if name not in {*left, *(site.rpartition(" ")[0] for site in left)}]
