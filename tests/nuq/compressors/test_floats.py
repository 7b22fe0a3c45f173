"""Numbers of a message as float32: the same by every implementation, and damage where one is not finite."""

from __future__ import annotations

import pytest
import torch

from nuq import native
from nuq.compressors import floats
from nuq.errors import MessageError

EVERY = {
    2: torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.uint8),
    1: torch.arange(256, dtype=torch.uint8).repeat(9),
}


def numbers(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All finite ones (of float32: many), as bytes that begin at an odd place, and as PyTorch converts them."""
    if dtype == torch.float32:
        found = (
            torch.randn(5003, generator=torch.Generator().manual_seed(0))
            * 2.0 ** torch.arange(-125, 125).repeat(21)[:5003]
        )
    else:
        found = EVERY[dtype.itemsize].view(dtype)
        found = found[torch.isfinite(found.to(torch.float32))]
    data = torch.empty(found.numel() * dtype.itemsize + 1, dtype=torch.uint8)
    data[1:] = found.contiguous().view(torch.uint8)
    return data[1:], found.to(torch.float32)


@pytest.mark.parametrize("where", [*native.instruction_sets(), "PyTorch"])
@pytest.mark.parametrize("dtype", floats.FORMATS, ids=str)
def test_every_implementation_reads_what_pytorch_converts(dtype, where, monkeypatch):
    data, expected = numbers(dtype)
    factor = 2.0**-3 if dtype == torch.float16 else 1.0
    before = torch.randn(expected.numel(), generator=torch.Generator().manual_seed(1))

    def read(data: torch.Tensor, total: torch.Tensor, accumulate: bool) -> torch.Tensor:
        floats.read_(data, dtype, total, factor=factor, accumulate=accumulate)
        return total

    def check() -> None:
        assert torch.equal(read(data, torch.empty_like(expected), False), expected * factor)
        assert torch.equal(read(data, before.clone(), True), before + expected * factor)
        assert read(data[:0], torch.empty(0), False).shape == (0,)
        for bad in (float("inf"), float("nan")):
            damaged = torch.tensor([bad]).to(dtype).view(torch.uint8)
            if bool(torch.isfinite(damaged.view(dtype).to(torch.float32))):  # e4m3 has no infinity
                continue
            for place in (0, expected.numel() // 2, expected.numel() - 1):
                changed = data.clone()
                changed[place * dtype.itemsize : (place + 1) * dtype.itemsize] = damaged
                with pytest.raises(MessageError):
                    read(changed, torch.empty_like(expected), False)

    if where == "PyTorch":
        monkeypatch.setattr(native, "library", lambda: None)
        check()
    else:
        with native.using(where):
            check()
