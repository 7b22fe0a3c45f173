"""Pinned code: what a snapshot holds, that it is whole, and that the tree may change beside it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from grid.engine.scripts import snapshot as snapshots
from grid.engine.scripts.snapshot import drift, snapshot
from tests.grid.scripts.code_trees import code_tree, current, digest_of, is_git


@pytest.fixture(params=[True, False], ids=["git", "no git"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param and shutil.which("git") is None:
        pytest.skip("git is not installed")
    return code_tree(tmp_path / "a checkout", git=request.param)


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


def test_what_no_run_reads_is_no_code_and_what_a_user_adds_is(tree: Path) -> None:
    before = current(tree)
    for name in ("results/a/status.json", "tests/test_a.py", "docs/a.css", "benchmarks/a.py"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("one byte more")
    assert current(tree) == before
    mine = {
        "my_models.py": "a module",
        "weights.json": "beside it",
        "mine/docs/table.csv": "not at the top",
        "train/tests/x": "x",
    }
    for name, text in mine.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    code, name = snapshot(tree)
    assert code.digest != before.digest
    assert {part: (tree / name / part).read_text() for part in mine} == mine
    assert not {"results", "tests", "docs", "benchmarks"} & {Path(part).parts[0] for part in manifest(tree, name)}
    assert (tree / name / "results").resolve() == tree / "results", "relative paths keep working"


def manifest(tree: Path, name: str) -> list[str]:
    return list(json.loads((tree / name / ".snapshot.json").read_text())["files"])


def test_commit_and_dirty(tree: Path) -> None:
    code = current(tree)
    assert (len(code.commit), code.dirty) == ((40, False) if is_git(tree) else (0, False))
    (tree / "main.py").write_text("print(2)\n")
    assert current(tree).dirty == is_git(tree)
    assert current(tree).commit == code.commit


def test_the_digest_is_of_contents_alone(tree: Path) -> None:
    before = digest_of(tree)
    os.utime(tree / "main.py", (1, 1))
    for name in ("runs/b", "jobs/y.sh", "data/c", "figures/g", ".venv/d", "train/__pycache__/e"):
        (tree / name).write_text("more")
    (tree / "nuq" / "native").mkdir(parents=True)
    (tree / "nuq" / "native" / "libnuq.so").write_text("built")
    assert digest_of(tree) == before
    (tree / "main.py").chmod(0o755)
    executable = digest_of(tree)
    (tree / "latest").unlink()
    (tree / "latest").symlink_to("main.py")
    assert len({before, executable, digest_of(tree)}) == 3


def test_what_no_run_reads_is_no_code(tree: Path) -> None:
    before = digest_of(tree)
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
    assert drift(tree, digest_of(tree)) == []


def test_a_file_that_changes_while_it_is_copied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, copy = code_tree(tmp_path, git=False), snapshots._copy

    def edit(root: Path, marks: Mapping[str, str], names: Iterable[str], folder: Path) -> None:
        (tree / "main.py").write_text("print(2)\n")
        copy(root, marks, names, folder)

    monkeypatch.setattr(snapshots, "_copy", edit)
    with pytest.raises(ValueError, match=r"main\.py changed while it was copied; submit again"):
        snapshot(tree)
    assert list((tree / "jobs" / "code").iterdir()) == []


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
    if is_git(tree):
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
