"""Writing files so that a reader sees the old one or the new one, and never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def aside(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path beside ``path``: the file that stands there in the end takes the place of ``path`` at once.

    durable: it reaches the disk first.  Whatever goes wrong, ``path`` is as it was and nothing is left beside it.
    """
    place = path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(3).hex()}.tmp")
    try:
        yield place
        if durable:
            with open(place, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(place, path)
    except BaseException:
        with suppress(OSError):
            place.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, executable: bool = False, durable: bool = False) -> None:
    """A text file in UTF-8, written aside (``aside``)."""
    with aside(path, durable=durable) as place:
        with open(place, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        if executable:
            os.chmod(place, 0o755)
