"""Work on several cores by forked processes, so that the objects they work on are not copied."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from analysis.logs.reading import num_cores

T = TypeVar("T")
R = TypeVar("R")
_MOST = 8
_NUMBER = struct.Struct("<I")
_MOST_ITEMS = 65536 // _NUMBER.size  # a pipe holds so many numbers at once


def each(function: Callable[[T], R], items: Sequence[T], processes: int | None = None) -> list[R]:
    """The list ``list(map(function, items))``, computed in so many processes (by default one for each core).

    This process computes it where there are few or very many items or no fork. An error of the function is raised here;
    what a process that died left undone is done here.
    """
    count = min(processes or min(_MOST, num_cores()), len(items))
    if count < 2 or not 4 <= len(items) <= _MOST_ITEMS or "fork" not in multiprocessing.get_all_start_methods():
        return [function(item) for item in items]
    context = multiprocessing.get_context("fork")
    numbers, write_end = os.pipe()  # every process takes its next item from it: no locks that a dead one could hold
    os.write(write_end, b"".join(map(_NUMBER.pack, range(len(items)))))
    os.close(write_end)
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    helpers = [
        context.Process(target=_work, args=(function, items, numbers, sender), daemon=True) for _, sender in ends
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it warns of forking beside the idle threads of numpy
            for helper in helpers:
                helper.start()
        for _, sender in ends:
            sender.close()  # so that the end of a process is the end of its pipe
        found = _gathered([receiver for receiver, _ in ends])
    finally:
        os.close(numbers)
        for helper in helpers:
            if helper.pid is not None:
                helper.kill()  # not SIGTERM, for which the caller may have a handler
                helper.join()
    return [found[index] if index in found else function(item) for index, item in enumerate(items)]


def _gathered(receivers: list[Connection]) -> dict[int, Any]:
    """The results by number, as they come, until every process has ended; the first error is raised."""
    found: dict[int, Any] = {}
    while receivers:
        for receiver in wait(receivers):
            assert isinstance(receiver, Connection)
            try:
                index, result, error = receiver.recv()
            except EOFError:
                receivers.remove(receiver)
                continue
            if error is not None:
                raise error
            found[index] = result
    return found


def _work(function: Callable[[Any], Any], items: Sequence[Any], numbers: int, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    while data := os.read(numbers, _NUMBER.size):
        (index,) = _NUMBER.unpack(data)
        try:
            sender.send((index, function(items[index]), None))
        except Exception as error:  # noqa: BLE001  whatever it is, the caller has to know
            sender.send((index, None, error))
            return
