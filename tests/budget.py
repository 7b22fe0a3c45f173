"""What a test of `make test` may take: on CI, one that takes more and is not marked slow has failed.

It is the call that counts, without what fixtures share.  A processor's time does not depend on what else the machine
does; the time that passes is bounded loosely, for tests that wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator

import pytest

MOST_CPU_S = 5.0  # of this process and those that it has waited for
MOST_S = 30.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    cpu_s, began = sum(os.times()[:4]), time.monotonic()
    result = yield
    cpu_s, passed_s = sum(os.times()[:4]) - cpu_s, time.monotonic() - began
    if os.environ.get("CI") and not item.get_closest_marker("slow") and (cpu_s > MOST_CPU_S or passed_s > MOST_S):
        pytest.fail(
            f"took {cpu_s:.1f} s of a processor and {passed_s:.1f} s in all: above {MOST_CPU_S:g} and {MOST_S:g} it "
            "must be made quicker or marked slow (`make test-all` runs it)"
        )
    return result
