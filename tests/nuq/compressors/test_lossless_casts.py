"""Casts with ``coding=rans``: the very numbers of ``coding=packed``, in never more bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch

from nuq.compressors.casts import HalfCast, bf16, fp16
from nuq.compressors.message import HEADER_BYTES, Message
from nuq.errors import MessageError
from nuq.exchange.collective_factory import build
from nuq.exchange.collectives.collective import ExchangeStats, WorkerPlacement
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.settings.baselines import BF16, FP16
from nuq.settings.exchange import Exchange
from tests.nuq.parts import tiled

KEY = Key(1, 2, 3, "x")


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


INPUTS = {
    "normal": normal(20_001),
    "layers of all sizes": normal(12_800).view(100, 128).mul(2.0 ** torch.arange(-120, 80, 2)[:, None]).view(-1),
    "mostly zeros": normal(20_000) * (normal(20_000, 1) > 1.5),
    "zeros of both signs": torch.zeros(5_000).copysign(normal(5_000)),
    "denormal": normal(3_000) * 1e-40,
    "largest": torch.full((300,), torch.finfo(torch.float32).max) * normal(300).sign(),
    "few": normal(3),
}


def cast(method: str, coding: str, **given: Any) -> HalfCast:
    return bf16(BF16(coding=coding, **given)) if method.startswith("bf16") else fp16(FP16(coding=coding, **given))


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "correlated"])
@pytest.mark.parametrize("method", ["bf16", "fp16"])
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_the_numbers_are_those_of_packed_messages(x: torch.Tensor, method: str, rounding: str) -> None:
    packed, coded = (cast(method, coding, rounding=rounding) for coding in ("packed", "rans"))
    expected, message = packed.encode(x, KEY), coded.encode(x, KEY)
    assert message.num_bytes <= expected.num_bytes == coded.message_bytes(x.numel())
    for receiver in (packed, coded):
        decoded = receiver.decode(message)
        assert torch.equal(decoded.view(torch.int32), packed.decode(expected).view(torch.int32))  # zeros' signs, too
        total = torch.ones(x.numel())
        receiver.add(message, total)
        assert torch.equal(total, 1 + decoded)


def entropy_bits(values: torch.Tensor) -> float:
    shares = np.unique(values.numpy(), return_counts=True)[1] / values.numel()
    return float(-(shares * np.log2(shares)).sum())


def test_exponents_take_their_entropy() -> None:
    """Beside 8 bits of sign and mantissa; layers of other sizes cost no more than one byte for 128 coordinates."""
    x = normal(1 << 17)
    bound = 8 + entropy_bits(torch.frexp(x.bfloat16().float()).exponent)
    rate = 8 * bf16(BF16(coding="rans")).encode(x, KEY).num_bytes / x.numel()
    assert bound - 0.05 < rate < bound + 0.25 < 11
    sizes = 2.0 ** (10 * normal(1 << 10, 1)).round().clamp(-60, 60)
    spread = (x.view(-1, 128) * sizes[:, None]).view(-1)
    assert 8 * bf16(BF16(coding="rans")).encode(spread, KEY).num_bytes / x.numel() < rate + 8 / 128


def test_zeros_take_next_to_nothing() -> None:
    """One in a hundred is not zero: .08 bits where, and .16 what."""
    zeros, x = torch.zeros(100_000), torch.zeros(100_000)
    x[::100] = normal(1000)
    coder = bf16(BF16(coding="rans"))
    assert coder.encode(zeros, KEY).num_bytes < HEADER_BYTES + 4 + 8 + 3 * 3 + 1
    assert 8 * coder.encode(x, KEY).num_bytes / x.numel() < 0.4


def test_what_takes_all_bits_travels_packed() -> None:
    bits = torch.randint(-(1 << 15), 1 << 15, (5_000,), generator=torch.Generator().manual_seed(0), dtype=torch.int16)
    x = bits.view(torch.bfloat16).float()
    x = torch.where(x.isfinite(), x, 0)
    messages = [bf16(BF16(coding=coding)).encode(x, KEY).to_bytes() for coding in ("packed", "rans")]
    assert torch.equal(*messages)


@pytest.mark.parametrize(
    ("place", "bad"),
    [(0, b"\6"), (0, b"\10"), (4, struct.pack("<I", 1 << 31)), (4, struct.pack("<II", 0, 0))],  # float8 has no planes
)
def test_damaged_planes_are_told(place: int, bad: bytes) -> None:
    message = bf16(BF16(coding="rans")).encode(normal(1000), KEY)
    body = message.body.clone()
    body[place : place + len(bad)] = torch.frombuffer(bytearray(bad), dtype=torch.uint8)
    with pytest.raises(MessageError):
        bf16(BF16()).decode(Message(message.tag, 1000, body))


@pytest.mark.parametrize("collective", ["gather", "two_stage", "server"])
def test_every_mean_is_that_of_packed_messages(collective: str) -> None:
    """Of three workers, in fewer bytes."""
    sizes, found = {"a": 2000, "b": 129, "c": 1}, []
    for coding in ("packed", "rans"):
        stats, mean = ExchangeStats(), torch.empty(sum(sizes.values()))
        compressors = CompressorMap("bf16", BF16(coding=coding, rounding="correlated"), 4)
        _, by = build(compressors, Exchange(collective=collective), Transport(None), WorkerPlacement.of(3, 1), stats)
        by.mean({worker: normal(mean.numel(), worker) for worker in range(3)}, tiled(sizes), KEY, mean)
        found.append(mean)
    assert torch.equal(*found)
