"""Planes of numbers of 16 bits: what they specify, the same in C++ and PyTorch, and all bits come back."""

from __future__ import annotations

import pytest
import torch

from nuq import native
from nuq.coding import planes

EVERY = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16)[torch.randperm(1 << 16, generator=torch.Generator())]


def test_exponents_are_told_from_the_largest_of_128() -> None:
    """1 is 0x3F80, -2.5 is 0xC020, and the last block has one number, 0.5."""
    numbers = torch.cat([torch.tensor([1.0, -2.5, 0.0, -0.0]), torch.ones(124), torch.tensor([0.5])]).bfloat16()
    (tops, gaps, rests), num_zeros = planes.split(numbers.view(torch.int16))
    assert tops.tolist() == [128, 126] and num_zeros == 2
    assert gaps.tolist() == [1, 0, 255, 255] + 124 * [1] + [0]
    assert rests.tolist() == [0, 0xA0, 0, 0x80] + 125 * [0]


@pytest.mark.parametrize("where", [*native.instruction_sets(), "PyTorch"])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 1 << 16])
def test_every_implementation_gives_all_bits_back(size: int, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = EVERY[:size].contiguous()
    bits = numbers.to(torch.int32) & 0xFFFF
    exponents = bits // 128 % 256
    blocks = [block.amax() for block in exponents.split(128)] if size else []

    def check() -> None:
        found, num_zeros = planes.split(numbers)
        assert found.tops.tolist() == blocks and num_zeros == int((exponents == 0).sum())
        assert torch.equal(found.rests.to(torch.int32), bits % 128 + bits // 2**15 * 128)
        assert torch.equal(planes.join(found), numbers)

    if where == "PyTorch":
        monkeypatch.setattr(native, "library", lambda: None)
        check()
    else:
        with native.using(where):
            check()


def test_a_gap_beyond_its_top_wraps_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged planes are numbers, which their reader checks."""
    damaged = planes.Planes(*(torch.tensor([byte], dtype=torch.uint8) for byte in (1, 2, 0x81)))
    expected = [-(1 << 15) + (255 << 7) + 1]
    assert planes.join(damaged).tolist() == expected
    monkeypatch.setattr(native, "library", lambda: None)
    assert planes.join(damaged).tolist() == expected
