"""Readers of the files of a run folder, which read only regular ones. Imports no torch."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import IO


def opened(path: Path) -> IO[bytes]:
    """An open file; OSError for what is no regular file: a pipe would be waited for, a device has no end."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a folder's own error says so
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def text(path: Path) -> str:
    """The whole text of a file; OSError as in ``opened``, UnicodeDecodeError for what is no UTF-8."""
    with opened(path) as file:
        return file.read().decode()
