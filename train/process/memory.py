"""The memory that a pass frees: it stays with the process, or goes back to the system.

It stays for the next pass, or goes back at once where the peak is what counts.  glibc hands large blocks back to the
system as they are freed, and they come back in the next pass, page by page and zeroed: up to 15 % of a step's time
where minibatches are small (ResNet-8 on CPU, 16 images; nothing clear at 128).  No bit of a result depends on it.
"""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's parameters
KEPT_BYTES = 1 << 30  # free at the top of the heap before any goes back
LARGEST_BYTES = 1 << 30  # blocks below come from the heap
LARGEST_BEFORE = 1 << 25  # the most that older versions of glibc take
SMALLEST_BYTES = 1 << 16  # the smallest block that goes back by itself: packed activations leave holes in a heap


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory; returns whether it understood (glibc does, others may not)."""
    largest = any(_asked(MMAP_THRESHOLD, size) for size in (LARGEST_BYTES, LARGEST_BEFORE))
    return _asked(TRIM_THRESHOLD, KEPT_BYTES) and largest


def return_freed_memory() -> bool:
    """Ask the C library to return freed memory to the system, so that packed activations lower the process's peak."""
    return _asked(MMAP_THRESHOLD, SMALLEST_BYTES)


def _asked(parameter: int, value: int) -> bool:
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mallopt(parameter, value))
    return False
