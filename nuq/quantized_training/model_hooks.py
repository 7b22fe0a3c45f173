"""Hooks on modules of this process and this model, without which pickled and deep copies go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hook:
    """A hook that a module calls; a function defined on the spot cannot be pickled, and takes an optimizer along."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __reduce__(self) -> Any:
        return _without, ()


def _without() -> Callable[..., None]:
    return nothing


def nothing(*args: Any) -> None:
    """The hook of a copy of a model to which hooks were attached: it does nothing."""
    del args
