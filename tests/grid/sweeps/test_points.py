"""Points: how axes combine, Hydra's grammar, conditions and exclusions, resources, and mistakes in one sentence."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grid.engine.sweeps import points as points_module
from grid.engine.sweeps.points import (
    Point,
    axis,
    kept,
    needs,
    parsed,
    point,
    product,
    rows,
    union,
    when,
    where_read,
    without,
    zipped,
)
from settings import command_line
from settings.overrides import to_override

METHODS = union(point("SGD", method="sgd"), point("QSGD", method="qsgd"), point("ALQ", method="alq"))


def _labels(points: list[Point]) -> list[str]:
    return [item.label for item in points]


# --- lengths and order --------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(LENGTHS)
def test_lengths_of_product_and_union(lengths: list[int]) -> None:
    axes = [axis(f"a{number}", range(length)) for number, length in enumerate(lengths)]
    assert len(product(*axes)) == math.prod(lengths)
    assert len(union(*axes)) == sum(lengths)
    assert len({tuple(item.settings.values()) for item in product(*axes)}) == math.prod(lengths)


@given(LENGTHS, LENGTHS)
def test_product_is_associative_and_spreads_over_union(left: list[int], right: list[int]) -> None:
    first, second = axis("a", left), axis("b", right)
    both = union(axis("c", [1, 2]), point("x"))
    assert product(product(first, second), both) == product(first, product(second, both))
    assert product(union(first, second), both) == union(product(first, both), product(second, both))
    assert product(first) == first
    assert product() == [Point()]


@given(st.lists(st.integers(), min_size=1, max_size=6))
def test_zipped_goes_side_by_side(values: list[int]) -> None:
    made = zipped(axis("a", values), axis("b", values[::-1]), axis("c", range(len(values))))
    assert [tuple(item.settings.values()) for item in made] == list(
        zip(values, values[::-1], range(len(values)), strict=True)
    )


def test_zipped_keeps_labels_options_and_resources() -> None:
    (made,) = zipped([point("A", method="sgd")], axis("method.bits=3"), [needs(gpus=2)])
    assert made == Point("A bits=3", {"method": "sgd", "method.bits": 3}, frozenset({"method.bits"}), {"gpus": 2})
    with pytest.raises(
        ValueError,
        match=r"^zipped: the axes must be equally long, but hold 2 \(workers=1 \.\.\), 3 \(steps=1 \.\.\) points$",
    ):
        zipped(axis("workers=1,2"), axis("steps=1,2,3"))


# --- Hydra's grammar ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("method.bits=range(2,8)", "method.bits", [2, 3, 4, 5, 6, 7]),
        ("steps=range(0,10,5)", "steps", [0, 5]),
        ("optim.lr=.1,.05,1e-3", "optim.lr", [0.1, 0.05, 0.001]),
        ("method=choice(qsgd,alq)", "method", ["qsgd", "alq"]),
        ("method=qsgd", "method", ["qsgd"]),
        ("schedule.at=[100,200],[300]", "schedule.at", [[100, 200], [300]]),
        ("schedule.at=[100,200]", "schedule.at", [[100, 200]]),
        ("data_dir='a, b',\"it's\"", "data_dir", ["a, b", "it's"]),
        ("eval_train=true,false", "eval_train", [True, False]),
        ("steps=sort(3,1,2)", "steps", [1, 2, 3]),
        ("steps=sort(range(1,4),reverse=true)", "steps", [3, 2, 1]),
        ("steps=int(2.5),4", "steps", [2, 4]),
        ("data_dir=''", "data_dir", [""]),
    ],
)
def test_an_axis_from_one_text(text: str, name: str, values: list[Any]) -> None:
    assert parsed(text) == (name, values)
    assert axis(text) == axis(name, values)
    assert [type(value) for value in parsed(text)[1]] == [type(value) for value in values]


SCALARS = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
)


@given(st.lists(SCALARS | st.lists(SCALARS, max_size=3), min_size=1, max_size=4))
@example(["a,b", "it's", 'say "x"', "back\\", "${x}", "", " x ", "null", "1e3", "[1]", "range(1,3)"])
def test_values_read_as_main_reads_them(values: list[Any]) -> None:
    """One text of all values gives the points that main.py's own parser gives for each value alone."""
    assume(all("\n" not in str(value) for value in values))
    texts = [to_override("x", value) for value in values]
    name, found = parsed("x=" + ",".join(text.partition("=")[2] for text in texts))
    alone = [command_line.parse_overrides([text])["x"] for text in texts]
    assert (name, found) == ("x", alone)
    assert [type(value) for value in found] == [type(value) for value in alone]
    assert [parsed(text) for text in texts] == [("x", [value]) for value in alone]


# --- conditions, exclusions, rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    ["method=alq,qsgd", {"method": ["qsgd", "alq"]}, lambda given: given["method"] != "sgd"],
    ids=["text", "mapping", "function"],
)
def test_when_multiplies_only_where_it_holds(condition: Any) -> None:
    made = product(METHODS, when(condition, axis("method.bits=2,3")), point(steps=5))
    assert _labels(made) == ["SGD", "QSGD bits=2", "QSGD bits=3", "ALQ bits=2", "ALQ bits=3"]
    assert all(item.settings["steps"] == 5 for item in made)


def test_when_sees_choices_by_default_and_settings_that_are_read() -> None:
    assert len(product(axis("steps=1,2"), when("method=alq", axis("workers=2,4")))) == 4, "alq is the default method"
    bits = product(METHODS, where_read({"method.bits": 3}), when("method.bits=3", needs(gpus=2)))
    assert [dict(item.resources) for item in bits] == [{}, {"gpus": 2}, {"gpus": 2}], "SGD reads no bits"
    nested = product(METHODS, axis("workers=2,4"), when("method=alq", when("workers=4", needs(ranks=4))))
    assert [item.label for item in nested if item.resources] == ["ALQ workers=4"]


def test_when_of_a_list_and_of_two_settings() -> None:
    made = product(
        axis("schedule.at=[1,2],[3]"), axis("workers=2,4"), when({"schedule.at": [[1, 2]], "workers": 4}, point("hit"))
    )
    assert [item.label for item in made if "hit" in item.label] == ["at=[1, 2] workers=4 hit"]


def test_without_drops_combinations() -> None:
    made = without(
        product(METHODS, axis("workers=2,4")), {"method": "sgd", "workers": 4}, lambda given: given["method"] == "alq"
    )
    assert _labels(made) == ["SGD workers=2", "QSGD workers=2", "QSGD workers=4"]


@given(st.sets(st.integers(0, 9), min_size=1, max_size=9))
def test_without_and_when_are_complements(chosen: set[int]) -> None:
    numbers = axis("steps", range(10))
    assert len(without(numbers, {"steps": chosen})) == 10 - len(chosen)
    assert len(product(numbers, when({"steps": chosen}, axis("workers=1,2,3")))) == 10 + 2 * len(chosen)


def test_rows() -> None:
    made = rows(
        {"method": "alq", "method.bits": 3, "resources": {"gpus": 2}},
        ["method=qsgd", "method.bits=4", "schedule.at=[1,2]"],
        {"label": "mine", "method": "sgd"},
        point("given", steps=3),
    )
    assert _labels(made) == ["method=alq bits=3", "method=qsgd bits=4 at=[1, 2]", "mine", "given"]
    assert [dict(item.settings) for item in made] == [
        {"method": "alq", "method.bits": 3},
        {"method": "qsgd", "method.bits": 4, "schedule.at": [1, 2]},
        {"method": "sgd"},
        {"steps": 3},
    ]
    assert [dict(item.resources) for item in made] == [{"gpus": 2}, {}, {}, {}]
    assert not any(item.optional for item in made), "an explicit row means what it says"


# --- resources ----------------------------------------------------------------------------------------------------


def test_needs_are_merged_and_the_later_one_wins() -> None:
    made = product(needs(gpus=1, time="1:00:00"), axis("workers=2,4"), when("workers=4", needs(gpus=4)), needs(nodes=2))
    assert _labels(made) == ["workers=2", "workers=4"]
    assert [dict(item.resources) for item in made] == [
        {"gpus": 1, "time": "1:00:00", "nodes": 2},
        {"gpus": 4, "time": "1:00:00", "nodes": 2},
    ]


def test_needs_are_checked_where_they_stand() -> None:
    needs(nodes=4)  # the ranks may come from another point
    for wrong, sentence in (
        ({"time": "12h"}, "time='12h'"),
        ({"gpu": 1}, "unknown resource 'gpu'"),
        ({"nodes": 0}, "nodes=0"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            needs(**wrong)


def test_kept() -> None:
    made = product(METHODS, where_read({"method.bits": 3}))
    assert [kept(item).get("method.bits") for item in made] == [None, 3, 3]
    with pytest.raises(ValueError, match="unknown method 'qsdg'; did you mean 'qsgd'"):
        kept(point(method="qsdg"))


def test_the_example_of_the_module_holds() -> None:
    block = (points_module.__doc__ or "").partition("::\n")[2]
    made: list[Point] = eval(textwrap.dedent(block).strip(), dict(vars(points_module)))
    assert _labels(made) == [
        "QSGD workers=2 batch_size=256",
        "QSGD workers=4 batch_size=128",
        "ALQ fit=mixture workers=2 batch_size=256",
        "ALQ fit=mixture workers=4 batch_size=128",
        "ALQ fit=histogram workers=2 batch_size=256",
        "ALQ fit=histogram workers=4 batch_size=128",
    ]
    assert [dict(item.resources) for item in made] == [{}, {"ranks": 4}] * 3
