"""Index coding on a GPU has the bytes of the CPU: in Triton's interpreter and, where there is one, on a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
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
from tests.nuq.without_gpu import check_machine_code, interpreted, recorded


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
    "runs": (60_000, lambda n: (np.arange(0, n, 300)[:, None] + np.arange(20)).reshape(-1)),
    "half": (20_001, lambda n: _at_random(n, 0.5)),
    "nearly all": (60_000, lambda n: _at_random(n, 0.99)),
    "layers": (100_000, _in_layers),
    "a tenth": (50_003, lambda n: _at_random(n, 0.1)),
    "all but one": (5000, lambda n: np.delete(np.arange(n), 77)),
}
DAMAGED = ("few", "a hundredth", "half", "nearly all", "layers")


def _expected(name: str, form: str) -> tuple[Tensor, Tensor, int]:
    n, draw = CASES[name]
    indices = torch.from_numpy(draw(n).astype(np.int32))
    if form == "bitmap" and n > 1 << 20:
        form = "auto"
    return index_coding.encode(indices, n, form), indices, n


def difference(name: str, form: str, near: str) -> str:
    """The first thing that differs from the CPU, or nothing."""
    device = device_code()
    assert device is not None
    expected, indices, n = _expected(name, form)
    as_asked = form != "bitmap" or n <= 1 << 20
    if as_asked and not torch.equal(index_coding_device.encode(device, indices.to(near), n, form).cpu(), expected):
        return "other bytes"
    odd = torch.cat([expected[:1], expected]).to(near)[1:]  # begins at an odd address
    back = index_coding_device.decode(device, odd, len(indices), n)
    if back is None or back.dtype != torch.int32 or not torch.equal(back.cpu(), indices):
        return "other indices"
    return ""


def undetected(name: str, near: str) -> str:
    """The first of 45 damaged encodings in which the CPU finds damage, or indices, that the device does not."""
    device = device_code()
    assert device is not None
    data, indices, n = _expected(name, "auto")
    rng = np.random.default_rng(5)
    tried = [data[:size] for size in (1, 2, 30, len(data) - 1)] + [torch.cat([data, data[:1]])]
    for _ in range(40):
        damaged = data.clone()
        damaged[rng.integers(0, min(40, len(data)))] ^= 1 << int(rng.integers(0, 8))
        tried.append(damaged)
    for number, one in enumerate(tried):
        try:
            expected = index_coding.decode(one, len(indices), n)
        except MessageError:
            expected = None
        try:
            found = index_coding_device.decode(device, one.to(near), len(indices), n)
        except MessageError:
            found = None
        if (found is None) != (expected is None):
            return f"damage {number}: the device {'finds it' if found is None else 'does not find it'}"
        if found is not None and expected is not None and not torch.equal(found.cpu(), expected):
            return f"damage {number}: other indices"
    return ""


def differences(near: str, every: int) -> dict[str, str]:
    """A table from every case that went wrong to what it did: one case of ``every``."""
    found = {f"{name}, {form}": difference(name, form, near) for name in list(CASES)[::every] for form in FORMS}
    found |= {f"{name}, damaged": undetected(name, near) for name in DAMAGED[::every]}
    return {name: what for name, what in found.items() if what}


def test_the_cases_have_every_form() -> None:
    found = {int(_expected(name, form)[0][0]) for name in CASES for form in FORMS[:3]}
    assert found == set(range(5))


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])  # of one in five all forms, too
def test_interpreter_equals_the_cpu(every: int) -> None:
    assert interpreted(__file__, every) == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_equals_the_cpu() -> None:
    assert differences("cuda", 1) == {}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_machine_code(architecture: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every kernel compiles, keeps its numbers in registers, and is launched once."""
    device = device_code()
    recorders = recorded(monkeypatch, tmp_path)
    monkeypatch.setattr(torch, "empty", torch.zeros)  # counts that nobody writes
    kernels = index_coding_device.IndexKernels(device, 512, 3, 16)  # type: ignore[arg-type]
    indices, classes = torch.arange(5000, dtype=torch.int32), torch.zeros(5000, dtype=torch.uint8)
    rice = kernels.rice(indices)
    kernels.classes(indices, rice.parameters, 0)
    low = kernels.write_low(indices, rice.low_bits, 100)
    kernels.write_rice(indices, rice, 100, 100)
    kernels.read(classes, None, kernels.low_bits_of(classes), low, 6000)
    kernels.read(indices, rice.parameters, rice.low_bits, low, 6000)
    kernels.find_bits(kernels.set_bits(indices, 6000), 0)
    launched = {recorder.kernel.__name__: len(recorder.launches) for recorder in recorders if recorder.launches}
    once = dict.fromkeys(["rice", "classes", "low_bits", "set", "count", "find"], 1)
    assert launched == {f"{name}_kernel": count for name, count in {**once, "write": 2, "read": 2}.items()}
    check_machine_code(recorders, architecture)


def test_few_indices_are_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, there = object(), SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(index_coding, "device_code", lambda: chosen)
    data: Any = there
    assert index_coding._coding_device(data, 1 << 17, 1 << 20) is chosen
    assert index_coding._coding_device(data, (1 << 17) - 1, 1 << 20) is None
    assert index_coding._coding_device(data, 1 << 17, 1 << 30) is None
    assert index_coding._coding_device(torch.empty(0), 1 << 17, 1 << 20) is None


def _classes_by_the_host() -> None:
    """Have the host code the classes of gaps, as interpreted kernels take long for so many."""

    def encode(device: object, codes: Tensor, num_symbols: int, contexts: Tensor, count: int) -> Tensor:
        return torch.from_numpy(entropy.encode(codes.numpy(), num_symbols, "rans", contexts.numpy(), count))

    def decode(device: object, data: Tensor, n: int, num_symbols: int, contexts: Tensor, count: int) -> Tensor:
        return torch.from_numpy(entropy.decode(data.numpy(), n, num_symbols, "rans", contexts.numpy(), count))

    entropy_device.encode, entropy_device.decode = encode, decode  # type: ignore[assignment]


if __name__ == "__main__":
    _classes_by_the_host()
    print(json.dumps(differences("cpu", int(sys.argv[1]))))
