"""Blocks of base and deltas: the same bytes in C++ and in PyTorch, and what they specify."""

from __future__ import annotations

import pytest
import torch

from nuq import native as cpu
from nuq.coding import base_delta, base_delta_reference
from nuq.compressors.nnw_bdi import NNWBDI
from nuq.kernels.spec import Key
from nuq.settings.formats import NNWBDI as Settings

KEY = Key(1, 2, 3, "x", workers=5)
WORDS = KEY.words()
LARGEST = torch.finfo(torch.float32).max


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def close() -> torch.Tensor:
    """Blocks of every kind and width: words near a base of the block's own, some of them near zero."""
    base = torch.where(
        normal(64 * 300, 1).view(-1, 64) > torch.linspace(-3, 3, 300)[:, None], normal(300, 2)[:, None], 0.0
    )
    return (base + normal(64 * 300, 3).view(-1, 64) * 2.0 ** -torch.linspace(0, 12, 300)[:, None]).reshape(-1)


INPUTS = {
    "normal": normal(9_001),
    "relu": normal(5_001).relu(),
    "few": normal(3),
    "close to a base": close(),
    "close to a base, in another order": close().view(-1, 64).flip(1).reshape(-1),
    "two far apart": torch.where(normal(640) > 0, 127.0, -127.0) + normal(640),
    "huge": torch.cat([normal(900) * 6e37, torch.tensor([LARGEST, -LARGEST])]),
    "tiny": normal(900) * 1e-41,
    "zeros": torch.cat([torch.zeros(5000), torch.ones(1)]),
}


def coded(bits: int, rounding: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    compressor = NNWBDI(Settings(bits=bits, rounding=rounding))
    message = compressor.encode(x, KEY)
    assert message.num_bytes <= compressor.message_bytes(x.numel())
    total, decoded = torch.ones(x.numel()), compressor.decode(message)
    compressor.add(message, total)
    assert torch.equal(total, 1 + decoded)
    return message.body, decoded


@pytest.mark.skipif(not cpu.instruction_sets(), reason="the C++ kernels are not built")
@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "correlated"])
@pytest.mark.parametrize("bits", [3, 5, 8])
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_all_implementations_give_the_same_bytes(x, bits, rounding, monkeypatch):
    found = []
    for name in cpu.instruction_sets():
        with cpu.using(name):
            found.append(coded(bits, rounding, x))
    monkeypatch.setattr(base_delta, "in_cpp", lambda vector: False)
    body, decoded = coded(bits, rounding, x)
    for other in found:
        assert torch.equal(other[0], body) and torch.equal(other[1], decoded)


@pytest.mark.skipif(not cpu.instruction_sets(), reason="the C++ kernels are not built")
def test_threads_and_portions_change_no_bit(monkeypatch):
    x, before, found = normal(200_003), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(coded(8, "stochastic", x))
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(base_delta_reference, "_PORTION", 1000)
    monkeypatch.setattr(base_delta, "in_cpp", lambda vector: False)
    found.append(coded(8, "stochastic", x))
    for body, decoded in found[1:]:
        assert torch.equal(body, found[0][0]) and torch.equal(decoded, found[0][1])


@pytest.mark.parametrize("bits", [3, 5, 8])
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_words_are_rounded_in_units_of_their_blocks_own(x, bits):
    _, decoded = coded(bits, "nearest", x)
    most = 2 ** (bits - 1) - 1
    rows, found = (torch.nn.functional.pad(part, (0, -len(x) % 64)).view(-1, 64).double() for part in (x, decoded))
    unit = torch.exp2(torch.ceil(torch.log2(rows.abs().amax(1) / most).clamp_min(-110 - bits + 1)))[:, None].clamp_max(
        2.0 ** (129 - bits)
    )
    assert torch.equal(found, (rows / unit).round().clamp(-most, most) * unit)
    assert bool(torch.isfinite(decoded).all())


def test_all_kinds_and_widths_occur():
    kinds, _, data = base_delta.encode(close(), 8, None)
    assert {int(kind) & 0xF0 for kind in kinds} == {0, 16, 32}
    assert {int(kind) & 0x0F for kind in kinds} == set(range(9))
    assert data.numel() == sum(8 * (kind & 15) + (0, 1, 9)[kind >> 4] for kind in kinds.tolist())


def test_a_width_is_no_larger_than_it_needs_to_be():
    rows = torch.zeros(4, 64)
    rows[:, 0] = 64.0  # e is 7 in every block, a word is the number itself
    rows[1, 1:] = 63.0  # deltas of -1 from the first word
    rows[2, 32:] = 65.0  # zeros, and deltas of 1 from 64
    rows[3] = (torch.arange(64) + 1.0) * torch.tensor([-1.0, 1.0]).repeat(32)  # no base is better than zero
    kinds, exponents, _ = base_delta.encode(rows.view(-1), 8, None)
    assert kinds.tolist() == [32, 16 + 1, 32 + 2, 8]
    assert exponents.tolist() == [127 + 7] * 4


@pytest.mark.parametrize("native", [True, False])
def test_damaged_kinds_and_exponents_are_found(native, monkeypatch):
    if not native:
        monkeypatch.setattr(base_delta, "in_cpp", lambda vector: False)
    x = normal(200)
    kinds, exponents, data = base_delta.encode(x, 5, None)
    for place, part, value in ((3, kinds, 48), (0, kinds, 6), (1, exponents, 16), (2, kinds, 0)):
        damaged = part.clone()
        damaged[place] = value
        total = torch.ones(200)
        given = (damaged, exponents) if part is kinds else (kinds, damaged)
        assert not base_delta.decode(*given, data, 5, total, accumulate=True)
        assert torch.equal(total, torch.ones(200))
