"""The code that submitted runs execute: a copy of the tree, named by its contents, that later edits do not reach.

A snapshot is ``jobs/code/<first 12 digits of the digest>/``.  It holds every file that git tracks or would add (outside
git every file) but notes (UNREAD), links to the generated folders of the checkout, so that relative paths keep working
there, and the built library.  Git lists the files.  It does not hash or copy them: a tree object would be a second way
beside the one that has to work outside git, and would pass filters and attributes (docs/written_by_hand.md has times).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from files import plain
from files.atomic import aside, write_text

FOLDER = "jobs/code"
DIGITS = 12
MANIFEST = ".snapshot.json"  # the contents of the snapshot: commit, dirty, digest, and a mark for each file
LIBRARY = "nuq/native/libnuq.so"  # built from files of the snapshot, so no part of the digest
LINKED = ("runs", "data", "figures", ".venv")  # linked even where the checkout does not have them yet
GENERATED = {*LINKED, "jobs", "build", "dist"}  # names at the top level
# names at any level
CACHES = {"__pycache__", ".git", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis", ".ipynb_checkpoints"}
UNREAD = {".md", ".rst", ".pdf", ".ipynb", ".log"}  # files that people write and no run reads: no part of the code
LARGEST_UNTRACKED_BYTES = 20 * 2**20
ABANDONED_S = 3600.0  # a half-built copy that a killed process left is removed after this time
TRIES = 3


@dataclasses.dataclass(frozen=True)
class Code:
    """The identity of the code: the digest of the files, and the commit they were edited from ("" outside git)."""

    digest: str  # 64 hexadecimal digits
    commit: str
    dirty: bool  # whether the files differ from the commit; False outside git


def current(root: Path) -> Code:
    """The code of the tree as it is.

    ValueError for a large file that would be copied, or where git cannot read the tree.
    """
    return marked(root)[0]


def marked(root: Path) -> tuple[Code, dict[str, str]]:
    """The code of the tree (see ``current``), and a mark for each of its files, which changes with the file."""
    marks = _marks(root)
    return _code(root, marks), marks


def snapshot(root: Path) -> tuple[Code, str]:
    """Make the snapshot of the tree, whole or not at all, or use the one that is there; returns its path from ``root``.

    A snapshot that was damaged meanwhile is repaired file by file.  ValueError as in ``current``.
    """
    for _ in range(TRIES):
        code, marks = marked(root)
        name = f"{FOLDER}/{code.digest[:DIGITS]}"
        with contextlib.suppress(_Changed):
            if (root / name).is_dir():
                _fill(root, root / name, code, marks)
            else:
                _build(root, root / name, code, marks)
            return code, name
    raise ValueError(f"{root}: files change while they are copied; submit again when nothing writes there")


def drift(root: Path, digest: str) -> list[str]:
    """The files that differ between the tree and the snapshot of this digest: added, removed or changed since, sorted.

    ValueError where there is no such snapshot.
    """
    path = root / FOLDER / digest[:DIGITS] / MANIFEST
    try:
        then: dict[str, str] = json.loads(plain.read_bytes(path, None))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.parent}: there is no whole snapshot of the code here ({error})") from None
    return changed(then, _marks(root))


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files whose marks differ, sorted; also for records that hold files which count no longer."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name) and not _is_generated(name))


class _Changed(Exception):
    """The error that a file is not what its mark says: somebody is editing the tree right now."""


# --- what is in the tree ------------------------------------------------------------------------------------------


def _marks(root: Path) -> dict[str, str]:
    """Path -> mark of every file of the code, sorted by path."""
    marks = {}
    for name, is_tracked in sorted(dict(_files(root)).items()):
        if not _is_generated(name) and (mark := _mark(root / name, None if is_tracked else LARGEST_UNTRACKED_BYTES)):
            marks[name] = mark
    return marks


def _mark(path: Path, most_bytes: int | None = None) -> str:
    """The kind of a file and the hash of its contents: ``file``, ``exec`` or ``link``, then 64 digits; "" for no file.

    ValueError for more than ``most_bytes``.
    """
    return _read(path, most_bytes)[0]


def _read(path: Path, most_bytes: int | None = None) -> tuple[str, bytes]:
    """The mark of a file (see ``_mark``) and its contents, which are the target of a link."""
    try:
        status = path.lstat()
        if most_bytes is not None and status.st_size > most_bytes:
            raise ValueError(
                f"{path}: {status.st_size / 2**20:.0f} MB, and every submission would keep a copy of it; untracked "
                f"files may have {most_bytes // 2**20} MB: move it to data/ or, in a repository, name it in .gitignore"
            )
        if stat.S_ISLNK(status.st_mode):
            kind, contents = "link", os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            kind, contents = "exec" if status.st_mode & stat.S_IXUSR else "file", path.read_bytes()
        else:
            return "", b""
    except (FileNotFoundError, NotADirectoryError):  # such as one that is deleted, but still in git's index
        return "", b""
    return f"{kind} {hashlib.sha256(contents).hexdigest()}", contents


def _code(root: Path, marks: Mapping[str, str]) -> Code:
    total = hashlib.sha256()
    for name, mark in marks.items():
        total.update(os.fsencode(name) + b"\0" + mark.encode() + b"\0")
    words = _git(root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--", ".") or ""
    lines = [line for line in words.split("\0") if line]
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    is_dirty = any(not line.startswith("#") for line in lines)
    return Code(total.hexdigest(), "" if commit == "(initial)" else commit, is_dirty)


def _is_generated(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        path.parts[0] in GENERATED
        or not CACHES.isdisjoint(path.parts)
        or any(part.endswith(".egg-info") for part in path.parts)
        or path.suffix in UNREAD
        or name == LIBRARY
    )


def _files(root: Path, below: str = "") -> Iterator[tuple[str, bool]]:
    """The files that git tracks (True) or would add (False), nested repositories included; outside git ``_walk``."""
    words = _git(root / below, "ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard")
    if words is None:
        yield from ((name, False) for name in _walk(root, below))
        return
    for line in filter(None, words.split("\0")):
        name = below + line[2:].rstrip("/")
        if not (root / name).is_dir() or (root / name).is_symlink():
            yield name, not line.startswith("?")
        elif (root / name / ".git").exists():  # a submodule, or a clone that git leaves alone
            yield from _files(root, f"{name}/")


def _walk(root: Path, below: str) -> Iterator[str]:
    """Every file, except caches, virtual environments and the files that Python and compilers write."""
    for entry in os.scandir(root / below):
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _is_generated(name) and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _walk(root, f"{name}/")
        elif not entry.name.endswith((".pyc", ".so", ".o")):
            yield name


def _git(folder: Path, *words: str) -> str | None:
    """The output of a git command; None outside git and where git is not installed.

    ValueError with git's words for another failure.
    """
    told = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    environ = {name: value for name, value in os.environ.items() if name not in told} | {"LC_ALL": "C"}
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, env=environ, check=False)
    except FileNotFoundError:
        return None
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    said = os.fsdecode(done.stderr).strip()
    if "not a git repository" in said:
        return None
    raise ValueError(f"{folder}: git cannot say which files belong to the code ({said.partition(chr(10))[0]})")


# --- the copy -----------------------------------------------------------------------------------------------------


def _build(root: Path, folder: Path, code: Code, marks: Mapping[str, str]) -> None:
    """Build the copy aside, then rename it. A process that finds a snapshot in place meanwhile uses that one."""
    for left in folder.parent.glob(".*.building.*"):
        with contextlib.suppress(FileNotFoundError):  # another one's, which is ready now
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    building = folder.with_name(f".{folder.name}.building.{secrets.token_hex(4)}")
    try:
        building.mkdir(parents=True)
        _fill(root, building, code, marks)
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _fill(root: Path, folder: Path, code: Code, marks: Mapping[str, str]) -> None:
    """Make every file whole, and put every link and today's library in place; what is well stays."""
    for parent in {(folder / name).parent for name in marks}:
        parent.mkdir(parents=True, exist_ok=True)
    for name, mark in marks.items():
        _copy(root, name, mark, folder)
    if not (folder / MANIFEST).is_file():
        _write_manifest(folder, code, marks)
    for name in _links(root, marks):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(os.path.relpath(root.resolve() / name, folder.resolve()))
    library = (root / LIBRARY).resolve()
    if (folder / LIBRARY).parent.is_dir() and _mark(library) not in ("", _mark(folder / LIBRARY)):
        with aside(folder / LIBRARY) as path:
            shutil.copy(library, path)


def _copy(root: Path, name: str, mark: str, folder: Path) -> None:
    """Make one file of the copy whole.  ``_Changed`` where the tree holds another one than the mark says."""
    place = folder / name
    if _mark(place) == mark:
        return
    now, contents = _read(root / name)
    if now != mark:
        raise _Changed(name)
    with aside(place) as path:
        if mark.startswith("link "):
            path.symlink_to(_target(root, name, os.fsdecode(contents), folder))
        else:
            path.write_bytes(contents)
            if mark.startswith("exec "):
                shutil.copymode(root / name, path)


def _write_manifest(folder: Path, code: Code, marks: Mapping[str, str]) -> None:
    write_text(folder / MANIFEST, json.dumps({**dataclasses.asdict(code), "files": dict(marks)}, indent=0))


def _target(root: Path, name: str, target: str, folder: Path) -> str:
    """The target of a link of the tree, as the snapshot needs it.

    It stays as written, unless it is relative and leads outside of the tree.
    """
    place = os.path.dirname(name)
    if os.path.isabs(target) or not os.path.normpath(os.path.join(place, target)).startswith(".."):
        return target
    return os.path.relpath(root.resolve() / place / target, folder.resolve() / place)


def _links(root: Path, marks: Mapping[str, str]) -> list[str]:
    """Names of the top level that are no code: generated folders, and all else that the checkout keeps out of git."""
    own = {PurePosixPath(name).parts[0] for name in marks}
    there = {
        entry.name for entry in os.scandir(root) if not entry.name.endswith((".egg-info", ".pyc", ".tmp", *UNREAD))
    }
    return sorted(({*LINKED} | (there - CACHES - {"jobs", "build", "dist"})) - own)
