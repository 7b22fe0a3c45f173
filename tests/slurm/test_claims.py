"""What the tests' virtual SLURM claims of SLURM holds of the real one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.cluster import Slurm
from tests.virtual_slurm import claims


class Real:
    """The real cluster as the claims see it."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder

    def ask(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            words, env=self.slurm.environ, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def submit(self, body: str, *options: str) -> str:
        (self.folder / "job.sh").write_text(f"#!/bin/bash\n{body}\n")
        return self.slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, "job.sh", cwd=self.folder).strip()

    def until(self, condition: Callable[[], object]) -> None:
        self.slurm.wait_until(condition)

    def fail_node(self, node: str) -> None:
        self.slurm.kill_node(node)

    def resume_node(self, node: str) -> None:
        self.slurm.start_node(node)

    def controller_down(self) -> None:
        self.slurm.stop_controller()

    def controller_up(self) -> None:
        self.slurm.start_controller()


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.__name__)
def test_the_real_one_does_it_too(quiet: Slurm, tmp_path: Path, claim: claims.Claim) -> None:
    claim(Real(quiet, tmp_path))
