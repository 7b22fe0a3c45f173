"""Memory that is freed stays with the process, however large the block."""

from __future__ import annotations

import resource

import pytest
import torch

from train.process import memory

BLOCK_BYTES = 48 << 20  # more than what glibc keeps of its own accord


def pages_of_a_block() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(BLOCK_BYTES, dtype=torch.uint8).zero_()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_large_block_is_taken_from_the_system_once() -> None:
    if not memory.keep_freed_memory():
        pytest.skip("this C library takes no such advice")
    pages_of_a_block()
    assert pages_of_a_block() < BLOCK_BYTES / resource.getpagesize() / 10


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
