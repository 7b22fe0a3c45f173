"""after(): what a sweep may say of experiments that wait for others."""

from __future__ import annotations

import pytest

from grid.engine.sweep import Sweep, after, axis, needs, point, product, union


def test_a_label_of_several_runs() -> None:
    first = product(point("a", method="qsgd"), axis("method.bits", [2, 3]))
    same = [point("a", item.settings) for item in first]
    sweep = Sweep(union(same, product(point("b", method="trn"), after("a"))))
    *ones, waits = sweep.experiments()
    assert waits.after == {item.name: "a" for item in ones}
    assert len(ones) == 2


A, B = point("a", method="qsgd"), point("b", method="trn")


def test_kept_runs_have_no_folder_to_go_on_from() -> None:
    points = union(A, product(point("c", {"model.weights_file": "{after}/c.pt"}, method="trn"), after("a")))
    with pytest.raises(ValueError, match=r"^g\.r, point 'c': model\.weights_file: \{after\} .*: leave keep out$"):
        Sweep(points, keep=True, grid="g", run_name="r").experiments()
    assert len(Sweep(union(A, product(B, after("a"))), keep=True, grid="g", run_name="r").experiments()) == 2


def test_points_that_wait_combine() -> None:
    """needs() and after() are points of a product, as others are."""
    waits = product(B, union(after("a"), needs(cpus=1)))
    assert [item.after for item in waits] == [("a",), ()]
    assert product(B, after("a"), after("c", "a"))[0].after == ("a", "c")
