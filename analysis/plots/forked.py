"""Work on several cores by forked processes, so that the objects they work on are not copied."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST = 8
_MOST_ITEMS = 1 << 14  # more are so small that handing them out would take longer
_work: tuple[Callable[[Any], Any], Sequence[Any]]  # of a forked process: it inherits them, and answers by number


def each(function: Callable[[T], R], items: Sequence[T], processes: int | None = None) -> list[R]:
    """The list ``list(map(function, items))``, computed in so many processes (by default one for each core).

    This process computes it where there are few or very many items or no fork. An error of the function is raised here;
    what a process that died left undone is done here.
    """
    count = min(processes or min(_MOST, cores()), len(items))
    if count < 2 or not 4 <= len(items) <= _MOST_ITEMS or "fork" not in multiprocessing.get_all_start_methods():
        return [function(item) for item in items]
    context = multiprocessing.get_context("fork")
    futures: list[Future[R]] = []
    with ProcessPoolExecutor(count, context, initializer=_begin, initargs=(function, items)) as pool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the idle threads of numpy
                futures += (pool.submit(_answer, number) for number in range(len(items)))
            for future in futures:
                future.result()
        except BrokenProcessPool:
            pass
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    sound = {number for number, future in enumerate(futures) if not (future.cancelled() or future.exception())}
    return [futures[number].result() if number in sound else function(item) for number, item in enumerate(items)]


def _begin(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _work
    _work = function, items
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # for which the caller may have a handler


def _answer(number: int) -> Any:
    function, items = _work
    return function(items[number])


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
