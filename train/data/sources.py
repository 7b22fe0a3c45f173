"""Finding a data set's files, and saying what is missing or damaged and how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def missing(what: str, expected: str, remedy: str) -> FileNotFoundError:
    """The error for files that are not there, in one form for all data sets."""
    return FileNotFoundError(f"{what} not found: expected {expected}; {remedy}")


def damaged(path: Path, expected: str, found: object) -> ValueError:
    """The error for a file that is not what it should be, in one form for all data sets."""
    return ValueError(f"{path}: damaged or not the right file: expected {expected}, found {found}")


def first_existing(candidates: Iterable[Path]) -> Path | None:
    """The first of the candidates that is there."""
    return next((path for path in candidates if path.exists()), None)


def download_remedy(name: str, data_dir: Path) -> str:
    """What to do about a data set that is not there, as the end of an error sentence."""
    own = f"set data_dir (now {data_dir}) to the folder that holds it"
    return f"{own}, or download it where there is a network: data={name} data.download=true"


def download(name: str, fetch: Callable[[Any], object], data_dir: Path) -> None:
    """Call ``fetch`` with torchvision's data sets; FileNotFoundError where the network does not give the files."""
    from train.torchvision_import import torchvision

    print(f"downloading {name} to {data_dir}", flush=True)
    try:
        fetch(torchvision().datasets)
    except (OSError, RuntimeError) as error:  # no network, a mirror that is down, a checksum that differs
        raise FileNotFoundError(f"data.download=true could not fetch {name} to {data_dir}: {error}") from error
