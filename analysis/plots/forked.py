"""Work on several cores, by processes that are forked, so that what they work on is not copied."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST = 8
_shared: list[tuple[Callable[[Any], Any], Sequence[Any]]] = []  # set before the processes begin


def each(function: Callable[[T], R], items: Sequence[T], processes: int | None = None) -> Iterator[R]:
    """``map``, in so many processes (by default one for each core); in this one where there are few items or no fork."""
    count = min(processes or min(_MOST, _cores()), len(items))
    if count < 2 or len(items) < 4 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(function, items)
        return
    _shared[:] = [(function, items)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the idle threads of numpy
            pool = multiprocessing.get_context("fork").Pool(count)
        with pool:
            yield from pool.imap(_one, range(len(items)))
    finally:
        _shared.clear()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one(index: int) -> Any:
    function, items = _shared[0]
    return function(items[index])
