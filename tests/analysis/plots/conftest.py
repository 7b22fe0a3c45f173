"""The settings of matplotlib under which ``analysis.figures`` calls the functions that draw."""

from collections.abc import Iterator

import pytest
from matplotlib import rc_context

from analysis.plots import style


@pytest.fixture(autouse=True)
def our_settings() -> Iterator[None]:
    with rc_context(style.RC):
        yield
