"""Files of a run folder: nothing but regular ones is read.  Imports no torch."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import IO


def opened(path: Path) -> IO[bytes]:
    """OSError for what is no regular file: a pipe would be waited for, a device has no end."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a folder's own error says so
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def text(path: Path) -> str:
    """The whole of it; OSError as above, UnicodeDecodeError for what is no UTF-8."""
    with opened(path) as file:
        return file.read().decode()
