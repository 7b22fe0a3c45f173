"""Labels of experiments name the method, whoever set it and however."""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, axis, point, product, rows


def test_labels_name_the_method_however_it_was_set() -> None:
    bits = axis("method.bits=2,3")
    ways = {
        "a keyword": product(point(method="alq"), bits),
        "a dict": product(point("", {"method": "alq"}), bits),
        "a point": product(Point(settings={"method": "alq"}), bits),
        "an axis": product(axis("method=alq"), bits),
        "a row": rows({"method": "alq", "method.bits": 2}, ["method=alq", "method.bits=3"]),
        "together": [point(method="alq"), point(method="alq", steps=7)],
        "the default": [point(), point(steps=7)],
    }
    for way, points in ways.items():
        labels = [item.label for item in Sweep(points).experiments()]
        assert len(labels) == 2 and all("alq" in label.lower() for label in labels), (way, labels)
    assert [item.label for item in Sweep(product(point("mine", method="alq"), bits)).experiments()] == [
        "mine bits=2",
        "mine bits=3",
    ]


def test_another_method_for_all_is_named() -> None:
    sweep = Sweep([point("ALQ", method="alq")]).override({"method": "qsgd", "steps": 7})
    assert [item.label for item in sweep.experiments()] == ["ALQ method=qsgd"]
