"""The budget of a test (``tests/budget.py``) fails what is above it, on CI alone; ``some`` leaves out variants."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import budget, kinds


def _run(*marks: str, seconds: float) -> None:
    item = SimpleNamespace(get_closest_marker=lambda name: name in marks or None)
    hook = budget.pytest_runtest_call(cast(Any, item))
    next(hook)
    time.sleep(seconds)
    with pytest.raises(StopIteration):
        hook.send(None)


@pytest.mark.parametrize("limit", ["MOST_CPU_S", "MOST_S"])
def test_what_takes_longer_and_is_not_marked_fails_on_ci(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, limit, -1.0)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="must be made quicker or marked slow"):
        _run(seconds=0)
    _run("slow", seconds=0)
    monkeypatch.delenv("CI")
    _run(seconds=0)


def test_what_waits_fails_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_S", 0.01)
    monkeypatch.setattr(budget, "slowness", lambda: 1.0)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"\d\.\d s in all: above 5 and 0\.01 it must"):
        _run(seconds=0.02)
    monkeypatch.undo()
    monkeypatch.setenv("CI", "true")
    _run(seconds=0.02)


class _Item:
    """As much of a test as is asked."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.name = nodeid, nodeid.rpartition("::")[2]
        self.marks = [decorator.mark for decorator in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, decorator: pytest.MarkDecorator) -> None:
        self.marks.append(decorator.mark)


def test_some_variants_stay_quick() -> None:
    some = pytest.mark.some(2)
    items = [_Item(f"a.py::test_one[{at}]", some) for at in range(7)]
    marked = _Item("a.py::test_one[slow]", some, pytest.mark.slow)
    others = [_Item("a.py::test_two[3]", some), _Item("a.py::test_three[3]")]
    kinds.pytest_collection_modifyitems(cast(Any, [marked, *items, *others]))
    assert _quick(items, others) == ["test_one[0]", "test_one[6]", "test_two[3]", "test_three[3]"]
    assert len(marked.marks) == 2


def test_of_stacked_parameters_each_varies() -> None:
    items = [_Item(f"a.py::test[{a}-{b}]", pytest.mark.some(2)) for a in "xy" for b in "12"]
    kinds.pytest_collection_modifyitems(cast(Any, items))
    assert _quick(items) == ["test[x-1]", "test[y-2]"]


def test_named_variants_stay_quick() -> None:
    items = [_Item(f"a.py::test[{name}-{n}]", pytest.mark.some("alq", "topk")) for name in ("alq", "amq") for n in "12"]
    kinds.pytest_collection_modifyitems(cast(Any, items))
    assert _quick(items) == ["test[alq-1]", "test[alq-2]"]


def _quick(*items: list[_Item]) -> list[str]:
    return [item.name for some in items for item in some if not item.get_closest_marker("slow")]
