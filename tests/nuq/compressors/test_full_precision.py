"""Full precision: messages are read from memory of any alignment."""

import torch

from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.message import parse
from nuq.kernels.spec import Key


def test_messages_are_added_from_aligned_and_other_memory() -> None:
    compressor, vector = FullPrecision(), torch.randn(9, generator=torch.Generator().manual_seed(0))
    whole = compressor.encode(vector, Key(1, 0, 0)).to_bytes()
    moved = torch.cat([torch.zeros(1, dtype=torch.uint8), whole])[1:]
    for payload in (whole, moved):
        message, total = parse(payload), torch.ones(9)
        compressor.add(message, total)
        assert torch.equal(total, vector + 1) and torch.equal(compressor.decode(message), vector)
