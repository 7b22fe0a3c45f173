"""The virtual SLURM does what a real one does, and its jobs leave what bash leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.grid import bench
from tests.virtual_slurm import claims
from tests.virtual_slurm.cluster import Cluster


class Virtual:
    """The virtual cluster as the claims see it."""

    def __init__(self, folder: Path) -> None:
        self.slurm = Cluster(folder, nodes=2)

    def ask(self, *words: str) -> tuple[int, str, str]:
        done = self.slurm.run(*words)
        return done.returncode, done.stdout, done.stderr

    def submit(self, body: str, *options: str) -> str:
        done = self.slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", body)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def until(self, condition: Callable[[], object]) -> None:
        self.slurm.until(condition, "it never was so")

    def fail_node(self, node: str) -> None:
        self.slurm.fail_node(node)

    def resume_node(self, node: str) -> None:
        self.slurm.resume_node(node)

    def controller_down(self) -> None:
        self.slurm.controller_down()

    def controller_up(self) -> None:
        self.slurm.controller_up()


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.__name__)
def test_it_does_what_a_real_one_does(tmp_path: Path, claim: claims.Claim) -> None:
    claim(Virtual(tmp_path))


def test_without_accounting_sacct_says_so(tmp_path: Path) -> None:
    done = Cluster(tmp_path, accounting=False).run("sacct", "-j", "1")
    assert (done.returncode, done.stderr) == (1, "Slurm accounting storage is disabled\n")


def left(root: Path) -> dict[str, object]:
    """What the jobs of a sweep left, without times, names of nodes and the names of submissions."""
    found: dict[str, object] = {}
    names = sorted(path.name for path in root.glob("jobs/sweeps/tiny/*-*"))
    for path in [*root.glob("jobs/sweeps/*/*/*"), *root.glob("jobs/sweeps/*/*/logs/*"), *root.glob("runs/*/*/*")]:
        if not path.is_file() or path.suffix in (".sbatch", ".sh", ".yaml") or path.name == "submission.json":
            continue
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", path.read_text())
        text = re.sub(r"in slot \d", "in a slot", text).replace(str(root), "ROOT")
        lines = [line for line in text.splitlines() if not line.startswith("slurmstepd")]
        value: object = sorted(lines) if "jobs/" in str(path) else lines  # those of two slots come in any order
        if path.name == "status.json":
            values = json.loads(path.read_text())
            value = {name: values[name] for name in values if name not in ("host", "pid", "heartbeat", "start")}
        found[re.sub(r"\d{8}-\d{6}-\w+", lambda name: str(names.index(name[0])), str(path.relative_to(root)))] = value
    return found


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "--per_script 3", "--per_script 3 --parallel 2"])
def test_its_jobs_leave_what_bash_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str) -> None:
    of_each = []
    for real in (False, True):
        with bench.bench(tmp_path / str(real), capsys, cpus=8, real=real) as here:
            here.sweep((1, 2, 3, 4, 5))
            here.behave({1: 0, 2: [1, 0], 3: 3, 4: ["silent", 0], 5: [75, 0]})
            here.good(f"plan {options}")
            here.good("submit")
            here.wait()
            here.age(15)
            here.good("retry --yes --code")
            here.wait()
            here.age(15)
            of_each.append((left(here.root), here.states(), here.starts()))
    virtual, of_bash = of_each
    assert {name: virtual[0].get(name) for name in of_bash[0]} == of_bash[0]
    assert virtual == of_bash
