"""Finding, checking and fetching of a data set's files, and the messages on what is missing or damaged.

Addresses and checksums are torchvision's own tables, read when they are needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Origin:
    """The origin of files: ``name`` as in ``data=name``, torchvision's class of them, and the size of a download."""

    name: str
    theirs: str
    size_mb: int
    splits: tuple[str, ...] = ()  # where torchvision fetches each split by itself


def missing(what: str, expected: str, remedy: str) -> FileNotFoundError:
    """The error for files that are not there, in one form for all data sets."""
    return FileNotFoundError(f"{what} not found: expected {expected}; {remedy}")


class DataError(ValueError):
    """A damaged file of a data set; met while training, it ends the run as bad data do at its start."""


# What the readers of a format meet in a file that is cut short, changed or of another version.
GARBLED = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
# What loading raises where data cannot be used: a bad setting or file, a missing one, a folder in its place, none that
# may be read.
UNUSABLE = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def damaged(path: Path, expected: str, found: object) -> DataError:
    """The error for a file that is not what it should be, in one form for all data sets."""
    return DataError(f"{path}: damaged or not the right file: expected {expected}, found {found}")


def first_existing(candidates: Iterable[Path]) -> Path | None:
    """The first of the candidates that is there."""
    return next((path for path in candidates if path.exists()), None)


def download_remedy(name: str, data_dir: Path) -> str:
    """The remedy for a data set that is not there, as the end of an error sentence."""
    own = f"set data_dir (now {data_dir}) to the folder that holds it"
    return f"{own}, or download it where there is a network: data={name} data.download=true"


def _table(origin: Origin) -> Any:
    from train.data.torchvision_import import torchvision

    return getattr(torchvision().datasets, origin.theirs)


def addresses(origin: Origin) -> list[str]:
    """The addresses from which torchvision fetches the files."""
    table = _table(origin)
    if origin.splits:
        return [table.split_list[split][0] for split in origin.splits]
    return table.mirrors[:1] if hasattr(table, "mirrors") else [table.url]


def checksums(origin: Origin) -> dict[str, str]:
    """The MD5 of each original file that torchvision fetches, by file name."""
    table = _table(origin)
    if origin.splits:
        return {name: md5 for _, name, md5 in table.split_list.values()}
    return dict(table.resources) if hasattr(table, "resources") else {table.filename: table.tgz_md5}


def verify(path: Path, origin: Origin, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for an original file that torchvision does not know; ``data.verify=false`` lets any pass."""
    if not settings["verify"]:
        return
    expected = checksums(origin)[path.name.replace(".idx", "-idx")]  # MNIST's files go by both names
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        error = damaged(path, f"the original's MD5 {expected}", found)
        raise ValueError(f"{error}; get it again, or read it all the same: data.verify=false")


# --- downloads -----------------------------------------------------------------------------------------------------

# What torchvision meets where there is no network, a mirror is down, a connection breaks, or a checksum differs.
_FAILURES = (OSError, RuntimeError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error, ValueError)


def download(origin: Origin, data_dir: Path, is_complete: Callable[[], bool]) -> None:
    """Let torchvision fetch and check the files in a folder aside, then move them into place.

    A download that breaks leaves nothing.  Processes that ask at once wait for the first (``is_complete`` tells the
    others that nothing is left to do).  FileNotFoundError, in one sentence, where it fails.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with _locked(data_dir):
            if is_complete():
                return
            source = " and ".join(addresses(origin))
            print(f"downloading {origin.name} (about {origin.size_mb} MB) from {source} to {data_dir}", flush=True)
            aside = Path(tempfile.mkdtemp(dir=data_dir, prefix=f".download-{origin.name}-"))
            try:
                table = _table(origin)
                for split in origin.splits:
                    table(str(aside), split=split, download=True)
                if not origin.splits:
                    table(str(aside), download=True)
                _move(aside, data_dir)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except _FAILURES as error:
        why = " ".join(str(error).split())
        raise FileNotFoundError(f"data.download=true could not fetch {origin.name} to {data_dir}: {why}") from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: both fetch, and each file is replaced whole
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _move(aside: Path, target: Path) -> None:
    """Move every file below ``aside`` to its place below ``target``; a file that is there is replaced."""
    for path in sorted(aside.rglob("*")):
        place = target / path.relative_to(aside)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            os.replace(path, place)
