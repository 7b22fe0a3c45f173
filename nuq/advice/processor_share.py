"""The share of a processor that threads which only compute get on this machine."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

_WINDOWS, _WINDOW_S = 3, 0.15
_FREE = 0.95  # a share from which on no further window is needed
_WORK_BYTES = 1 << 23  # hashed in some milliseconds, without Python's lock


def processor_share(num_threads: int) -> float:
    """The least share, from 0 to 1, of a processor that one of so many threads gets, all busy at the same time.

    It is processor time over time, in the best of three windows of 0.15 s: what else runs for a moment does not count,
    and what takes turns with the threads all along does, as does the limit of a container.
    """
    best, work = 0.0, bytes(_WORK_BYTES)
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(_WINDOWS):
            begun = time.perf_counter()
            found = [pool.submit(_share, work, begun) for _ in range(num_threads)]
            best = max(best, min(one.result() for one in found))
            if best >= _FREE:
                break
    return min(best, 1.0)


def _share(work: bytes, begun: float) -> float:
    """The share of a processor that this thread gets from ``begun`` to the end of the window, hashing."""
    used = time.thread_time()
    while time.perf_counter() < begun + _WINDOW_S:
        hashlib.sha256(work).digest()
    return (time.thread_time() - used) / (time.perf_counter() - begun)
