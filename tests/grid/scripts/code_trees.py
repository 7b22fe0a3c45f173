"""Trees of code, in a repository or not, and what a snapshot of them holds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from grid.engine.scripts.snapshot import Code, marked


def run_git(root: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *named, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def code_tree(root: Path, *, git: bool) -> Path:
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
        run_git(root, "init", "-q", "-b", "main")
        run_git(root, "add", ".")
        run_git(root, "commit", "-q", "-m", "first")
    return root


def is_git(root: Path) -> bool:
    return (root / ".git").exists()


def current(root: Path) -> Code:
    return marked(root)[0]


def digest_of(root: Path) -> str:
    return current(root).digest


def contents_of(root: Path, name: str) -> dict[str, bytes]:
    """What runs see of a snapshot: its files, without what is linked and written there."""
    manifest = json.loads((root / name / ".snapshot.json").read_text())
    return {file: (root / name / file).read_bytes() for file in manifest["files"]}
