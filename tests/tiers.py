"""Two tiers: `make test` is what one runs before each commit, `make test-all` everything; the mark ``slow`` parts them.

A test is slow where it takes more than 3 s on a quiet machine, or repeats in large what others show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(kept: int | tuple[str, ...], names: str | Sequence[str], values: Iterable[Any], **more: Any) -> Any:
    """``pytest.mark.parametrize``, of whose values all but a few are slow.

    kept: how many are not, from the first to the last at even distances; or which, by what they are called.
    """
    single = isinstance(names, str) and "," not in names
    params = [
        value if isinstance(value, type(pytest.param())) else pytest.param(value) if single else pytest.param(*value)
        for value in values
    ]
    if isinstance(kept, int):
        places = {round(at * (len(params) - 1) / max(kept - 1, 1)) for at in range(kept)}
    else:
        called = more.get("ids") or [param.id or str(param.values[0]) for param in params]
        places = {at for at, name in enumerate(called) if name in kept}
        assert len(places) == len(kept), f"{kept} are not all among {list(called)}"
    marked = [
        param if at in places else pytest.param(*param.values, marks=[*param.marks, pytest.mark.slow], id=param.id)
        for at, param in enumerate(params)
    ]
    return pytest.mark.parametrize(names, marked, **more)
