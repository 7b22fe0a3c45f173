"""The code that submitted runs execute: a copy of the tree, named by its contents, that later edits do not reach.

A snapshot is ``jobs/code/<first 12 digits of the digest>/``.  It holds every file that git tracks or would add (outside
git every file) but notes (UNREAD), links to the generated folders of the checkout, so that relative paths keep working
there, and the built library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
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
        marks = _marks(root)
        code = _code(root, marks)
        name = f"{FOLDER}/{code.digest[:DIGITS]}"
        folder = root / name
        if not folder.is_dir():
            try:
                _build(root, folder, code, marks)
            except _Changed:
                continue
        with contextlib.suppress(_Changed):
            _complete(root, folder, code, marks)
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
    """Path -> its kind and the hash of its contents: ``file``, ``exec`` or ``link``, then 64 digits."""
    marks = {}
    listed = _git_files(root)
    for name, tracked in sorted(listed.items() if listed is not None else ((name, False) for name in _walk(root))):
        if _is_generated(name):
            continue
        path = root / name
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):  # deleted, but still in git's index
            continue
        if not tracked and stat.S_ISREG(status.st_mode) and status.st_size > LARGEST_UNTRACKED_BYTES:
            advice = "name it in .gitignore or move it to data/" if listed is not None else "move it to data/"
            raise ValueError(
                f"{path}: {status.st_size / 2**20:.0f} MB, and every submission would keep a copy of it; untracked "
                f"files may have {LARGEST_UNTRACKED_BYTES // 2**20} MB: {advice}"
            )
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            marks[name] = _mark(status, _contents(path, status))
    return marks


def _contents(path: Path, status: os.stat_result) -> bytes:
    return os.fsencode(os.readlink(path)) if stat.S_ISLNK(status.st_mode) else path.read_bytes()


def _mark(status: os.stat_result, contents: bytes) -> str:
    kind = "link" if stat.S_ISLNK(status.st_mode) else "exec" if status.st_mode & stat.S_IXUSR else "file"
    return f"{kind} {hashlib.sha256(contents).hexdigest()}"


def _code(root: Path, marks: Mapping[str, str]) -> Code:
    total = hashlib.sha256()
    for name, mark in marks.items():
        total.update(os.fsencode(name) + b"\0" + mark.encode() + b"\0")
    words = _git(root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--", ".") or ""
    lines = [line for line in words.split("\0") if line]
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return Code(
        total.hexdigest(), "" if commit == "(initial)" else commit, any(not line.startswith("#") for line in lines)
    )


def _is_generated(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if parts[0] in GENERATED or not CACHES.isdisjoint(parts) or any(part.endswith(".egg-info") for part in parts):
        return True
    return PurePosixPath(name).suffix in UNREAD or name == LIBRARY


def _walk(root: Path, below: str = "") -> Iterator[str]:
    """Every file outside git, except caches, virtual environments and the files that Python and compilers write."""
    for entry in os.scandir(root / below):
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _is_generated(name) and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _walk(root, f"{name}/")
        elif not entry.name.endswith((".pyc", ".so", ".o")):
            yield name


def _git_files(folder: Path) -> dict[str, bool] | None:
    """The files that git tracks (True) or would add (False), relative to ``folder``; includes nested repositories."""
    words = _git(folder, "ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard")
    if words is None:
        return None
    files: dict[str, bool] = {}
    for line in filter(None, words.split("\0")):
        name, tracked = line[2:].rstrip("/"), not line.startswith("?")
        inside = folder / name
        if inside.is_dir() and not inside.is_symlink():  # a submodule, or a clone that git leaves alone
            more = (_git_files(inside) if (inside / ".git").exists() else None) or {}
            files.update({f"{name}/{part}": known for part, known in more.items()})
        else:
            files[name] = tracked
    return files


def _git(folder: Path, *words: str) -> str | None:
    """The output of a git command; None outside git and where git is not installed.

    ValueError with git's words for another failure.
    """
    environ = {
        key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    }
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *words],
            capture_output=True,
            env={**environ, "LC_ALL": "C"},
            check=False,
        )
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
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(".*.building.*"):
        with contextlib.suppress(FileNotFoundError):  # another one's, which is ready now
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    aside = folder.with_name(f".{folder.name}.building.{secrets.token_hex(4)}")
    try:
        aside.mkdir()
        for name, mark in marks.items():
            _copy(root, name, mark, aside)
        _write_manifest(aside, code, marks)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _complete(root: Path, folder: Path, code: Code, marks: Mapping[str, str]) -> None:
    """Make every file whole, put every link in place, and build today's library; nothing changes where all is well."""
    for name, mark in marks.items():
        if not _is_whole(root, folder, name, mark):
            _copy(root, name, mark, folder)
    if not (folder / MANIFEST).is_file():
        _write_manifest(folder, code, marks)
    for name in _links(root, marks):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(os.path.relpath(root.resolve() / name, folder.resolve()))
    library = root / LIBRARY
    if library.is_file() and (folder / LIBRARY).parent.is_dir() and not _same_times(library, folder / LIBRARY):
        with aside(folder / LIBRARY) as path:
            shutil.copy2(library, path)


def _is_whole(root: Path, folder: Path, name: str, mark: str) -> bool:
    path = folder / name
    try:
        status = path.lstat()
        if mark.startswith("link "):
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == _target(root, name, folder)
        return stat.S_ISREG(status.st_mode) and _mark(status, path.read_bytes()) == mark
    except (FileNotFoundError, NotADirectoryError):
        return False


def _same_times(left: Path, right: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        here, there = left.stat(), right.stat()
        return (here.st_size, here.st_mtime_ns) == (there.st_size, there.st_mtime_ns)
    return False


def _copy(root: Path, name: str, mark: str, folder: Path) -> None:
    try:
        status = (root / name).lstat()
        contents = _contents(root / name, status)
    except FileNotFoundError:
        raise _Changed(name) from None
    if _mark(status, contents) != mark:
        raise _Changed(name)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with aside(folder / name) as path:
        if mark.startswith("link "):
            path.symlink_to(_target(root, name, folder))
        else:
            path.write_bytes(contents)
            if mark.startswith("exec "):
                path.chmod(path.stat().st_mode | stat.S_IMODE(status.st_mode) & 0o111)


def _write_manifest(folder: Path, code: Code, marks: Mapping[str, str]) -> None:
    record = {"digest": code.digest, "commit": code.commit, "dirty": code.dirty, "files": dict(marks)}
    write_text(folder / MANIFEST, json.dumps(record, indent=0))


def _target(root: Path, name: str, folder: Path) -> str:
    """The target of a link of the tree, as the snapshot needs it.

    It stays as written, unless it is relative and leads outside of the tree.
    """
    target = os.readlink(root / name)
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
