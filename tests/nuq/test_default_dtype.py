"""The default dtype and device of PyTorch, which are the user's, change no bit of what is sent, decoded or kept."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel as DDP

import nuq
from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.testing.cases import build, gradient

ROOT = Path(__file__).parent.parent.parent
FACTORIES = frozenset(
    "arange as_tensor asarray empty empty_strided eye full linspace logspace normal ones rand randint randn randperm "
    "scalar_tensor tensor zeros".split()
)
OTHERS = torch.float64, torch.bfloat16


@pytest.fixture(autouse=True)
def _default_dtype() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


def test_every_tensor_says_its_dtype_and_device():
    files = [path for room in ("nuq", "train") for path in sorted((ROOT / room).rglob("*.py"))]
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in files
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {f"torch.{name}" for name in FACTORIES}
        if not {"dtype", "device"} <= {keyword.arg for keyword in call.keywords}
    ]
    assert len(files) > 100 and not silent


# --- every method, in one process ---


def every_bit(name: str) -> list[Tensor]:
    """Two steps of a method, with a memory: the messages, the decoded vectors and what is remembered."""
    encoder, vector, found = build(name), gradient(1400), list[Tensor]()
    shape = (40, 35)
    layout = FlatLayout((Segment("x", 0, vector.numel(), shape=shape),))
    if METHODS[name].feedback == "none" and isinstance(encoder, Compressor):
        around: Any = encoder
    else:
        around = ErrorFeedback(encoder, {"x": vector.numel()})
    if isinstance(encoder, AdaptiveQuantizer):
        encoder.update(encoder.observed([(vector, Key(3, 0, 0, "statistics/x"))]))
    codec = PayloadCodec(around)
    for step in range(2):
        payload = codec.encode(vector, layout, Key(3, step, 0))
        total = torch.zeros_like(vector)
        codec.add(payload, layout, total)
        found += [payload, total]
        if around is not encoder:
            found += [kept.clone() for kind in around.memories.values() for of in kind.values() for kept in of.values()]
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_the_same_bits_under_every_default(name):
    expected = every_bit(name)
    for dtype in OTHERS:
        torch.set_default_dtype(dtype)
        assert _alike(expected, every_bit(name)), dtype
    torch.set_default_device("meta")  # a tensor that says no device has no values then
    assert _alike(expected, every_bit(name))


def _alike(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(some, others, strict=True))
