"""Plans as values: arrays, caps and chunks; what differs; defaults that moved; hours left."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.states.ledger import Chunk
from grid.engine.states.runs import Run, runs_of
from grid.engine.states.state import State
from grid.engine.submission.plan import (
    Cancelled,
    Moved,
    Plan,
    Planned,
    arrays,
    deal,
    differences,
    moved_defaults,
    remaining,
)
from grid.engine.sweep import Sweep, axis, point, product
from settings.resources import Resources


def planned(shapes: list[int]) -> list[Planned]:
    """Runs r0, r1, ...; shapes: which resources each asks for."""
    return [Planned(f"runs/x/r{number}", "", "new", {"mem": f"{shape + 1}G"}) for number, shape in enumerate(shapes)]


def runs_in(chunks: list[Chunk]) -> list[str]:
    return [run for chunk in chunks for element in chunk.elements for run in element]


def most_at_once(chunks: list[Chunk], chance: random.Random) -> int:
    """The most elements that run together where SLURM starts whatever may start and chunks end in any order."""
    waiting, running, over, most = list(chunks), list[Chunk](), set[str](), 0
    while waiting or running:
        begin = [chunk for chunk in waiting if {name for _, name in chunk.after} <= over]
        waiting = [chunk for chunk in waiting if chunk not in begin]
        running += begin
        most = max(most, sum(min(chunk.cap or len(chunk.elements), len(chunk.elements)) for chunk in running))
        over.add(running.pop(chance.randrange(len(running))).name)
    return most


@given(
    shapes=st.lists(st.integers(0, 3), max_size=60),
    per_script=st.integers(1, 5),
    cap=st.one_of(st.none(), st.integers(1, 12)),
    canary=st.booleans(),
    max_elements=st.integers(1, 9),
    chance=st.randoms(use_true_random=False),
)
def test_every_run_once_within_all_limits(
    shapes: list[int], per_script: int, cap: int | None, canary: bool, max_elements: int, chance: random.Random
) -> None:
    runs = planned(shapes)
    chunks = arrays(runs, per_script=per_script, cap=cap, canary=canary, max_elements=max_elements)
    assert sorted(runs_in(chunks)) == sorted(item.run_dir for item in runs)
    assert len({chunk.name for chunk in chunks}) == len(chunks)
    wanted = {item.run_dir: item.resources for item in runs}
    before: set[str] = set()
    for chunk in chunks:
        assert 1 <= len(chunk.elements) <= max_elements
        assert all(1 <= len(element) <= per_script for element in chunk.elements)
        assert all(wanted[run] == chunk.resources for element in chunk.elements for run in element)
        assert chunk.state == "written"
        assert {name for _, name in chunk.after} <= before, "what it waits for is submitted before it"
        before.add(chunk.name)
    rest = [chunk for chunk in chunks if not chunk.name.endswith("canary")]
    if cap is not None:
        most = most_at_once(chunks, chance)
        assert most <= cap
        assert canary or most == min(cap, sum(len(chunk.elements) for chunk in rest)), "no less than may be"
    if cap is None:
        assert all(chunk.cap is None for chunk in chunks)
    elements: dict[str, int] = {}
    for chunk in rest:
        shape = chunk.name.partition("c")[0]
        elements[shape] = elements.get(shape, 0) + len(chunk.elements)
    sizes: dict[str, list[int]] = {}
    for chunk in rest:
        sizes.setdefault(chunk.name.partition("c")[0], []).append(len(chunk.elements))
    for shape, found in sizes.items():
        assert len(found) == -(-elements[shape] // max_elements), "as few arrays as can be"
        assert max(found) - min(found) <= 1


@given(shapes=st.lists(st.integers(0, 2), min_size=1, max_size=30), cap=st.one_of(st.none(), st.integers(1, 4)))
def test_a_canary_goes_before_each_shape(shapes: list[int], cap: int | None) -> None:
    chunks = arrays(planned(shapes), canary=True, cap=cap, max_elements=4)
    canaries = {chunk.name: chunk for chunk in chunks if chunk.name.endswith("canary")}
    assert len(canaries) == sum(shapes.count(shape) > 1 for shape in set(shapes))
    for chunk in canaries.values():
        assert (len(chunk.elements), len(chunk.elements[0])) == (1, 1)
        assert "afterok" not in dict(chunk.after)
    for chunk in chunks:
        if chunk.name not in canaries:
            name = f"{chunk.name.partition('c')[0]}canary"
            assert (("afterok", name) in chunk.after) == (name in canaries)


@pytest.mark.parametrize(
    ("sizes", "cap", "shares"),
    [([30, 10], 8, [6, 2]), ([5], 8, [5]), ([100, 1], 2, [1, 1]), ([4, 4, 4], 2, [1, 1, 1]), ([7, 7], 4, [2, 2])],
)
def test_a_cap_is_shared_by_size(sizes: list[int], cap: int, shares: list[int]) -> None:
    chunks = arrays(planned([shape for shape, size in enumerate(sizes) for _ in range(size)]), cap=cap)
    assert [chunk.cap for chunk in chunks] == shares
    if len(sizes) > cap:
        assert [list(chunk.after) for chunk in chunks] == [[], [], [("afterany", "s0c0")]]


def test_neighbours_are_dealt_to_different_scripts() -> None:
    assert deal([1, 2, 3, 4, 5], 2) == [[1, 3, 5], [2, 4]]
    (chunk,) = arrays(planned([0] * 5), per_script=3)
    assert [[run[-1] for run in element] for element in chunk.elements] == [["0", "2", "4"], ["1", "3"]]
    assert arrays([]) == []


# --- what differs -------------------------------------------------------------------------------------------------


def essence(
    runs: dict[str, dict[str, Any]], cancel: tuple[str, ...] = (), code: str = "a", site: str = ""
) -> dict[str, Any]:
    submit = [Planned(run, "", "new", resources) for run, resources in runs.items()]
    plan = Plan(
        "id", "g.s", "s", {}, {"digest": code}, submit, [Cancelled(run, "1_0", True) for run in cancel], site=site
    )
    return json.loads(json.dumps(plan.essence()))  # as it is kept


def test_every_difference_has_its_words() -> None:
    before = essence({"runs/x/a": {"mem": "1G"}, "runs/x/b": {"mem": "1G"}})
    assert differences(before, essence({"runs/x/b": {"mem": "1G"}, "runs/x/a": {"mem": "1G"}})) == []
    assert differences(before, essence({"runs/x/a": {"mem": "1G"}})) == ["1 no longer to be submitted (b)"]
    found = differences(
        before, essence({"runs/x/a": {"mem": "2G"}, "runs/x/b": {"mem": "1G"}, "runs/x/c": {}}, ("runs/x/d",), "b")
    )
    assert found == ["the code has changed since", "1 new (c)", "other resources for 1 (a)", "1 to cancel, 0 were"]
    assert differences(essence({}), essence({f"runs/x/{name}": {} for name in "abcd"})) == ["4 new (a, b, c, ...)"]


def test_code_that_changed_is_named() -> None:
    marks = [{"main.py": "file 1", "nuq/a.py": "file 1"}, {"main.py": "file 2", "nuq/b.py": "file 1"}]
    before, now = [
        json.loads(json.dumps(Plan("", "", "", {}, {"digest": str(m)}, [], files=m).essence())) for m in marks
    ]
    assert differences(before, now) == ["the code has changed since (main.py, nuq/a.py, nuq/b.py)"]
    del before["files"]  # of older code
    assert differences(before, now) == ["the code has changed since"]


names = st.dictionaries(st.sampled_from("abcdef"), st.fixed_dictionaries({"mem": st.sampled_from(["1G", "2G"])}))


@given(
    names, names, st.sets(st.sampled_from("xyz")), st.sets(st.sampled_from("xyz")), st.sampled_from(["aa", "ab", "ba"])
)
def test_no_difference_goes_unseen(
    left: dict[str, Any], right: dict[str, Any], less: set[str], more: set[str], then: str
) -> None:
    before, now = essence(left, tuple(less), *then), essence(right, tuple(more), "a", "a")
    assert (differences(before, now) == []) == (left == right and less == more and then == "aa")


# --- defaults that moved ------------------------------------------------------------------------------------------


def tiny(**settings: Any) -> list[Run]:
    points = product(point("QSGD", method="qsgd", steps=7, **settings), axis("method.bits", [3, 4]))
    return runs_of(Sweep(points, seeds=(1, 2), folder="tiny").experiments(), Path("/nowhere"))


def test_old_and_new_value_of_a_moved_default() -> None:
    old, new = tiny(**{"optim.lr": 0.2}), tiny()
    moved, gone = moved_defaults(new, {run.experiment.name: run.experiment.config for run in old})
    assert moved == [Moved("optim.lr", 0.2, 0.1, [run.experiment.name for run in old])]
    assert gone == []


def test_what_left_the_sweep_has_no_counterpart() -> None:
    new = tiny()
    config = new[0].experiment.config
    other = {**config, "seed": 9}
    both = {**config, "optim": {**config["optim"], "lr": 0.3, "momentum": 0.5}}
    odd = {"method": "none of ours"}
    moved, gone = moved_defaults(new, {"seed9": other, "both": both, "odd": odd, "empty": {}})
    assert [(item.name, item.old, item.new, item.runs) for item in moved] == [
        ("optim.lr", 0.3, 0.1, ["both"]),
        ("optim.momentum", 0.5, 0.9, ["both"]),
    ]
    assert gone == ["seed9", "odd", "empty"]


def test_a_setting_that_did_not_exist_then() -> None:
    new = tiny()
    config = new[0].experiment.config
    then = {**config, "method": {key: value for key, value in config["method"].items() if key != "dither"}}
    (moved,), gone = moved_defaults(new, {"then": then})
    assert (moved.name, moved.old, moved.new, gone) == ("method.dither", "(no such setting)", "none", [])


def test_a_default_that_moved_says_what_older_runs_had() -> None:
    new = tiny()
    config = new[0].experiment.config
    then = {**config, "method": {key: value for key, value in config["method"].items() if key != "rounding"}}
    (moved,), gone = moved_defaults(new, {"then": then})
    assert (moved.name, moved.old, moved.new, gone) == ("method.rounding", "stochastic", "correlated", [])


# --- what is left -------------------------------------------------------------------------------------------------


def test_hours_left_from_finished_siblings() -> None:
    runs = tiny()
    resources = {run.run_dir: Resources(gpus=2, nodes=2, ranks=4) for run in runs}
    done, half, fresh, failed = (run.run_dir for run in runs)
    states = {
        done: State("done", step=7, steps=7, seconds=70.0),
        half: State("running", step=4, steps=7, seconds=1.0),
        fresh: State("new"),
        failed: State("failed", step=7, steps=7, seconds=9.0),
    }
    left = remaining(runs, states, resources)
    assert left.seconds == pytest.approx(30 + 70 + 0)
    assert left.gpu_hours == pytest.approx(100 * 4 / 3600)
    assert left.num_guessed == 0
    nothing = remaining(runs, {run: State("new") for run in states}, resources)
    assert (nothing.seconds, nothing.gpu_hours, nothing.num_guessed) == (0, 0, 4)
    all_done = remaining(runs, dict.fromkeys(states, states[done]), resources)
    assert (all_done.seconds, all_done.num_guessed) == (0, 0)


def test_a_sibling_of_the_same_method_counts_before_others() -> None:
    points = [point("QSGD", method="qsgd", steps=10), point("SGD", method="sgd", steps=10)]
    runs = runs_of(Sweep(points, seeds=(1, 2), folder="tiny").experiments(), Path("/nowhere"))
    resources = {run.run_dir: Resources(gpus=0) for run in runs}
    by = {(run.experiment.config["method"]["name"], run.experiment.seed): run.run_dir for run in runs}
    states = dict.fromkeys(by.values(), State("new"))
    states[by["qsgd", 1]] = State("done", step=10, steps=10, seconds=100.0)
    assert remaining(runs, states, resources).seconds == pytest.approx(300), (
        "any method where there is none of one's own"
    )
    states[by["sgd", 1]] = State("done", step=10, steps=10, seconds=10.0)
    assert remaining(runs, states, resources).seconds == pytest.approx(110)


def test_plans_are_values() -> None:
    chunks = arrays(planned([0, 0, 1]), cap=1)
    again = [Chunk(**json.loads(json.dumps(dataclasses.asdict(chunk)))) for chunk in chunks]
    assert [[list(element) for element in chunk.elements] for chunk in again] == [
        list(map(list, chunk.elements)) for chunk in chunks
    ]
    assert [[tuple(pair) for pair in chunk.after] for chunk in again] == [list(chunk.after) for chunk in chunks]
    assert list(itertools.chain(*(chunk.after for chunk in chunks))) == [("afterany", "s0c0")]
