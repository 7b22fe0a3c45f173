"""What a test of `make test` may take: on CI, one that takes more and is not marked slow has failed.

It is the call that counts, without what fixtures share.  A processor's time does not depend on what else the machine
does; the time that passes is bounded loosely, for tests that wait.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Generator

import pytest

MOST_CPU_S = 5.0  # of this process and those that it has waited for
MOST_S = 30.0
LOOP_S = 0.0135  # of the loop of `slowness`, on the machine whose seconds these are


@functools.cache
def slowness() -> float:
    """How many times as long this machine takes for a loop, at least 1: its limits are as many times higher."""

    def seconds() -> float:
        began = time.process_time()
        total = 0
        for i in range(300_000):
            total += i * i % 7
        return time.process_time() - began

    return max(1.0, min(seconds() for _ in range(5)) / LOOP_S)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    cpu_s, began = sum(os.times()[:4]), time.monotonic()
    result = yield
    cpu_s, passed_s = sum(os.times()[:4]) - cpu_s, time.monotonic() - began
    over = cpu_s > MOST_CPU_S * slowness() or passed_s > MOST_S * slowness()
    if os.environ.get("CI") and not item.get_closest_marker("slow") and over:
        pytest.fail(
            f"took {cpu_s:.1f} s of a processor and {passed_s:.1f} s in all: above {MOST_CPU_S:g} and {MOST_S:g} it "
            "must be made quicker or marked slow (`make test-all` runs it)"
        )
    return result
