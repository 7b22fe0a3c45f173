"""What `make test` leaves to `make test-all`, beside tests that are slow: variants of a claim that others speak for.

Where a test takes many steps or draws, it runs one method of a kind; of a test marked ``some``, a few of its variants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

# another method has the same code, with other levels, another table or another rule of selection
SPOKEN_FOR = frozenset(
    (
        *("qsgd", "nuqsgd", "trn", "natural"),  # by qsgdinf
        *("alq_n", "alq_g", "alq_gn", "amq", "amq_n", "optimal"),  # by alq
        *("drive", "onebit", "fp8", "fp16", "s2fp8"),  # by eden, sign, block8, bf16 and smaq
        *("randomk", "thresholdv", "adaptive_threshold", "nonzero"),  # by topk
    )
)


def one_of_a_kind(names: Iterable[str]) -> list[Any]:
    """Parameters of a test from names that begin with a method's: slow where another speaks for that one."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name.split()[0] in SPOKEN_FOR)) for name in names]


@pytest.hookimpl(tryfirst=True)  # before pytest looks for those that are slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make variants of tests marked ``some`` slow.

    ``some(n)`` keeps n of them, from the first to the last at even distances (which vary each of several stacked
    parameters); ``some("alq", "topk")`` those of which one parameter is so.
    """
    variants = defaultdict[Any, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("some") and not item.get_closest_marker("slow"):
            variants[item.nodeid.partition("[")[0]].append(item)
    for of_one in variants.values():
        mark = of_one[0].get_closest_marker("some")
        assert mark is not None
        if isinstance(mark.args[0], str):
            kept = {
                at
                for at, item in enumerate(of_one)
                if set(mark.args) & set(item.name.partition("[")[2][:-1].split("-"))
            }
        else:
            (count,) = mark.args
            kept = {round(at * (len(of_one) - 1) / max(count - 1, 1)) for at in range(count)}
        for at, item in enumerate(of_one):
            if at not in kept:
                item.add_marker(pytest.mark.slow)
