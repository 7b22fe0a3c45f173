"""The default dtype and device of PyTorch, which are the user's, change no bit of what is sent, decoded or kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.testing.cases import build, gradient
from tests.nuq.small_training import backward, descend, gradients, hooked, net, parameters

ROOT = Path(__file__).parent.parent.parent
FACTORIES = re.compile(
    r"torch\.(arange|as_tensor|asarray|empty|empty_strided|eye|full|linspace|logspace|normal|ones|rand|randint|randn|"
    r"randperm|scalar_tensor|tensor|zeros)"
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
        if isinstance(call, ast.Call) and FACTORIES.fullmatch(ast.unparse(call.func))
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


# --- what a training calls ---


def _float32_net() -> nn.Module:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    model = net()
    torch.set_default_dtype(dtype)
    return model


def _bits_of_calls(group: dist.ProcessGroup) -> dict[str, list[Tensor]]:
    """The gradients, means and parameters of two steps of everything that a training calls, on this rank."""
    found: dict[str, list[Tensor]] = {}
    for name, collective in (("alq", "two_stage"), ("eden", "auto"), ("powersgd", "auto"), ("demo", "gather")):
        how: dict[str, Any] = {"method": name, "collective": collective}
        model, state = hooked(group, _float32_net(), debug=True, **how)
        steps = []
        for step in range(2):
            model.zero_grad()
            backward(model, dist.get_rank(group), step)
            steps.append(gradients(model))
        state.close()
        matrix = gradient(1200, seed=dist.get_rank(group)).view(30, 40)
        found[name] = [*steps, nuq.all_reduce(matrix, group=group, step=0, timeout_s=30.0, **how)]
    model = _float32_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loop = nuq.OuterLoop(model, optimizer, group=group, every=2, method="topk", ratio=0.1, timeout_s=30.0)
    for step in range(4):
        descend(loop.model, lambda step=step: backward(loop.model, dist.get_rank(group), step))
        loop.advance()
    found["outer loop"] = [parameters(loop.model)]
    loop.close()
    model = _float32_net()
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    nuq.compress_fsdp(model, timeout_s=30.0, feedback="average")
    nuq.compress_fsdp_weights(model, timeout_s=30.0)
    backward(model, dist.get_rank(group), 0)
    found["fsdp"] = [cast(Any, p.grad).to_local() for p in model.parameters()]
    model = _float32_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    compressed = nuq.CompressedTraining(
        model, optimizer, weights="smaq", activations="smaq", moments="smaq", min_size=1
    )
    for step in range(2):
        optimizer.zero_grad()
        backward(model, 0, step)
        optimizer.step()
    found["quantized training"] = [parameters(model)]
    compressed.remove()
    return found


def differing(group: dist.ProcessGroup, dtype: torch.dtype) -> list[str]:
    """What is not the same under another default dtype."""
    expected = _bits_of_calls(group)
    try:
        torch.set_default_dtype(dtype)
        found = _bits_of_calls(group)
    finally:
        torch.set_default_dtype(torch.float32)
    return [name for name in expected if not _alike(expected[name], found[name])]


@pytest.mark.parametrize("dtype", OTHERS)
def test_hook_all_reduce_outer_loop_fsdp_and_quantized_training_give_the_same_bits(ranks, dtype):
    assert ranks.run(differing, dtype, world=2) == [[], []]
