"""checkpoint.pt and checkpoint.previous.pt: everything that the next step depends on, in two generations.

Those of the steps of ``checkpoint_at`` stay beside them, as checkpoint-STEP.pt.

Random numbers and data order are functions of (seed, step), so there is no generator to save.  A file is what
``torch.save`` writes, and after it one line with the SHA-256 of every byte before: names, shapes and the archive's own
tables are under it as the numbers are.  ``torch.load`` reads it as it is; ``head -c -94 checkpoint.pt | sha256sum``
checks it by hand.  The newest is never without a whole one beside it or in its place: it is written aside and flushed
to the disk, then the one before gets its second name, then the new one takes the first name, each at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

from files import atomic
from files.plain import Unreadable, opened
from nuq.exchange.transport import Transport
from train.process.status import tidy

FILE, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
DAMAGED = "checkpoint.damaged.pt"  # a newest that gave way to the previous one, kept to be looked at
_LINE = re.compile(rb"\nsha256 of the bytes before: ([0-9a-f]{64})\n")
_LINE_BYTES = 94
_KEPT = re.compile(r"checkpoint-\d+\.pt")
_END = b"PK\x05\x06"  # the end of an archive, with 18 bytes behind it
_CHUNK_BYTES = 1 << 22
_PLAIN = {"identity": str, "step": int, "evaluated": bool, "fingerprint": str, "transform_input": bool}
_LATER = (
    "totals.network_bytes",
    "totals.round_bytes",
    "totals.round_means",
    "tensors.seed",
    "tensors.formats",
)  # names that older checkpoints lack
UNREADABLE = (
    *(RuntimeError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, struct.error),
)


class CheckpointError(ValueError):
    """A checkpoint that is damaged or of other settings: what is wrong, and what the user may do about it."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what


class StrangeError(CheckpointError):
    """A file that holds more than tensors and plain values, which no run saves."""


class AtLeast(dict[Any, Any]):
    """A dict for ``check_values``: a state may have other names beside its own."""


class Open(AtLeast):
    """A dict for ``check_values``: a state may lack its names, too."""


class Found(NamedTuple):
    """A whole checkpoint; damage: of a newer one that gave way to it, in words, or empty."""

    path: Path
    state: dict[str, Any]
    damage: str


# --- writing ------------------------------------------------------------------------------------------------------


def save(run_dir: Path, state: dict[str, Any]) -> None:
    """Save the newest checkpoint; the one before becomes the previous.  OSError, with the path, changes neither."""
    newest = run_dir / FILE
    try:
        with atomic.aside(newest) as place:
            with open(place, "w+b") as file:
                _save_archive(state, file)
                file.write(f"\nsha256 of the bytes before: {_digest(file, file.tell())}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            if newest.exists():
                _name_previous(newest)
        _flush_names(run_dir)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(newest)) from error


def keep(run_dir: Path, step: int) -> None:
    """Keep the newest checkpoint, which is of this step, under a name of its own."""
    newest = run_dir / FILE
    try:
        if not _also_named(newest, of_step(run_dir, step)):
            with atomic.aside(of_step(run_dir, step)) as place:
                shutil.copyfile(newest, place)
        _flush_names(run_dir)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(of_step(run_dir, step))) from error


def of_step(run_dir: Path, step: int) -> Path:
    """The path of a checkpoint that stays."""
    return run_dir / f"checkpoint-{step}.pt"


def _name_previous(newest: Path) -> None:
    """Give a file the name of the previous one, at once."""
    if not _also_named(newest, newest.with_name(PREVIOUS)):
        os.replace(newest, newest.with_name(PREVIOUS))  # for a moment there is the previous name alone


def _also_named(path: Path, name: Path) -> bool:
    """Give a file this name, too, in one step; returns False where the file system has no links."""
    second = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        second.unlink(missing_ok=True)
        os.link(path, second)  # both names are there at every moment
        os.replace(second, name)
    except OSError:
        return False
    finally:
        second.unlink(missing_ok=True)
    return True


def _save_archive(state: dict[str, Any], file: IO[bytes]) -> None:
    """``torch.save``, but with the true reason where a write fails: its archive complains of a wrong position."""
    try:
        torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _digest(file: IO[bytes], size: int) -> str:
    """The digest of so many bytes from the start of an open file, which is left behind them."""
    file.seek(0)
    digest = hashlib.sha256()
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _flush_names(run_dir: Path) -> None:
    """Flush the folder itself to the disk, where the file system can."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(folder)
    finally:
        os.close(folder)


# --- reading ------------------------------------------------------------------------------------------------------


def restore(run_dir: Path, identity: str, device: torch.device, transport: Transport) -> Found | None:
    """The checkpoint that ``find`` finds, for all ranks of a run that goes on; a damaged newest is set aside."""
    found = on_all_ranks(lambda: find(run_dir, identity, device), device, transport)
    if transport.rank == 0:
        tidy(run_dir, FILE, PREVIOUS)
    if found is not None and found.damage:
        warnings.warn(f"{found.damage}: going on from {found.path}, of step {found.state['step']}", stacklevel=2)
        os.replace(run_dir / FILE, run_dir / DAMAGED)  # lest it take the place of the whole previous one
        _flush_names(run_dir)
    return found


def on_all_ranks(look: Callable[[], Found | None], device: torch.device, transport: Transport) -> Found | None:
    """The checkpoint that the first rank finds, for all ranks; what is damaged is told to the first alone.

    It alone reads, and hands its bytes to the others: a shared file system may still show them an older file.
    CheckpointError, on all ranks alike.
    """
    found, error = None, None
    if transport.rank == 0:
        try:
            found = look()
        except CheckpointError as raised:
            error = raised
    size, path = (found.path.stat().st_size, str(found.path)) if found is not None else (0, "")
    word = json.dumps({"error": str(error or ""), "bytes": size, "path": path})
    told = json.loads(transport.texts(word, "checkpoint")[0])
    if told["error"]:
        raise error or CheckpointError(told["error"])
    if not told["bytes"]:
        return None
    if found is None:  # on another rank
        state = decoded(io.BytesIO(_handed_on(transport, told["bytes"], None)), device)
        return Found(Path(told["path"]), state, "")
    if transport.world > 1:
        with open(found.path, "rb") as file:
            _handed_on(transport, size, file)
    return found


def find(run_dir: Path, identity: str, device: torch.device) -> Found | None:
    """The newest whole checkpoint; None where there is none. A stranger's file runs no code.

    CheckpointError where there is one and none is whole, or where it was written with other settings.
    """
    damage: list[str] = []
    for path, state in _whole((run_dir / FILE, run_dir / PREVIOUS), identity, device, damage):
        return Found(path, state, "; ".join(damage))
    if damage:
        they = "them" if len(damage) > 1 else "it"
        raise CheckpointError(" and ".join(damage), f"move {they} away to start this run anew")
    return None


def at_step(run_dir: Path, identity: str, step: int, device: torch.device) -> Found:
    """The whole checkpoint of this step in another run's folder, kept there or one of the two newest.

    CheckpointError where there is none, with the steps that there are.
    """
    damage: list[str] = []
    steps = {int(path.stem.partition("-")[2]) for path in run_dir.glob("checkpoint-*.pt") if _KEPT.match(path.name)}
    for path, state in _whole((of_step(run_dir, step), run_dir / FILE, run_dir / PREVIOUS), identity, device, damage):
        if state["step"] == step:
            return Found(path, state, "")
        steps.add(state["step"])
    legal = ", ".join(map(str, sorted(steps - {step}))) or "none"
    also = f"; {' and '.join(damage)}" if damage else ""
    remedy = f"run it with checkpoint_at=[{step}] in a folder of its own (run_dir=FOLDER)"
    raise CheckpointError(f"{run_dir} has no checkpoint of step {step} (legal: {legal}{also})", remedy)


def _whole(
    paths: Iterable[Path], identity: str, device: torch.device, damage: list[str]
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The whole checkpoints among these, each with its state; a sentence on each damaged one goes to ``damage``.

    CheckpointError for one that cannot be read, or is of other settings.
    """
    for path in paths:
        try:
            with opened(path) as file:
                state = decoded(checked(file), device)
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            damage.append(unusable(path, error))
            continue
        except (OSError, Unreadable) as error:  # it may be whole, and to go on from an older one would lose steps
            what = f"{path} cannot be read ({getattr(error, 'strerror', error)})"
            raise CheckpointError(what, "make it readable, or move it away") from error
        check_identity(path, state, identity)
        yield path, state


def check_identity(path: Path, state: dict[str, Any], identity: str) -> None:
    """Raise CheckpointError where a state is of other settings."""
    if state["identity"] != identity:
        rule = f"was written with other settings (identity {state['identity']}, this run is {identity})"
        raise CheckpointError(f"{path} {rule}", "use another run_dir")


def other_data(state: dict[str, Any], name: str, fingerprint: str) -> str:
    """The reason why a state cannot go with this data, in words; empty where it can, or has no fingerprint yet."""
    its = state.get("fingerprint") or fingerprint
    if its == fingerprint:
        return ""
    return f"the run began on data with the fingerprint {its}, and {name}'s here have {fingerprint}"


def checked(file: IO[bytes]) -> IO[bytes]:
    """The content of a file whose last line fits the rest of it; CheckpointError where it does not.

    A file without that line, as this project wrote it before, has the archive's own checksums, which leave out its
    tables.
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
    except UNREADABLE as error:
        raise CheckpointError(reason(error)) from error
    if bad:
        raise CheckpointError(f"the checksum of {bad} does not fit")
    return file


def decoded(file: IO[bytes], device: torch.device) -> dict[str, Any]:
    """The state in a file; CheckpointError where it holds none, or anything but tensors and plain values."""
    file.seek(0)
    try:
        state = torch.load(file, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise StrangeError(reason(error)) from error
    except UNREADABLE as error:
        raise CheckpointError(reason(error)) from error
    if not (isinstance(state, dict) and {"identity", "step"} <= state.keys()):
        raise CheckpointError("it holds no state of a run")
    for name, kind in _PLAIN.items():
        if name in state and type(state[name]) is not kind:
            raise CheckpointError(f"its {name} is {_kind(state[name])}; legal: {kind.__name__}")
    return state


def check_values(state: dict[str, Any], own: dict[str, Any], steps: int) -> None:
    """Raise ValueError, in a few words, where a state is none that a run of so many steps saves.

    own: what this run would save itself, or as much of it as is read.  Names, kinds, shapes and types are compared,
    numbers are at least 0.
    """
    if not 0 <= state["step"] <= steps:
        raise ValueError(f"its step is {_kind(state['step'])}; legal: 0 to {steps}")
    for name, value in own.items():
        if name not in state:
            raise ValueError(f"it has no {name}")
        _compare(name, state[name], value)


def _compare(name: str, found: Any, own: Any) -> None:
    """Raise ValueError where the value that a state has under a name is not as ``own``."""
    if isinstance(own, int | float) and not isinstance(own, bool):
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 2**63:
            raise ValueError(f"its {name} is {_kind(found)}, which is no number from 0 on, below 2^63")
        return
    if not _alike(found, own):
        raise ValueError(f"its {name} is {_kind(found)}, where this run has {_kind(own)}")
    if not isinstance(own, dict):
        return
    for key in (key for key in own if key in found):
        _compare(f"{name}.{key}", found[key], own[key])
    for key in [*own, *found]:
        if key not in found and not isinstance(own, Open) and f"{name}.{key}" not in _LATER:
            raise ValueError(f"it has no {name}.{key}")
        if key not in own and not isinstance(own, AtLeast):
            raise ValueError(f"its {name}.{key} is unknown to this run")


def _alike(found: Any, own: Any) -> bool:
    if isinstance(own, torch.Tensor):
        return isinstance(found, torch.Tensor) and _kind(found) == _kind(own)
    return isinstance(found, dict) if isinstance(own, dict) else type(found) is type(own)


def _kind(value: Any) -> str:
    """A description of a value: a tensor's type and shape, and what is odd about it; else the value or its type."""
    if isinstance(value, torch.Tensor):
        odd = "meta " if value.is_meta else "" if value.layout == torch.strided else f"{value.layout} "
        return f"{odd}{value.dtype}{list(value.shape)}".replace("torch.", "")
    if isinstance(value, int) and value.bit_length() > 200:  # which may have too many digits for a text
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | int | float | None):
        return repr(value)[:60]
    return "a dict" if isinstance(value, dict) else f"a {type(value).__name__}"


def unusable(path: Path, error: CheckpointError) -> str:
    """A sentence on which file is unusable, and what ``checked`` or ``decoded`` found wrong with it."""
    return f"{path} is {'no checkpoint of a run' if isinstance(error, StrangeError) else 'damaged'} ({error})"


def reason(error: BaseException) -> str:
    """The reason why a file could not be read, in one line; torch's own advice, to trust a file, is left out."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something else than tensors and plain values, and nothing else is read"
    return str(error).splitlines()[0].split(". ")[0] if str(error) else type(error).__name__


def _handed_on(transport: Transport, size: int, file: IO[bytes] | None) -> bytes:
    """So many bytes of the first rank's file, sent to all others."""
    received = bytearray()
    for start in range(0, size, _CHUNK_BYTES):
        chunk = torch.empty(min(size - start, _CHUNK_BYTES), dtype=torch.uint8, device="cpu")
        if file is not None:
            chunk = torch.frombuffer(bytearray(file.read(len(chunk))), dtype=torch.uint8)
        transport.broadcast(chunk, "checkpoint")
        if file is None:
            received += chunk.numpy().tobytes()
    return bytes(received)
