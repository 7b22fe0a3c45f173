"""Index coding of a GPU's indices has the bytes of the CPU's; without a GPU the operators run on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nuq.coding import entropy, entropy_device, index_coding, index_coding_device
from nuq.coding.index_forms import FORMS
from nuq.errors import MessageError
from nuq.kernels.cuda.launch import device_code

NEAR = "cuda" if torch.cuda.is_available() else "cpu"
DEVICE: Any = device_code() if NEAR == "cuda" else None  # None: the coder of classes below does without


@pytest.fixture(autouse=True)
def classes_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of gaps coded by the host, where there is no GPU."""
    if NEAR == "cuda":
        return

    def encode(device: None, codes: Tensor, num_symbols: int, contexts: Tensor, count: int) -> Tensor:
        return torch.from_numpy(entropy.encode(codes.numpy(), num_symbols, "rans", contexts.numpy(), count))

    def decode(device: None, data: Tensor, n: int, num_symbols: int, contexts: Tensor, count: int) -> Tensor:
        return torch.from_numpy(entropy.decode(data.numpy(), n, num_symbols, "rans", contexts.numpy(), count))

    monkeypatch.setattr(entropy_device, "encode", encode)
    monkeypatch.setattr(entropy_device, "decode", decode)


def _at_random(n: int, share: float) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(n).random(n) < share)


def _in_layers(n: int) -> np.ndarray:
    share = np.repeat([0.5, 0.001, 0.03, 0.0001], n // 4)
    return np.flatnonzero(np.random.default_rng(n).random(len(share)) < share)


CASES: dict[str, tuple[int, Callable[[int], np.ndarray]]] = {
    "one": (1000, lambda n: np.array([7])),
    "the last": (1 << 31, lambda n: np.array([n - 1])),
    "few": (100_000, lambda n: _at_random(n, 0.0003)),
    "a block and one": (51_300, lambda n: np.arange(513) * 100),
    "a hundredth": (200_000, lambda n: _at_random(n, 0.01)),
    "a tenth": (200_003, lambda n: _at_random(n, 0.1)),
    "half": (50_001, lambda n: _at_random(n, 0.5)),
    "nearly all": (60_000, lambda n: _at_random(n, 0.99)),
    "layers": (400_000, _in_layers),
    "runs": (300_000, lambda n: (np.arange(0, n, 300)[:, None] + np.arange(20)).reshape(-1)),
    "all but one": (5000, lambda n: np.delete(np.arange(n), 77)),
}


def test_the_cases_have_every_form() -> None:
    found = {int(_expected(name, form)[0][0]) for name in CASES for form in FORMS[:3]}
    assert found == set(range(5))


def _expected(name: str, form: str) -> tuple[Tensor, Tensor, int]:
    n, draw = CASES[name]
    indices = torch.from_numpy(draw(n).astype(np.int32))
    if form == "bitmap" and n > 1 << 20:
        form = "auto"
    return index_coding.encode(indices, n, form), indices, n


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_the_cpus(name: str, form: str) -> None:
    expected, indices, n = _expected(name, form)
    if not (form == "bitmap" and n > 1 << 20):
        assert torch.equal(index_coding_device.encode(DEVICE, indices.to(NEAR), n, form).cpu(), expected)
    back = index_coding_device.decode(DEVICE, expected.to(NEAR), len(indices), n)
    assert back is not None and back.dtype == torch.int32 and torch.equal(back.cpu(), indices)


@pytest.mark.parametrize("name", ["few", "a hundredth", "half", "nearly all", "layers"])
def test_damage_that_the_cpu_finds_is_found(name: str) -> None:
    data, indices, n = _expected(name, "auto")
    rng = np.random.default_rng(5)
    tried = [data[:size] for size in (1, 2, 30, len(data) - 1)] + [torch.cat([data, data[:1]])]
    for _ in range(40):
        damaged = data.clone()
        damaged[rng.integers(0, min(40, len(data)))] ^= 1 << int(rng.integers(0, 8))
        tried.append(damaged)
    for one in tried:
        try:
            expected = index_coding.decode(one, len(indices), n)
        except MessageError:
            expected = None
        try:
            found = index_coding_device.decode(DEVICE, one.to(NEAR), len(indices), n)
        except MessageError:
            found = None
        assert (found is None) == (expected is None)
        assert found is None or expected is None or torch.equal(found.cpu(), expected)


def test_few_indices_are_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, there = object(), SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(index_coding, "device_code", lambda: chosen)
    data: Any = there
    assert index_coding._coding_device(data, 1 << 17, 1 << 20) is chosen
    assert index_coding._coding_device(data, (1 << 17) - 1, 1 << 20) is None
    assert index_coding._coding_device(data, 1 << 17, 1 << 30) is None
    assert index_coding._coding_device(torch.empty(0), 1 << 17, 1 << 20) is None
