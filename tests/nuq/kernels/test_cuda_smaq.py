"""SmaQ's Triton kernels: the reference's bits in Triton's interpreter and, where there is one, on a GPU; and what they
compile to.

In the interpreter, all memory that they read or write ends where the process may go no further.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nuq.compressors.message import Message
from nuq.compressors.smaq import SmaQ
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import smaq, smaq_reference
from nuq.kernels.cuda import launch, smaq_operators
from nuq.kernels.spec import ALONE, Among, Key
from nuq.settings.formats import SmaQ as Settings
from tests.nuq.without_gpu import check_machine_code, interpreted, recorded

KEY = Key(1, 2, 3, "x")
COMPRESSOR = SmaQ(Settings())


@dataclass(frozen=True)
class Case:
    """One vector, encoded and decoded; measured too where the interpreter's time allows."""

    kind: str
    n: int = 4500
    dtype: str = "float32"
    bits_inlier: int = 6
    bits_outlier: int = 8
    inlier_threshold: float = 1.0
    outlier_limit: float = 2.5
    stochastic: bool = True
    among: Among = ALONE
    measured: bool = False

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default)


def normal(n: int) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(n))


KINDS: dict[str, Callable[[int], Tensor]] = {
    "normal": normal,
    "relu": lambda n: normal(n).relu(),
    "a tail": lambda n: normal(n) ** 3 * 3 + 7,
    # Sums round at every step, so no other order gives them.
    "wide": lambda n: normal(n) * (normal(n + 1)[1:] * 4).exp(),
    "few zeros": lambda n: torch.where(torch.arange(n) % 1000 == 5, 0.0, normal(n).abs()),
    "mostly zeros": lambda n: torch.where(torch.arange(n) % 1000 == 5, normal(n), -0.0),
    "huge": lambda n: normal(n) * 6e37,
    "tiny": lambda n: normal(n).relu() * 1e-41,
    "a number and zeros": lambda n: (normal(n) > 0) * 3.0,
    "nearly constant": lambda n: 1 + normal(n) * 1e-6,
    # Exact in units of one: on thresholds, half-way between codes, and -0, which is negative.
    "steps": lambda n: -(2.5 - torch.arange(n) % 81 / 16),
    "signed zeros": lambda n: torch.where(torch.arange(n) % 12 == 0, normal(n), -0.0),
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"stochastic": False},
    {"bits_inlier": 3, "inlier_threshold": 0.7},
    {"bits_inlier": 3, "bits_outlier": 3, "stochastic": False},
    {"bits_inlier": 4, "bits_outlier": 7, "outlier_limit": 6.0},
    {"bits_inlier": 5, "bits_outlier": 6},
    {"bits_inlier": 7},
    {"bits_inlier": 8},
)
CASES = list(
    dict.fromkeys(
        [
            *(Case(kind) for kind in KINDS),
            *(Case(kind, 13001, measured=True) for kind in ("wide", "huge", "nearly constant")),
            Case("few zeros", 13001, "float16", measured=True),
            Case("tiny", 3, "bfloat16", measured=True),
            *(Case(kind, n) for kind in ("normal", "relu") for n in (2, 9, 4095, 4096, 4097, 9000)),
            *(Case(kind, **settings) for kind in ("normal", "relu", "steps") for settings in SETTINGS),
            *(Case(kind, among=among) for kind in ("normal", "relu") for among in ((1, 2), (2, 3), (3, 4))),
            *(
                Case(kind, 700, dtype)
                for kind in ("normal", "relu", "signed zeros")
                for dtype in ("float16", "bfloat16")
            ),
        ]
    )
)
BIG = [
    Case(kind, (1 << 20) + 77, dtype, measured=True)
    for kind in ("normal", "relu", "nearly constant")
    for dtype in ("float32", "float16", "bfloat16")
]


@contextmanager
def through(module: Any) -> Iterator[None]:
    """Let the functions run through this module, instead of what a tensor's device would choose."""
    before = smaq.in_cpp, smaq._portable
    smaq.in_cpp, smaq._portable = lambda _: False, lambda _: module
    try:
        yield
    finally:
        smaq.in_cpp, smaq._portable = before


def placed(tensor: Tensor, device: str) -> Tensor:
    """A copy on the device; on the CPU, one whose last byte is followed by a page that cannot be touched."""
    if device != "cpu":
        return tensor.to(device)
    size = max(-(-tensor.nbytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = torch.frombuffer(memory, dtype=torch.uint8, count=size)[size - tensor.nbytes :].view(tensor.dtype)
    return copy.copy_(tensor)


def coded(case: Case, module: Any, device: str) -> dict[str, Any]:
    """Everything that is computed of a case."""
    x = placed(KINDS[case.kind](case.n).to(getattr(torch, case.dtype)), device)
    codes = smaq.Codes(case.bits_inlier, case.bits_outlier, case.inlier_threshold, case.outlier_limit)
    with through(module if case.measured else smaq_reference):
        statistics, masked = smaq.measured(x, case.bits_inlier, 0, KEY.words())
    if case.kind == "steps":
        statistics = smaq.TensorStatistics(0.0, 1.0, statistics.lowest, statistics.highest)
    words = KEY.words() if case.stochastic else None
    with through(module):
        counts, size, write = smaq.encode(x, codes, statistics, masked, words, case.among)
        body = placed(torch.full((size,), 77, dtype=torch.uint8), device)
        write(body)
        found = {"statistics": statistics, "masked": masked, "counts": counts, "body": body}
        if case.measured:
            found["sums"] = module.measure(x, statistics.mean)
        for accumulate in (False, True):
            total = placed(normal(case.n + 1)[1:], device)
            assert smaq.decode(body, counts, codes, statistics, masked, total, accumulate=accumulate)
            found[f"decoded, {accumulate=}"] = total.view(torch.int32)
    return found


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    def same(a: Any, b: Any) -> bool:
        return torch.equal(a.cpu(), b.cpu()) if isinstance(a, Tensor) else a == b

    return ", ".join(name for name, value in expected.items() if not same(value, found[name]))


# --- damage, and what is refused -------------------------------------------------------------------------------------


def damaged(bodies: list[Tensor], tag: bytes, n: int, module: Any, device: str) -> list[Any]:
    """The outcome of each: the total, or that it was refused, which changes no number."""
    found = []
    with through(module):
        for body in bodies:
            total = placed(normal(n), device)
            try:
                COMPRESSOR.add(Message(tag, n, placed(body, device)), total)
            except MessageError:
                assert torch.equal(total.cpu(), normal(n))
                found.append("refused")
            else:
                found.append(total.cpu())
    return found


def damages(kind: str, module: Any, device: str) -> str:
    """The outcomes of bits turned at random, and of bytes cut off, added, or exchanged with their neighbours (bitmaps
    hold as many bits then).
    """
    n = 4096 + 300
    with through(smaq_reference):
        message = COMPRESSOR.encode(KINDS[kind](n), KEY)
    bodies = [message.body[:-1], torch.cat([message.body, message.body[:3]])]
    indices = torch.randint(32, message.body.numel() - 1, (12,), generator=torch.Generator().manual_seed(1)).tolist()
    for place in [*indices, message.body.numel() - 2]:
        bodies.extend((message.body.clone(), message.body.clone()))
        bodies[-2][place] ^= 1 << place % 8
        bodies[-1][place : place + 2] = message.body[place : place + 2].flip(0)
    # Numbers of codes and outliers that promise as many bytes as there are, or far too many.
    for first in (-1, 4097, 0):
        bodies.append(message.body.clone())
        bodies[-1][28:30] = torch.tensor([first], dtype=torch.int16).view(torch.uint8)
    expected, found = (
        damaged(bodies, message.tag, n, smaq_reference, "cpu"),
        damaged(bodies, message.tag, n, module, device),
    )
    assert 0 < sum(isinstance(each, str) for each in expected) < len(expected)
    return ", ".join(
        f"body {i}"
        for i, (a, b) in enumerate(zip(expected, found, strict=True))
        if type(a) is not type(b) or not _alike(a, b)
    )


def _alike(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else torch.equal(a, b)


def crowded(module: Any, device: str) -> str:
    """Four coordinates, eight outliers: their bitmap and its padding hold as many, and the length is right."""
    with through(smaq_reference):
        message = COMPRESSOR.encode(normal(4), KEY)
    body = torch.cat([message.body[:28], torch.tensor([8, 0, 255, 0, 0, 0, 0, 0], dtype=torch.uint8)])
    return "" if damaged([body], message.tag, 4, module, device) == ["refused"] else "was taken"


def not_finite(bad: float, module: Any, device: str) -> str:
    x = normal(5000)
    x[4321] = bad
    with through(module):
        try:
            COMPRESSOR.encode(x.to(device), KEY)
        except NonFiniteError:
            return ""
    return "nothing was raised"


def differences(cases: list[Case], device: str) -> dict[str, str]:
    """A table from the name of every case that went wrong to what it did."""
    found = {
        str(case): difference(coded(case, smaq_reference, "cpu"), coded(case, smaq_operators, device)) for case in cases
    }
    found |= {
        f"damaged {kind}": damages(kind, smaq_operators, device) for kind in ("normal", "relu", "a number and zeros")
    }
    found["more outliers than codes"] = crowded(smaq_operators, device)
    found |= {f"with {bad}": not_finite(bad, smaq_operators, device) for bad in (float("nan"), -float("inf"))}
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.slow
def test_interpreter_equals_reference() -> None:
    assert interpreted(__file__) == {}


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here: the kernels were interpreted and compiled, not run"
)
def test_gpu_equals_reference() -> None:
    assert smaq._portable(torch.zeros(1, device="cuda")) is smaq_operators
    assert differences(CASES + BIG, "cuda") == {}


def test_tensors_on_a_gpu_go_to_the_kernels() -> None:
    on_gpu, elsewhere = cast(Any, SimpleNamespace(is_cuda=True)), cast(Any, SimpleNamespace(is_cuda=False))
    assert [smaq._portable(each) for each in (on_gpu, elsewhere)] == [smaq_operators, smaq_reference]


# --- what they compile to --------------------------------------------------------------------------------------------

COMPILED: dict[str, dict[str, Any]] = {
    "with a mask": {
        "masked": True,
        "constant": False,
        "low_bits": 5,
        "extra_bits": 2,
        "stochastic": True,
        "dtype": torch.float32,
    },
    "8 bits": {
        "masked": False,
        "constant": False,
        "low_bits": 7,
        "extra_bits": 0,
        "stochastic": False,
        "dtype": torch.bfloat16,
    },
    "a constant": {
        "masked": True,
        "constant": True,
        "low_bits": 2,
        "extra_bits": 5,
        "stochastic": True,
        "dtype": torch.float16,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), [*((name, 80) for name in COMPILED), ("with a mask", 90)])
def test_compiled_kernels_round_as_specified_and_do_not_spill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, architecture: int
) -> None:
    recorders = recorded(monkeypatch, tmp_path)
    kind = dict(COMPILED[name])
    x, counts = torch.zeros(20_000, dtype=kind.pop("dtype")), torch.zeros(2, 5, dtype=torch.int16)
    smaq_operators.measure(x, 0.0)
    size, write = smaq_operators.encode(
        x, counts[0], counts[1], **kind, **dict.fromkeys(smaq_operators.NUMBERS, 1.0), k0=1, k1=2, own=1, workers=3
    )
    body = torch.zeros(size, dtype=torch.uint8)
    write(body)
    smaq_operators.decode(body, counts[0], counts[1], torch.zeros(256), torch.zeros(len(x)), **kind, accumulate=True)
    assert sum(len(recorder.launches) for recorder in recorders) == 5
    check_machine_code(recorders, architecture)


# --- without Triton --------------------------------------------------------------------------------------------------


def test_without_triton_the_reference_runs_after_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    launch.device_code.cache_clear()
    case = Case("relu", measured=True)
    try:
        with pytest.warns(RuntimeWarning, match="triton is not installed") as said:
            assert difference(coded(case, smaq_reference, "cpu"), coded(case, smaq_operators, "cpu")) == ""
        assert len(said) == 1
    finally:
        launch.device_code.cache_clear()


def _interpret() -> None:
    """The program: the differences of interpreted kernels, as JSON."""
    import numpy as np

    torch.set_num_threads(1)
    with np.errstate(all="ignore"):  # Triton computes both sides of a where
        print(json.dumps(differences(CASES, "cpu")))


if __name__ == "__main__":
    _interpret()
