"""One group of ranks for all tests of a session that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nuq.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Four processes; a test may use the first few alone."""
    group = Ranks(4)
    yield group
    group.stop()
