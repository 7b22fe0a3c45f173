"""Pinned code in a repository: a tree object of git, whatever the repository and its configuration say of files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grid.engine.scripts import snapshot as snapshots
from grid.engine.scripts.snapshot import drift, snapshot
from tests.grid.scripts.code_trees import code_tree, contents_of, current, digest_of, run_git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_what_git_does_not_see_is_linked(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    (tree / "weights").mkdir()
    _, name = snapshot(tree)
    (tree / "weights" / "w.pt").write_text("w")
    assert (tree / name / "weights" / "w.pt").read_text() == "w"
    assert (tree / name / "data" / "big.bin").exists()


def test_an_edit_meanwhile_does_not_reach_what_git_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, git = code_tree(tmp_path, git=True), snapshots._git

    def edit(folder: Path, *words: str, **more: Any) -> str | None:
        if words[0] == "checkout-index":
            (tree / "main.py").write_text("print(3)\n")
        return git(folder, *words, **more)

    (tree / "main.py").write_text("print(2)\n")
    digest = digest_of(tree)
    monkeypatch.setattr(snapshots, "_git", edit)
    code, name = snapshot(tree)
    assert code.digest == digest
    assert (tree / name / "main.py").read_text() == "print(2)\n"
    assert drift(tree, digest) == ["main.py"]


def test_git_and_the_plain_copy_hold_the_same(tmp_path: Path) -> None:
    tree = code_tree(tmp_path / "with git", git=True)
    (tree / ".gitattributes").write_text("*.py text\n*.txt ident\n")
    (tree / "new.py").write_text("new\n")
    (tree / "main.py").write_text("print(2)\n")
    (tree / "go.sh").unlink()
    shutil.copytree(tree, tmp_path / "without", symlinks=True, ignore=shutil.ignore_patterns(".git"))
    without = tmp_path / "without"
    assert contents_of(tree, snapshot(tree)[1]) == contents_of(without, snapshot(without)[1])
    assert snapshots.marked(tree)[1] == snapshots.marked(without)[1], "the hashes are git's"


def test_the_digest_is_a_tree_of_git_and_the_repository_is_only_read(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    assert digest_of(tree) == run_git(tree, "rev-parse", "HEAD^{tree}")
    (tree / "main.py").write_text("print(2)\n")
    (tree / "new.py").write_text("new")
    before = {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()}
    snapshot(tree)
    assert {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()} == before


def test_a_part_of_a_repository_is_a_tree_of_its_own(tmp_path: Path) -> None:
    whole = code_tree(tmp_path / "part: one", git=True)  # a colon parts the folders of git's lists
    part = whole / "train"
    (part / "loop.py").write_text("x = 2\n")
    code, name = snapshot(part)
    assert sorted(contents_of(part, name)) == ["loop.py"]
    assert (part / name / "loop.py").read_text() == "x = 2\n"
    assert code.dirty
    assert drift(part, code.digest) == []


def test_a_worktree_before_its_first_commit_and_in_a_merge(tmp_path: Path) -> None:
    tree = code_tree(tmp_path / "main", git=True)
    run_git(tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = tmp_path / "side"
    assert digest_of(side) == digest_of(tree)
    for place, text in ((tree, "a\n"), (side, "b\n")):
        (place / "main.py").write_text(text)
        run_git(place, "commit", "-q", "-a", "-m", "second")
    with pytest.raises(subprocess.CalledProcessError):
        run_git(side, "merge", "main")
    assert "<<<<<<<" in (side / snapshot(side)[1] / "main.py").read_text()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "main.py").write_text("")
    run_git(fresh, "init", "-q")
    assert sorted(contents_of(fresh, snapshot(fresh)[1])) == ["main.py"]
    assert current(fresh).commit == ""


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_edits_that_git_was_told_to_overlook_count(tmp_path: Path, flag: str) -> None:
    tree = code_tree(tmp_path, git=True)
    run_git(tree, "update-index", flag, "main.py")
    (tree / "main.py").write_text("print('mine')\n")
    assert (tree / snapshot(tree)[1] / "main.py").read_text() == "print('mine')\n"


def test_an_edit_right_after_a_commit_counts(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    for number in range(2, 8):
        run_git(tree, "add", ".")
        (tree / "main.py").write_text(f"print({number})\n")  # as large, and within a tick of the clock
        assert (tree / snapshot(tree)[1] / "main.py").read_text() == f"print({number})\n"


def test_a_link_where_a_folder_was(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    (tree / "train").rename(tree / "other")
    (tree / "train").symlink_to("other")
    _, name = snapshot(tree)
    assert os.readlink(tree / name / "train") == "other"
    assert (tree / name / "train" / "loop.py").read_text() == "x = 1\n"


def test_bytes_that_git_would_convert_stay_as_they_are(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    run_git(tree, "config", "filter.scrub.clean", "sed s/rate.*/rate:/")
    run_git(tree, "config", "filter.broken.clean", "false")
    run_git(tree, "config", "filter.broken.required", "true")
    run_git(tree, "config", "core.autocrlf", "true")
    (tree / ".gitattributes").write_text("*.yaml filter=scrub\n*.bin filter=broken\n*.txt eol=crlf\n*.sh ident\n")
    for name, words in {"a.yaml": "rate: 1\n", "a.bin": "b", "a.txt": "one\ntwo\r\n", "a.sh": "# $Id$\n"}.items():
        (tree / name).write_bytes(words.encode())
        (tree / "train" / name).write_bytes(words.encode())
    for root in (tree, tree / "train"):  # the attributes lie above the latter
        code, name = snapshot(root)
        for file, words in contents_of(root, name).items():
            assert words == (root / file).read_bytes()
        kept = (root / name / "a.yaml").stat().st_ino
        assert (snapshot(root)[1], (root / name / "a.yaml").stat().st_ino) == (name, kept), "what is whole stays"
        (root / "a.yaml").write_text("rate: 2\n")
        assert drift(root, code.digest) == ["a.yaml"]


def test_what_the_configuration_of_the_repository_says_of_files_does_not_count(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    for name in ("symlinks", "fileMode"):
        run_git(tree, "config", f"core.{name}", "false")
    (tree / "new.sh").write_text("")
    (tree / "new.sh").chmod(0o755)
    _, name = snapshot(tree)
    assert (tree / name / "latest").is_symlink()
    assert os.access(tree / name / "new.sh", os.X_OK)


def test_a_folder_that_the_repository_around_it_ignores_is_copied(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")
    run_git(tmp_path, "init", "-q")
    tree = code_tree(tmp_path / "project", git=False)
    code, name = snapshot(tree)
    assert (len(code.digest), code.commit) == (64, "")
    assert not (tree / name / "main.py").is_symlink()
    assert contents_of(tree, name)["main.py"] == b"print(1)\n"


def test_settings_in_the_environment_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = code_tree(tmp_path, git=True)
    before = digest_of(tree)
    for number, name in enumerate(("core.fileMode", "core.symlinks")):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", "false")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    code, name = snapshot(tree)
    assert code.digest == before
    assert (tree / name / "latest").is_symlink()


def test_a_name_that_git_does_not_keep_is_told(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    (tree / "git~1").write_text("")
    with pytest.raises(ValueError, match=r"git keeps no file of these names.*: git~1$"):
        snapshot(tree)


def test_a_submodule_that_is_broken_is_told(tmp_path: Path) -> None:
    tree, other = code_tree(tmp_path / "a", git=True), code_tree(tmp_path / "b", git=True)
    run_git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    assert "sub/main.py" in contents_of(tree, snapshot(tree)[1])
    shutil.rmtree(tree / ".git" / "modules")
    with pytest.raises(ValueError, match=r"git .* fails, so the code cannot be kept"):
        snapshot(tree)


def test_a_clone_inside_goes_along(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    inside = tree / "third" / "party"
    inside.mkdir(parents=True)
    run_git(inside, "init", "-q")
    (inside / "m.py").write_text("m")
    _, name = snapshot(tree)
    assert (tree / name / "third" / "party" / "m.py").read_text() == "m"
    assert not (tree / name / "third" / "party" / ".git").exists()


def test_a_repository_that_git_refuses_is_told(tmp_path: Path) -> None:
    tree = code_tree(tmp_path, git=True)
    (tree / ".git" / "index").write_bytes(b"damaged index file, by no means readable")
    with pytest.raises(ValueError, match=r"git check-ignore fails, .*index"):
        current(tree)
