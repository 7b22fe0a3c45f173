"""Cores and GPUs of this machine: never more than there are, never two runs on one GPU,
and everything is given back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.local.machine import Machine, ranks_of, visible_gpus
from grid.engine.states.runs import Run, runs_of
from grid.engine.sweep import Sweep, point


def run(threads: int = 1, **resources: Any) -> Run:
    sweep = Sweep([point("QSGD", method="qsgd", threads=threads)], folder="tiny", resources=resources)
    return runs_of(sweep.experiments(), Path("/nowhere"))[0]


KINDS = [
    run(),
    run(3),
    run(ranks=2),
    run(ranks=4, threads=2),
    run(gpus=0),
    run(gpus=2),
    run(gpus=0.5),
    run(gpus=0, threads=9),
]


@given(
    cores=st.integers(1, 8),
    num_gpus=st.integers(0, 4),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=40),
)
def test_nothing_is_held_twice(cores: int, num_gpus: int, steps: list[tuple[bool, int]]) -> None:
    machine = Machine(cores=cores, gpus=[str(index) for index in range(num_gpus)])
    held: list[Any] = []
    for takes, number in steps:
        if takes:
            share = machine.take(KINDS[number % len(KINDS)])
            if share is None:
                assert held, "an empty machine takes any run"
            else:
                held.append(share)
        elif held:
            machine.give_back(held.pop(number % len(held)))
        gpus = [gpu for share in held for gpu in share.gpus]
        assert len(gpus) == len(set(gpus))
        assert sum(share.cores for share in held) <= cores
        assert len({share.slot for share in held}) == len(held)
    for share in held:
        machine.give_back(share)
    for kind in KINDS:
        share = machine.take(kind)
        assert share is not None
        assert share.slot == 0
        machine.give_back(share)


@pytest.mark.parametrize(
    ("kind", "cores", "gpus", "at_once"),
    [
        (run(), 4, [], 4),
        (run(3), 8, [], 2),
        (run(ranks=2), 8, [], 4),
        (run(threads=9), 4, [], 1),  # too large for the machine: it has it to itself
        (run(), 1, ["0", "1", "2"], 3),  # on a GPU the cores do not count
        (run(gpus=2), 1, ["0", "1", "2"], 1),
        (run(gpus=0), 4, ["0", "1"], 4),  # asks for none: as on a machine without
        (run(gpus=8), 4, ["0", "1"], 1),
    ],
)
def test_how_many_at_once(kind: Run, cores: int, gpus: list[str], at_once: int) -> None:
    machine = Machine(cores=cores, gpus=gpus)
    taken = 0
    while machine.take(kind) is not None:
        taken += 1
    assert taken == at_once


def test_slots_overrule_the_size() -> None:
    machine = Machine(3, cores=1, gpus=["a", "b"])
    shares = [machine.take(run(threads=9)) for _ in range(4)]
    assert [share and share.gpus for share in shares] == [("a",), ("b",), ("a",), None]
    assert Machine(2, cores=1, gpus=[]).take(run()) is not None


@pytest.mark.parametrize(("value", "found"), [("", []), ("-1", []), ("2,5", ["2", "5"]), ("GPU-8a,", ["GPU-8a"])])
def test_the_gpus_that_one_may_see(value: str, found: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": value}) == found


def test_ranks() -> None:
    assert ranks_of(run()) == 1
    assert ranks_of(run(ranks=4, nodes=2)) == 4
