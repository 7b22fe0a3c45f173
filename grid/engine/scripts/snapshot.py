"""The code that submitted runs execute: a copy of the tree, named by its contents, that later edits do not reach.

A snapshot is ``jobs/code/<first 12 digits of the digest>/``.  It holds every file that git tracks or would add (outside
git every file) but notes (UNREAD) and the folders BESIDE, links to the other folders of the checkout, so that relative
paths keep working there, and the built library.  In a repository the files become a tree object of git and are checked
out from it, so an edit meanwhile cannot mix two states of a file.  That is done in a git folder of our own: the
repository is only read, and none of its filters and attributes, which are for commits, changes a byte.  Outside git the
files are hashed and copied one by one.  Plug-ins that lie in a folder of their user's own are copied, too, and count
for the name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from files import plain
from files.aligned import some
from files.atomic import aside, write_text
from nuq.settings.plugins import own_path, version_of

FOLDER = "jobs/code"
DIGITS = 12
MANIFEST = ".snapshot.json"  # the contents of the snapshot: commit, dirty, digest, and a mark for each file
LIBRARY = "nuq/native/libnuq.so"  # built from files of the snapshot, so no part of the digest
LINKED = ("runs", "data", "figures", ".venv")  # linked even where the checkout does not have them yet
GENERATED = {*LINKED, "jobs", "build", "dist"}
BESIDE = {"results", "tests", "docs", "benchmarks"}  # no run reads them; they are linked, too
NO_CODE = GENERATED | BESIDE  # names at the top level; the next at any level
CACHES = {"__pycache__", ".git", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis", ".ipynb_checkpoints"}
UNREAD = {".md", ".rst", ".pdf", ".ipynb", ".log"}  # files that people write and no run reads: no part of the code
LARGEST_UNTRACKED_BYTES = 20 * 2**20
ABANDONED_S = 3600.0  # a half-built copy that a killed process left is removed after this time
# A git folder in which files are stored as they are.
GIT_FOLDER = {
    "HEAD": "ref: refs/heads/none\n",
    "config": "[core]\nbare=false\nsymlinks=true\nfileMode=true\nfsmonitor=false\nhooksPath=/dev/null\ncompression=0\n",
    "info/attributes": "* -text -ident -filter !working-tree-encoding\n",
    "objects/none": "",
    "refs/none": "",
}
# What else a command there is told, lest the user's settings count.
OWN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
OWN |= {"GIT_CONFIG_COUNT": "0", "GIT_CONFIG_PARAMETERS": ""}
OF_USER = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING", "GIT_DISCOVERY")  # variables; others name a repository
MODES = {"file": "100644", "exec": "100755", "link": "120000"}  # git's


@dataclasses.dataclass(frozen=True)
class Code:
    """The identity of the code: the digest of the files, and the commit they were edited from ("" outside git)."""

    digest: str  # hexadecimal digits: 40 of git's tree object, 64 outside git
    commit: str
    dirty: bool  # whether the files differ from the commit; False outside git


_Write = Callable[[Iterable[str], Path], object]


@dataclasses.dataclass(frozen=True)
class _Tree:
    """What is in the tree: its identity, a mark for each file, and what writes files as the marks say to a folder."""

    code: Code
    marks: Mapping[str, str]  # path -> git's mode and the hash of its blob
    write: _Write
    # the folder or file of a plug-in -> the folder that it lies in
    sources: Mapping[str, Path] = dataclasses.field(default_factory=dict)


def marked(root: Path, plugins: Sequence[str] = ()) -> tuple[Code, dict[str, str]]:
    """The code of the tree as it is, and a mark for each of its files, which changes with the file.

    plugins: names of plug-ins; those that lie in a folder of their user's own are part of the code.
    ValueError for a large file that would be copied, or where git cannot read the tree.
    """
    with _tree(root, plugins) as tree:
        return tree.code, dict(tree.marks)


def snapshot(root: Path, plugins: Sequence[str] = ()) -> tuple[Code, str]:
    """Make the snapshot of the tree, whole or not at all, or use the one that is there; returns its path from ``root``.

    A snapshot that was damaged meanwhile is repaired file by file.  ValueError as in ``marked``, and outside git for a
    file that changes while it is copied.
    """
    with _tree(root, plugins) as tree:
        name = f"{FOLDER}/{tree.code.digest[:DIGITS]}"
        _build(root, root / name, tree)
        return tree.code, name


def drift(root: Path, digest: str) -> list[str]:
    """The files that differ between the tree and the snapshot of this digest: added, removed or changed since, sorted.

    ValueError where there is no such snapshot.
    """
    path = root / FOLDER / digest[:DIGITS] / MANIFEST
    try:
        record = json.loads(plain.read_bytes(path, None))
        then: dict[str, str] = record["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.parent}: there is no whole snapshot of the code here ({error})") from None
    return changed(then, marked(root, record.get("plugins", ()))[1])


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files whose marks differ, sorted; also for records that hold files which count no longer."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name) and not _is_generated(name))


# --- what is in the tree ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _tree(root: Path, plugins: Sequence[str]) -> Iterator[_Tree]:
    """The tree as it is with these plug-ins beside it, until the end of the context."""
    with _checkout(root) as tree:
        yield _beside(tree, root, plugins)


@contextlib.contextmanager
def _checkout(root: Path) -> Iterator[_Tree]:
    """The tree as it is, until the end of the context."""
    names = sorted(name for name, is_tracked in dict(_files(root)).items() if _counts(root, name, is_tracked))
    real = os.path.realpath(root)
    folders = {os.path.dirname(name) for name in names} - {""}  # git knows files also where there is a link now
    linked = {folder for folder in folders if os.path.realpath(root / folder) != os.path.join(real, folder)}
    names = [name for name in names if os.path.dirname(name) not in linked]
    if not _in_repository(root):
        marks = {name: mark for name in names if (mark := _mark(root / name))}
        lines = (os.fsencode(f"{name}\0{mark}\0") for name, mark in marks.items())
        code = Code(hashlib.sha256(b"".join(lines)).hexdigest(), "", False)
        yield _Tree(code, marks, functools.partial(_copy, root, marks))
        return
    code = [".", *(f":(exclude){name}" for name in sorted(BESIDE))]
    told = _git(root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--", *code) or ""
    lines = [line for line in told.split("\0") if line]
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    is_dirty = any(not line.startswith("#") for line in lines)
    with _tree_object(root, names) as (digest, marks, check_out):
        yield _Tree(Code(digest, "" if commit == "(initial)" else commit, is_dirty), marks, check_out)


@contextlib.contextmanager
def _tree_object(root: Path, names: Iterable[str]) -> Iterator[tuple[str, dict[str, str], _Write]]:
    """A tree object of git with these files of a repository: its name, their marks, and what checks some out."""
    with tempfile.TemporaryDirectory(prefix="code-") as folder:
        for name, text in GIT_FOLDER.items():
            place = Path(folder, name)
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        # what the repository has is not stored again
        objects = os.path.abspath(root / (_git(root, "rev-parse", "--git-path", "objects") or "").removesuffix("\n"))
        own = {**OWN, "GIT_DIR": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": json.dumps(objects, ensure_ascii=False)}

        def git(tree: Path, *words: str, given: Iterable[str] = ()) -> str:
            return _git(tree, *words, given=given, variables={**own, "GIT_WORK_TREE": str(tree.resolve())}) or ""

        git(root, "update-index", "--add", "--remove", "-z", "--stdin", given=names)
        found = (line.split(" 0\t", 1) for line in git(root, "ls-files", "--stage", "-z").split("\0") if line)
        marks = {name: mark for mark, name in found}
        if lost := [name for name in names if name not in marks and os.path.lexists(root / name)]:
            raise ValueError(f"{root}: git keeps no file of these names, as it takes them for its own: {some(lost)}")
        digest = git(root, "write-tree").strip()
        yield digest, marks, lambda some, to: git(to, "checkout-index", "-z", "--stdin", given=some)


def _beside(tree: _Tree, root: Path, plugins: Sequence[str]) -> _Tree:
    """The tree with these plug-ins at its top level, where ``main.py`` finds them first.

    Without those that are installed as copies, which stay where they are, and those in the tree.
    """
    sources: dict[str, Path] = {}
    own: dict[str, str] = {}
    for path in filter(None, map(own_path, plugins)):
        if path.name in NO_CODE:
            names = ", ".join(sorted(NO_CODE))
            raise ValueError(f"plug-in {path.name}: {path}: jobs get no copy of {names}; give the package another name")
        if path.parent == root.absolute() and any(PurePosixPath(name).parts[0] == path.name for name in tree.marks):
            continue
        sources[path.name] = path.parent
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(path.parent).as_posix()
            if file.suffix != ".pyc" and _counts(path.parent, name, False):
                own[name] = _mark(file)
    if not sources:
        return tree

    def write(names: Iterable[str], folder: Path) -> None:
        names = list(names)
        tree.write([name for name in names if name not in own], folder)
        for top, parent in sources.items():
            _copy(parent, own, [name for name in names if name in own and name.split("/")[0] == top], folder)

    lines = "".join(f"{name}\0{mark}\0" for name, mark in own.items())
    digest = hashlib.sha256(os.fsencode(tree.code.digest + lines)).hexdigest()
    return _Tree(dataclasses.replace(tree.code, digest=digest), {**tree.marks, **own}, write, sources)


def _counts(root: Path, name: str, is_tracked: bool) -> bool:
    """Whether a path is a file of the code.  ValueError for a large one that nobody meant."""
    path = root / name
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):  # such as one that is deleted, but still in git's index
        return False
    if _is_generated(name) or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        return False
    if not is_tracked and status.st_size > LARGEST_UNTRACKED_BYTES:
        raise ValueError(
            f"{path}: {status.st_size / 2**20:.0f} MB, and every submission would keep a copy of it; untracked files "
            f"may have {LARGEST_UNTRACKED_BYTES // 2**20} MB: move it to data/ or, in a repository, name it in "
            ".gitignore"
        )
    return True


def _mark(path: Path) -> str:
    """The mark of a file or link; "" for none."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            kind, contents = "link", os.fsencode(os.readlink(path))
        else:
            kind, contents = "exec" if mode & stat.S_IXUSR else "file", path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    blob = hashlib.sha1(b"blob %d\0" % len(contents) + contents, usedforsecurity=False)
    return f"{MODES[kind]} {blob.hexdigest()}"


def _is_generated(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        path.parts[0] in NO_CODE
        or not CACHES.isdisjoint(path.parts)
        or any(part.endswith(".egg-info") for part in path.parts)
        or path.suffix in UNREAD
        or name == LIBRARY
    )


def _files(root: Path, below: str = "") -> Iterator[tuple[str, bool]]:
    """The files that git tracks (True) or would add (False), nested repositories included; outside git ``_walk``."""
    if not _in_repository(root / below):
        yield from ((name, False) for name in _walk(root, below))
        return
    told = _git(root / below, "ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard") or ""
    for line in filter(None, told.split("\0")):
        name = below + line[2:].rstrip("/")
        if not (root / name).is_dir() or (root / name).is_symlink():
            yield name, not line.startswith("?")
        elif (root / name / ".git").exists():  # a submodule, or a clone that git leaves alone
            yield from _files(root, f"{name}/")


def _in_repository(folder: Path) -> bool:
    """Whether git keeps files of this folder: not outside of a repository, nor where the one above it ignores it."""
    return _git(folder, "check-ignore", ".", codes=(0, 1)) == ""


def _walk(root: Path, below: str) -> Iterator[str]:
    """Every file, except caches, virtual environments and the files that Python and compilers write."""
    for entry in os.scandir(root / below):
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _is_generated(name) and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _walk(root, f"{name}/")
        elif not entry.name.endswith((".pyc", ".so", ".o")):
            yield name


def _git(
    folder: Path,
    *words: str,
    given: Iterable[str] = (),
    codes: Sequence[int] = (0,),
    variables: Mapping[str, str] | None = None,
) -> str | None:
    """The output of a git command, which reads ``given``; None outside git and where git is not installed.

    ValueError with git's words for another failure.
    """
    environ = {key: text for key, text in os.environ.items() if key[:4] != "GIT_" or key.startswith(OF_USER)}
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    environ |= {"LC_ALL": "C", **(variables or {})}
    stdin = os.fsencode("".join(f"{name}\0" for name in given))
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, env=environ, check=False)
    except FileNotFoundError:
        return None
    if done.returncode in codes:
        return os.fsdecode(done.stdout)
    said = " ".join(os.fsdecode(done.stderr).split())
    if "not a git repository (or any" in said:
        return None
    why = said or f"exit code {done.returncode}"
    raise ValueError(f"{folder}: git {words[0]} fails, so the code cannot be kept for the jobs ({why})")


# --- the copy -----------------------------------------------------------------------------------------------------


def _build(root: Path, folder: Path, tree: _Tree) -> None:
    """Write aside what the snapshot lacks, then move it into place: the folder if it is new, else file by file.

    A process that finds a snapshot in place meanwhile uses that one.
    """
    for left in folder.parent.glob(".*.building.*"):
        with contextlib.suppress(FileNotFoundError):  # another one's, which is ready now
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    is_new = not folder.is_dir()
    names = [name for name, mark in tree.marks.items() if is_new or _mark(folder / name) != mark]
    building = folder.with_name(f".{folder.name}.building.{secrets.token_hex(4)}")
    try:
        building.mkdir(parents=True)
        if names:
            tree.write(names, building)
        if lost := [name for name in names if not os.path.lexists(building / name)]:  # git before 2.30 does not tell
            raise ValueError(f"{building}: {some(lost)} could not be written")
        for name in names:
            if tree.marks[name].startswith(MODES["link"]):
                _relink(tree.sources.get(name.split("/")[0], root), name, building)
        if is_new:
            _finish(root, building, tree)
            try:
                building.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        else:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (building / name).replace(folder / name)
            _finish(root, folder, tree)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _copy(root: Path, marks: Mapping[str, str], names: Iterable[str], folder: Path) -> None:
    """Copy files.  ValueError where the tree holds another one than the mark says."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(root / name, folder / name, follow_symlinks=False)
        if _mark(folder / name) != marks[name]:
            raise ValueError(f"{root / name} changed while it was copied; submit again when nothing writes there")


def _finish(root: Path, folder: Path, tree: _Tree) -> None:
    """Put the manifest, the links to the checkout and today's library in place; what is well stays."""
    record = {**dataclasses.asdict(tree.code), "files": dict(tree.marks)}
    if tree.sources:
        record["plugins"] = [Path(name).stem for name in tree.sources]
    for name in record.get("plugins", ()):  # the version of a copy is that of now
        if version := version_of(name):
            metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir(exist_ok=True)
            write_text(metadata, f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write_text(folder / MANIFEST, json.dumps(record, indent=0))
    for name in _links(root, tree.marks):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(os.path.relpath(root.resolve() / name, folder.resolve()))
    library = (root / LIBRARY).resolve()
    if (folder / LIBRARY).parent.is_dir() and _mark(library) not in ("", _mark(folder / LIBRARY)):
        with aside(folder / LIBRARY) as path:
            shutil.copy(library, path)


def _relink(root: Path, name: str, folder: Path) -> None:
    """Make a relative link that leads out of the tree lead to the same place from the folder of the copy."""
    target, place = os.readlink(folder / name), os.path.dirname(name)
    if not os.path.isabs(target) and os.path.normpath(os.path.join(place, target)).split("/")[0] == "..":
        (folder / name).unlink()
        (folder / name).symlink_to(os.path.relpath(root.resolve() / place / target, folder.resolve() / place))


def _links(root: Path, marks: Mapping[str, str]) -> list[str]:
    """Names of the top level that are no code: generated folders, and all else that the checkout keeps out of git."""
    own = {PurePosixPath(name).parts[0] for name in marks}
    there = {
        entry.name for entry in os.scandir(root) if not entry.name.endswith((".egg-info", ".pyc", ".tmp", *UNREAD))
    }
    return sorted(({*LINKED} | (there - CACHES - {"jobs", "build", "dist"})) - own)
