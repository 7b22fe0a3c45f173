"""CIFAR-10 as one file that travels with the wheels: ``prepare`` packs it, ``run`` unpacks it for its steps.

It uses only the standard library. Of the forms that ``train.data.cifar`` reads only the pictures in one folder per
class are small enough (18 MB packed); the original archive has 170 MB.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = "cifar10"
ARCHIVE = "cifar10.tar.xz"
SUFFIXES = (".jpg", ".jpeg", ".png")
PICTURES = ("train", "test")
FORMS = ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-10-python.tar.gz")  # others that the trainer reads


def folder_of(environment: Mapping[str, str], start: Path) -> Path:
    """The folder of the data sets as ``$NUQ_DATA`` says, from ``start`` on; else ``data`` of the checkout."""
    named = environment.get("NUQ_DATA")
    return start / named if named else ROOT / "data"


def pictures(folder: Path) -> list[Path]:
    """The pictures of CIFAR-10 in a folder of data sets; none where they are not there in this form."""
    found = [path for split in PICTURES for path in (folder / NAME / split).glob("*/*")]
    return sorted(path for path in found if path.suffix.lower() in SUFFIXES)


def is_in(folder: Path) -> bool:
    """Whether a folder of data sets has CIFAR-10 in a form that the trainer looks for."""
    own = folder / NAME
    places = [*(own / split for split in PICTURES), *(home / form for home in (own, folder) for form in FORMS)]
    return any(place.exists() for place in places)


def pack(folder: Path, archive: Path) -> None:
    """Write the pictures of a folder of data sets into an archive, whole or not at all."""
    part = archive.with_suffix(".part")
    with tarfile.open(part, "w:xz", preset=1) as tar:
        for path in pictures(folder):
            tar.add(path, str(path.relative_to(folder)), recursive=False)
    part.replace(archive)


def unpack(archive: Path, target: Path) -> str:
    """Unpack an archive into a folder.

    Returns a sentence where that fails, else nothing.
    """
    try:
        with tarfile.open(archive, "r:xz") as tar:
            tar.extractall(target, filter="data")
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        return f"{archive} cannot be unpacked ({error}): random pictures replace CIFAR-10"
    return ""


def environment_of(wheels: Path, site: Path, given: Mapping[str, str], start: Path) -> tuple[dict[str, str], str]:
    """Where the steps find CIFAR-10, as an environment, and a sentence that tells it.

    What is there comes first, in ``$NUQ_DATA`` or ``data``; else what was packed is unpacked below ``site``.
    """
    folder, archive = folder_of(given, start), wheels / ARCHIVE
    known = {"NUQ_DATA": str(folder)} if given.get("NUQ_DATA") else {}
    if is_in(folder):
        return known, ""
    if not archive.is_file():
        return (
            known,
            f"no CIFAR-10 in {folder} ($NUQ_DATA names another folder) and no {archive}: random pictures replace it",
        )
    if said := unpack(archive, site / "data"):
        return known, said
    return {"NUQ_DATA": str(site / "data")}, f"CIFAR-10 of {archive}{f', since {folder} has none' if known else ''}"
