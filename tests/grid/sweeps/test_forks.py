"""Sweeps that hold forks: what is known of both runs is checked before anything starts."""

from __future__ import annotations

from typing import Any

from grid import forks
from grid.engine.sweep import Sweep, after, point, product, union

A = {"checkpoint_at": [10], "steps": 20}
FORK = {"fork.run": "{after}", "steps": 20}


def _sweep(**fork: Any) -> Sweep:
    start = point("a", A, method="alq")
    settings = {name.replace("__", "."): value for name, value in fork.items()}
    return Sweep(union(start, product(point("b", {**FORK, **settings}, method="qsgd"), after("a"))), seeds=2)


def test_a_fork_has_the_folder_of_the_run_of_its_seed() -> None:
    *starts, first, second = _sweep(fork__at=10).experiments()
    assert [one.config["fork"]["run"] for one in (first, second)] == [f"runs/sweep/{one.name}" for one in starts]
    assert [list(one.after) for one in (first, second)] == [[one.name] for one in starts]


def test_the_sweep_of_forks() -> None:
    found = forks.cpu().experiments()
    assert len(found) == 50
    left = [one for one in found if one.config["fork"]["run"]]
    assert len(left) == 25 and all(len(one.after) == 1 for one in left)
