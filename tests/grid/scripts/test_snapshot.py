"""Pinned code: what a snapshot holds, that it is whole, and that the tree may change beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from grid.engine.scripts import snapshot as snapshots
from grid.engine.scripts.snapshot import current, drift, snapshot


def _git(root: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *named, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _tree(root: Path, *, git: bool) -> Path:
    (root / "train" / "data").mkdir(parents=True)
    for name, text in {
        "main.py": "print(1)\n",
        "train/loop.py": "x = 1\n",
        "train/data/sets.py": "",
        "it's é\n.txt": "odd",
    }.items():
        (root / name).write_text(text)
    (root / "go.sh").write_text("#!/bin/sh\n")
    (root / "go.sh").chmod(0o755)
    (root / "latest").symlink_to("train/loop.py")
    for name in (
        "runs/a/status.json",
        "jobs/x.sh",
        "data/big.bin",
        ".venv/pyvenv.cfg",
        "train/__pycache__/loop.pyc",
        "figures/f.pdf",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("generated")
    if git:
        (root / ".gitignore").write_text("__pycache__/\n/runs/\n/jobs/\n/data/\n/figures/\n.venv/\n*.so\n/weights/\n")
        _git(root, "init", "-q", "-b", "main")
        _git(root, "add", ".")
        _git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture(params=[True, False], ids=["git", "no git"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param and shutil.which("git") is None:
        pytest.skip("git is not installed")
    return _tree(tmp_path / "a checkout", git=request.param)


def _is_git(root: Path) -> bool:
    return (root / ".git").exists()


def _digest(root: Path) -> str:
    return current(root).digest


def test_a_snapshot_holds_the_code_and_links_to_the_rest(tree: Path) -> None:
    (tree / "new.py").write_text("not in git yet\n")
    code, name = snapshot(tree)
    folder = tree / name
    assert name == f"jobs/code/{code.digest[:12]}"
    assert code == current(tree)
    assert (folder / "new.py").read_text() == "not in git yet\n"
    assert (folder / "it's é\n.txt").read_text() == "odd"
    assert (folder / "train" / "data" / "sets.py").is_file(), "only the top level's data/ is generated"
    assert os.access(folder / "go.sh", os.X_OK)
    assert not os.access(folder / "main.py", os.X_OK)
    assert os.readlink(folder / "latest") == "train/loop.py"
    assert (folder / "runs" / "a" / "status.json").read_text() == "generated"
    assert os.readlink(folder / ".venv") == "../../../.venv"
    assert not (folder / "train" / "__pycache__").exists()
    assert not os.path.lexists(folder / "jobs")
    assert drift(tree, code.digest) == []


def test_commit_and_dirty(tree: Path) -> None:
    code = current(tree)
    assert (len(code.commit), code.dirty) == ((40, False) if _is_git(tree) else (0, False))
    (tree / "main.py").write_text("print(2)\n")
    assert current(tree).dirty == _is_git(tree)
    assert current(tree).commit == code.commit


def test_the_digest_is_of_contents_alone(tree: Path) -> None:
    before = _digest(tree)
    os.utime(tree / "main.py", (1, 1))
    for name in ("runs/b", "jobs/y.sh", "data/c", "figures/g", ".venv/d", "train/__pycache__/e"):
        (tree / name).write_text("more")
    (tree / "nuq" / "native").mkdir(parents=True)
    (tree / "nuq" / "native" / "libnuq.so").write_text("built")
    assert _digest(tree) == before
    (tree / "main.py").chmod(0o755)
    executable = _digest(tree)
    (tree / "latest").unlink()
    (tree / "latest").symlink_to("main.py")
    assert len({before, executable, _digest(tree)}) == 3


def test_what_no_run_reads_is_no_code(tree: Path) -> None:
    before = _digest(tree)
    for name in ("notes.md", "docs/how.rst", "train/sketch.ipynb", "nohup.log"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("more")
    code, name = snapshot(tree)
    assert code.digest == before
    assert not [path for path in (tree / name).rglob("*") if path.suffix in (".md", ".rst", ".ipynb", ".log")]
    (tree / "notes.md").write_text("and more")
    assert drift(tree, code.digest) == []


def test_a_snapshot_of_before_that_holds_notes_has_not_drifted(tree: Path) -> None:
    code, name = snapshot(tree)
    manifest = tree / name / ".snapshot.json"
    values = json.loads(manifest.read_text())
    values["files"]["notes.md"] = "file " + 64 * "0"
    manifest.write_text(json.dumps(values))
    assert drift(tree, code.digest) == []


def test_what_git_does_not_see_is_linked(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    (tree / "weights").mkdir()
    _, name = snapshot(tree)
    (tree / "weights" / "w.pt").write_text("w")
    assert (tree / name / "weights" / "w.pt").read_text() == "w"
    assert (tree / name / "data" / "big.bin").exists()


def test_edits_reach_no_snapshot_and_are_told(tree: Path) -> None:
    code, name = snapshot(tree)
    (tree / "main.py").write_text("print(2)\n")
    (tree / "train" / "loop.py").unlink()
    (tree / "added.py").write_text("")
    (tree / name / "__pycache__").mkdir()  # what runs leave behind there
    assert drift(tree, code.digest[:12]) == ["added.py", "main.py", "train/loop.py"]
    assert (tree / name / "main.py").read_text() == "print(1)\n"
    other, second = snapshot(tree)
    assert second != name
    assert drift(tree, other.digest) == []
    with pytest.raises(ValueError, match="no whole snapshot"):
        drift(tree, "0" * 64)


def test_a_snapshot_is_used_again_and_repaired(tree: Path) -> None:
    _, name = snapshot(tree)
    folder = tree / name
    kept = (folder / "train" / "loop.py").stat().st_ino
    (folder / "main.py").write_text("print(0)\n")  # same size
    (folder / "go.sh").chmod(0o644)
    (folder / "latest").unlink()
    (folder / "runs").unlink()
    assert snapshot(tree)[1] == name
    assert (folder / "main.py").read_text() == "print(1)\n"
    assert os.access(folder / "go.sh", os.X_OK)
    assert (folder / "latest").is_symlink()
    assert (folder / "runs").is_symlink()
    assert (folder / "train" / "loop.py").stat().st_ino == kept, "what is whole stays"
    assert [path.name for path in (tree / "jobs" / "code").iterdir()] == [folder.name]


def test_the_library_goes_along_and_follows_a_new_build(tree: Path) -> None:
    (tree / "nuq" / "native").mkdir(parents=True)
    (tree / "nuq" / "native" / "code.cpp").write_text("")
    _, name = snapshot(tree)
    for text in ("built", "built again"):
        (tree / "nuq" / "native" / "libnuq.so").write_text(text)
        assert snapshot(tree)[1] == name
        assert (tree / name / "nuq" / "native" / "libnuq.so").read_text() == text


def test_a_failed_copy_leaves_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(snapshots, "_finish", full)
    with pytest.raises(OSError, match="No space left"):
        snapshot(tree)
    assert list((tree / "jobs" / "code").iterdir()) == []


def test_what_a_killed_process_left_is_removed(tree: Path) -> None:
    left, fresh = (tree / "jobs" / "code" / f".{word * 12}.building.1" for word in "ab")
    for path in (left, fresh):
        path.mkdir(parents=True)
    old = time.time() - 2 * snapshots.ABANDONED_S
    os.utime(left, (old, old))
    snapshot(tree)
    assert not left.exists()
    assert fresh.exists(), "somebody may be at work there"


def test_two_at_once_make_one_whole_snapshot(tree: Path) -> None:
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(snapshot(tree)[1])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 4
    assert len(set(names)) == 1
    assert [f"jobs/code/{path.name}" for path in (tree / "jobs" / "code").iterdir()] == [names[0]]
    assert drift(tree, _digest(tree)) == []


def test_a_file_that_changes_while_it_is_copied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, copy = _tree(tmp_path, git=False), snapshots._copy

    def edit(root: Path, marks: Mapping[str, str], names: Iterable[str], folder: Path) -> None:
        (tree / "main.py").write_text("print(2)\n")
        copy(root, marks, names, folder)

    monkeypatch.setattr(snapshots, "_copy", edit)
    with pytest.raises(ValueError, match=r"main\.py changed while it was copied; submit again"):
        snapshot(tree)
    assert list((tree / "jobs" / "code").iterdir()) == []


def test_an_edit_meanwhile_does_not_reach_what_git_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, git = _tree(tmp_path, git=True), snapshots._git

    def edit(folder: Path, *words: str, **more: Any) -> str | None:
        if words[0] == "checkout-index":
            (tree / "main.py").write_text("print(3)\n")
        return git(folder, *words, **more)

    (tree / "main.py").write_text("print(2)\n")
    digest = _digest(tree)
    monkeypatch.setattr(snapshots, "_git", edit)
    code, name = snapshot(tree)
    assert code.digest == digest
    assert (tree / name / "main.py").read_text() == "print(2)\n"
    assert drift(tree, digest) == ["main.py"]


def _contents(root: Path, name: str) -> dict[str, bytes]:
    """What runs see of a snapshot: its files, without what is linked and written there."""
    manifest = json.loads((root / name / ".snapshot.json").read_text())
    return {file: (root / name / file).read_bytes() for file in manifest["files"]}


def test_git_and_the_plain_copy_hold_the_same(tmp_path: Path) -> None:
    tree = _tree(tmp_path / "with git", git=True)
    (tree / ".gitattributes").write_text("*.py text\n*.txt ident\n")
    (tree / "new.py").write_text("new\n")
    (tree / "main.py").write_text("print(2)\n")
    (tree / "go.sh").unlink()
    shutil.copytree(tree, tmp_path / "without", symlinks=True, ignore=shutil.ignore_patterns(".git"))
    without = tmp_path / "without"
    assert _contents(tree, snapshot(tree)[1]) == _contents(without, snapshot(without)[1])
    assert snapshots.marked(tree)[1] == snapshots.marked(without)[1], "the hashes are git's"


def test_the_digest_is_a_tree_of_git_and_the_repository_is_only_read(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    assert _digest(tree) == _git(tree, "rev-parse", "HEAD^{tree}")
    (tree / "main.py").write_text("print(2)\n")
    (tree / "new.py").write_text("new")
    before = {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()}
    snapshot(tree)
    assert {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()} == before


def test_a_part_of_a_repository_is_a_tree_of_its_own(tmp_path: Path) -> None:
    whole = _tree(tmp_path / "part: one", git=True)  # a colon parts the folders of git's lists
    part = whole / "train"
    (part / "loop.py").write_text("x = 2\n")
    code, name = snapshot(part)
    assert sorted(_contents(part, name)) == ["loop.py"]
    assert (part / name / "loop.py").read_text() == "x = 2\n"
    assert code.dirty
    assert drift(part, code.digest) == []


def test_a_worktree_before_its_first_commit_and_in_a_merge(tmp_path: Path) -> None:
    tree = _tree(tmp_path / "main", git=True)
    _git(tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = tmp_path / "side"
    assert _digest(side) == _digest(tree)
    for place, text in ((tree, "a\n"), (side, "b\n")):
        (place / "main.py").write_text(text)
        _git(place, "commit", "-q", "-a", "-m", "second")
    with pytest.raises(subprocess.CalledProcessError):
        _git(side, "merge", "main")
    assert "<<<<<<<" in (side / snapshot(side)[1] / "main.py").read_text()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "main.py").write_text("")
    _git(fresh, "init", "-q")
    assert sorted(_contents(fresh, snapshot(fresh)[1])) == ["main.py"]
    assert current(fresh).commit == ""


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_edits_that_git_was_told_to_overlook_count(tmp_path: Path, flag: str) -> None:
    tree = _tree(tmp_path, git=True)
    _git(tree, "update-index", flag, "main.py")
    (tree / "main.py").write_text("print('mine')\n")
    assert (tree / snapshot(tree)[1] / "main.py").read_text() == "print('mine')\n"


def test_an_edit_right_after_a_commit_counts(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    for number in range(2, 8):
        _git(tree, "add", ".")
        (tree / "main.py").write_text(f"print({number})\n")  # as large, and within a tick of the clock
        assert (tree / snapshot(tree)[1] / "main.py").read_text() == f"print({number})\n"


def test_a_link_where_a_folder_was(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    (tree / "train").rename(tree / "other")
    (tree / "train").symlink_to("other")
    _, name = snapshot(tree)
    assert os.readlink(tree / name / "train") == "other"
    assert (tree / name / "train" / "loop.py").read_text() == "x = 1\n"


def test_bytes_that_git_would_convert_stay_as_they_are(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    _git(tree, "config", "filter.scrub.clean", "sed s/rate.*/rate:/")
    _git(tree, "config", "filter.broken.clean", "false")
    _git(tree, "config", "filter.broken.required", "true")
    _git(tree, "config", "core.autocrlf", "true")
    (tree / ".gitattributes").write_text("*.yaml filter=scrub\n*.bin filter=broken\n*.txt eol=crlf\n*.sh ident\n")
    for name, words in {"a.yaml": "rate: 1\n", "a.bin": "b", "a.txt": "one\ntwo\r\n", "a.sh": "# $Id$\n"}.items():
        (tree / name).write_bytes(words.encode())
        (tree / "train" / name).write_bytes(words.encode())
    for root in (tree, tree / "train"):  # the attributes lie above the latter
        code, name = snapshot(root)
        for file, words in _contents(root, name).items():
            assert words == (root / file).read_bytes()
        kept = (root / name / "a.yaml").stat().st_ino
        assert (snapshot(root)[1], (root / name / "a.yaml").stat().st_ino) == (name, kept), "what is whole stays"
        (root / "a.yaml").write_text("rate: 2\n")
        assert drift(root, code.digest) == ["a.yaml"]


def test_what_the_configuration_of_the_repository_says_of_files_does_not_count(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    for name in ("symlinks", "fileMode"):
        _git(tree, "config", f"core.{name}", "false")
    (tree / "new.sh").write_text("")
    (tree / "new.sh").chmod(0o755)
    _, name = snapshot(tree)
    assert (tree / name / "latest").is_symlink()
    assert os.access(tree / name / "new.sh", os.X_OK)


def test_a_damaged_manifest_is_written_again(tree: Path) -> None:
    code, name = snapshot(tree)
    for damaged in ("{", '{"files": {}}'):
        (tree / name / ".snapshot.json").write_text(damaged)
        snapshot(tree)
        assert drift(tree, code.digest) == []


def test_large_files_that_nobody_meant_are_refused(tree: Path) -> None:
    with (tree / "weights.pt").open("wb") as file:
        file.truncate(snapshots.LARGEST_UNTRACKED_BYTES + 1)
    with pytest.raises(ValueError, match=r"weights\.pt: 20 MB, .*move it to data/"):
        snapshot(tree)
    if _is_git(tree):
        with (tree / ".gitignore").open("a") as file:
            file.write("*.pt\n")
        snapshot(tree)


def test_links_that_lead_out_of_the_tree_still_lead_there(tree: Path) -> None:
    (tree.parent / "outside.txt").write_text("outside")
    (tree / "train" / "relative").symlink_to("../../outside.txt")
    (tree / "absolute").symlink_to(tree.parent / "outside.txt")
    (tree / "broken").symlink_to("nowhere")
    (tree / "..x").mkdir()
    (tree / "..x" / "a.py").write_text("")
    (tree / "inside").symlink_to("..x/a.py")
    _, name = snapshot(tree)
    assert (tree / name / "train" / "relative").read_text() == "outside"
    assert (tree / name / "absolute").read_text() == "outside"
    assert os.readlink(tree / name / "broken") == "nowhere"
    assert os.readlink(tree / name / "inside") == "..x/a.py"
    assert snapshot(tree)[1] == name


def test_a_jobs_folder_elsewhere(tree: Path) -> None:
    (tree.parent / "scratch" / "deep").mkdir(parents=True)
    (tree / "jobs").rename(tree.parent / "scratch" / "deep" / "jobs")
    (tree / "jobs").symlink_to(tree.parent / "scratch" / "deep" / "jobs")
    _, name = snapshot(tree)
    assert (tree / name / "runs" / "a" / "status.json").exists()


def test_a_clone_inside_goes_along(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    inside = tree / "third" / "party"
    inside.mkdir(parents=True)
    _git(inside, "init", "-q")
    (inside / "m.py").write_text("m")
    _, name = snapshot(tree)
    assert (tree / name / "third" / "party" / "m.py").read_text() == "m"
    assert not (tree / name / "third" / "party" / ".git").exists()


def test_a_repository_that_git_refuses_is_told(tmp_path: Path) -> None:
    tree = _tree(tmp_path, git=True)
    (tree / ".git" / "index").write_bytes(b"damaged index file, by no means readable")
    with pytest.raises(ValueError, match=r"git ls-files fails, .*index"):
        current(tree)
