"""Memory that is freed stays with the process, however large the block."""

from __future__ import annotations

import subprocess
import sys

import pytest

from train.process import memory

BLOCK_BYTES = 48 << 20  # more than what glibc keeps of its own accord
FAULTS_PER_BLOCK = f"""
import ctypes, resource
from train.process import memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
print(memory.keep_freed_memory())
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc({BLOCK_BYTES})
    ctypes.memset(block, 1, {BLOCK_BYTES})
    libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_large_block_is_taken_from_the_system_once() -> None:
    """In a process of its own: in this one other tests have asked for other things."""
    done = subprocess.run([sys.executable, "-c", FAULTS_PER_BLOCK], check=True, capture_output=True, text=True)
    understood, first, second = done.stdout.split()
    if understood != "True":
        pytest.skip("this C library takes no such advice")
    assert int(second) < int(first) / 10


def test_older_libraries_are_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def of_old(parameter: int, value: int) -> bool:
        asked.append((parameter, value))
        return value <= memory.LARGEST_BEFORE or parameter == memory.TRIM_THRESHOLD

    monkeypatch.setattr(memory, "_asked", of_old)
    assert memory.keep_freed_memory()
    assert (memory.MMAP_THRESHOLD, memory.LARGEST_BEFORE) in asked
    monkeypatch.setattr(memory, "_asked", lambda *_: False)
    assert not memory.keep_freed_memory()
