"""checkpoint.pt and checkpoint.previous.pt: everything that the next step depends on, in two generations.

Random numbers and data order are functions of (seed, step), so there is no generator to save.

A file is what ``torch.save`` writes, and after it one line with the SHA-256 of every byte before: names, shapes and the archive's own
tables are under it as the numbers are.  ``torch.load`` reads it as it is; ``head -c -94 checkpoint.pt | sha256sum`` checks it by hand.
The newest is never without a whole one beside it or in its place: it is written aside and flushed to the disk, then the one before gets
its second name, then the new one takes the first name, each at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

from nuq.links import Links

FILE, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
DAMAGED = "checkpoint.damaged.pt"  # a newest that gave way to the previous one, kept to be looked at
_LINE = re.compile(rb"\nsha256 of the bytes before: ([0-9a-f]{64})\n")
_LINE_BYTES = 94
_END = b"PK\x05\x06"  # of an archive, with 18 bytes behind it
_CHUNK_BYTES = 1 << 22
_UNREADABLE = (
    *(RuntimeError, EOFError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, NotImplementedError),
    *(pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, struct.error),
)


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or belongs to other settings."""


class Found(NamedTuple):
    """A whole checkpoint.  damage: of a newer one that gave way to it, in words; empty where there is none."""

    path: Path
    state: dict[str, Any]
    damage: str


# --- writing ------------------------------------------------------------------------------------------------------


def save(run_dir: Path, state: dict[str, Any]) -> None:
    """The newest checkpoint; the one that was the newest becomes the previous one.  OSError, with the path, leaves both as they were."""
    newest, aside, second = run_dir / FILE, _aside(run_dir, FILE), _aside(run_dir, PREVIOUS)
    try:
        with open(aside, "w+b") as file:
            _save_archive(state, file)
            file.write(_line(_digest(file, file.tell())))
            file.flush()
            os.fsync(file.fileno())
        if newest.exists():
            second.unlink(missing_ok=True)
            try:
                os.link(newest, second)  # both names are there at every moment
            except OSError:  # a file system without links: for a moment there is the previous name alone
                os.replace(newest, run_dir / PREVIOUS)
            else:
                os.replace(second, run_dir / PREVIOUS)
        os.replace(aside, newest)
        _flush_names(run_dir)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(newest)) from error
    finally:
        aside.unlink(missing_ok=True)
        second.unlink(missing_ok=True)


def _save_archive(state: dict[str, Any], file: IO[bytes]) -> None:
    """``torch.save``, whose archive, where a write fails, complains of a wrong position in place of what was wrong."""
    try:
        torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _tidy(run_dir: Path) -> None:
    """Delete what attempts that were killed have left half-written.  Only for the process that holds the folder."""
    for name in (FILE, PREVIOUS):
        for path in run_dir.glob(f".{name}.*.tmp"):
            path.unlink(missing_ok=True)


def _set_aside(run_dir: Path) -> None:
    """A damaged newest makes room, so that it never takes the place of a whole previous one.  Only for who holds the folder."""
    os.replace(run_dir / FILE, run_dir / DAMAGED)
    _flush_names(run_dir)


def _aside(run_dir: Path, name: str) -> Path:
    return run_dir / f".{name}.{os.getpid()}.tmp"


def _line(digest: str) -> bytes:
    return f"\nsha256 of the bytes before: {digest}\n".encode()


def _digest(file: IO[bytes], size: int) -> str:
    """Of so many bytes from the start of an open file, which is left behind them."""
    file.seek(0)
    digest = hashlib.sha256()
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _flush_names(run_dir: Path) -> None:
    """The folder itself to the disk, where the file system can."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(folder)
    finally:
        os.close(folder)


# --- reading ------------------------------------------------------------------------------------------------------


def load(run_dir: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """The state of ``find``, after one warning where the newest is damaged; None where there is none.  Changes nothing."""
    found = find(run_dir, identity, device)
    if found is not None and found.damage:
        _warn(found)
    return found.state if found is not None else None


def restore(run_dir: Path, identity: str, device: torch.device, links: Links) -> dict[str, Any] | None:
    """The same for all ranks of a run that goes on, of which the first holds the folder.

    It alone reads, and hands its bytes to the others: a shared file system may still show them an older file.  A damaged newest
    is set aside.
    """
    if links.rank:
        told = json.loads(links.texts("", "checkpoint")[0])
        if told["error"]:
            raise CheckpointError(told["error"])
        return decoded(io.BytesIO(_handed_on(links, told["bytes"], None)), device) if told["bytes"] else None
    found, error, size = None, None, 0
    try:
        found = find(run_dir, identity, device)
        size = found.path.stat().st_size if found is not None else 0
    except CheckpointError as raised:
        error = raised
    links.texts(json.dumps({"error": str(error or ""), "bytes": size}), "checkpoint")
    if error is not None:
        raise error
    _tidy(run_dir)
    if found is None:
        return None
    if links.world > 1:
        with open(found.path, "rb") as file:
            _handed_on(links, size, file)
    if found.damage:
        _warn(found)
        _set_aside(run_dir)
    return found.state


def find(run_dir: Path, identity: str, device: torch.device) -> Found | None:
    """The newest whole checkpoint; None where there is none.  A stranger's file runs no code.

    CheckpointError where there is one and none is whole, or where it was written with other settings.
    """
    damage: list[str] = []
    for path in (run_dir / FILE, run_dir / PREVIOUS):
        try:
            with open(path, "rb") as file:
                state = decoded(checked(file), device)
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            damage.append(f"{path} is damaged ({error})")
            continue
        except OSError as error:  # it may be whole, and to go on from an older one would lose steps
            raise CheckpointError(f"{path} cannot be read ({error.strerror}): make it readable, or move it away") from error
        if state["identity"] != identity:
            rule = f"was written with other settings (identity {state['identity']}, this run is {identity}): use another run_dir"
            raise CheckpointError(f"{path} {rule}")
        return Found(path, state, "; ".join(damage))
    if damage:
        raise CheckpointError(f"{' and '.join(damage)}: move {'them' if len(damage) > 1 else 'it'} away to start this run anew")
    return None


def checked(file: IO[bytes]) -> IO[bytes]:
    """A file whose last line fits the rest of it; CheckpointError where it does not.

    A file without that line, as this project wrote it before, has the archive's own checksums, which leave out its tables.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _LINE_BYTES, 0))
    if match := _LINE.fullmatch(end := file.read()):
        if _digest(file, size - _LINE_BYTES) != match[1].decode():
            raise CheckpointError("its checksum does not fit")
        return file
    if end[-22:-18] != _END:
        raise CheckpointError("it does not end as it should" if end else "it is empty")
    try:
        with zipfile.ZipFile(file) as records:
            bad = records.testzip()
    except _UNREADABLE as error:
        raise CheckpointError(_reason(error)) from error
    if bad:
        raise CheckpointError(f"the checksum of {bad} does not fit")
    return file


def decoded(file: IO[bytes], device: torch.device) -> dict[str, Any]:
    """The state in a file; CheckpointError where it holds none, or anything but tensors and plain values."""
    file.seek(0)
    try:
        state = torch.load(file, map_location=device, weights_only=True)
        identity, step = state["identity"], state["step"]
    except _UNREADABLE as error:
        raise CheckpointError(_reason(error)) from error
    if not (isinstance(state, dict) and isinstance(identity, str) and isinstance(step, int)):
        raise CheckpointError("it holds no state of a run")
    return state


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _warn(found: Found) -> None:
    """One line that names both files."""
    warnings.warn(f"{found.damage}: going on from {found.path}, of step {found.state['step']}", stacklevel=3)


def _handed_on(links: Links, size: int, file: IO[bytes] | None) -> bytes:
    """So many bytes of the first rank's file, on all others."""
    received = bytearray()
    for start in range(0, size, _CHUNK_BYTES):
        chunk = torch.empty(min(size - start, _CHUNK_BYTES), dtype=torch.uint8)
        if file is not None:
            chunk = torch.frombuffer(bytearray(file.read(len(chunk))), dtype=torch.uint8)
        links.broadcast(chunk, "checkpoint")
        if file is None:
            received += chunk.numpy().tobytes()
    return bytes(received)
