"""Tensors of every shape, type and memory order through every format."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.compressors.message import Message
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key
from nuq.parameters import dense
from nuq.quantized_training.formats import Format
from nuq.registry import METHODS, legal_formats

KEY = Key(1, 2, 3, "x")
TRAINED = ("fp32", "bf16", "fp16", "fp8 table=e5m2 scale=none", "s2fp8", "nnw_bdi", "smaq")  # the paper's table
LOWEST_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8 table=e5m2 scale=none": 1.0, "s2fp8": 1.0}


def test_formats_are_the_methods_that_keep_nothing():
    formats = legal_formats()
    assert {"supersgd", "smaq", "s2fp8", "nnw_bdi", "fp8", "fp16", "bf16", "block8", "qsgd"} <= set(formats)
    assert not {"sgd", "alq", "powersgd", "casq", "dgc"} & set(formats)


@pytest.mark.parametrize("name", sorted(set(legal_formats())))
def test_a_format_keeps_nothing_between_tensors(name):
    format, x = Format(name), torch.randn(300, generator=torch.Generator().manual_seed(0))
    first = format.pack(x, KEY).message.body
    format.pack(2 * x, Key(1, 3, 3, "x")).unpack()
    assert torch.equal(format.pack(x, KEY).message.body, first)
    assert not Format(name).compressor.state_dict().get("by_worker")


@st.composite
def tensors(draw) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 10.0 ** draw(
        st.integers(-3, 3)
    )
    x = x.relu() if draw(st.booleans()) else x
    x = x.permute(draw(st.permutations(range(len(shape)))))
    if shape and draw(st.booleans()):
        x = x[..., ::2]
    return x.to(draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64])))


@pytest.mark.parametrize("spec", TRAINED)
@given(x=tensors())
@settings(max_examples=40, deadline=None)
def test_a_tensor_keeps_its_form(spec, x):
    packed = Format(spec).pack(x, KEY)
    found = packed.unpack()
    assert (found.shape, found.dtype, found.device) == (x.shape, x.dtype, x.device)
    assert packed.nbytes == 28 + packed.message.body.numel() >= 28
    held = packed.message.body.untyped_storage().nbytes()
    assert held <= packed.nbytes
    assert found.stride() == (x if dense(x) else x.contiguous()).stride()
    if spec == "fp32":
        assert torch.equal(found, x.float().to(x.dtype))
    else:
        assert float((found.double() - x.double()).abs().max() if x.numel() else 0) <= float(
            x.double().abs().max() if x.numel() else 0
        )
    if bool((x >= 0).all()):
        assert bool((found >= 0).all()) and not found[x == 0].any()
        assert spec != "smaq" or torch.equal(found > 0, x.float() > 0)


@pytest.mark.parametrize("spec", ["fp32", "smaq", "s2fp8", "nnw_bdi", "bf16"])
def test_memory_order_is_read_as_it_lies(spec):
    x = torch.randn(4, 6, 5, 3, generator=torch.Generator().manual_seed(0))
    last = x.to(memory_format=torch.channels_last)
    packed = Format(spec).pack(last, KEY)
    assert torch.equal(
        packed.message.body, Format(spec).pack(x.permute(0, 2, 3, 1).contiguous().flatten(), KEY).message.body
    )
    assert packed.unpack().is_contiguous(memory_format=torch.channels_last)
    expanded = torch.randn(3, 1).expand(3, 4)
    assert Format("fp32").pack(expanded, KEY).unpack().is_contiguous()
    assert torch.equal(Format("fp32").roundtrip(expanded, KEY)[0], expanded)


@pytest.mark.parametrize("spec", ["fp32", "bf16", "smaq", "s2fp8", "nnw_bdi"])
def test_zeros_constants_and_nothing_are_exact(spec):
    for x in (torch.zeros(5, 4), torch.full((70, 3), -2.5), torch.empty(3, 0), torch.tensor(0.375)):
        found, _ = Format(spec).roundtrip(x, KEY)
        assert torch.equal(found, x)


@pytest.mark.parametrize("spec", TRAINED)
def test_bytes_of_a_normal_tensor(spec):
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))
    found, nbytes = Format(spec).roundtrip(x, KEY)
    each = nbytes / x.numel()
    assert each == pytest.approx(LOWEST_BYTES.get(spec, each), rel=1e-3)
    assert float((found - x).norm() / x.norm()) < 0.1
    assert each < {"smaq": 0.84, "nnw_bdi": 1.04}.get(spec, 4.01)


def test_what_base_delta_blocks_save():
    rows = torch.ones(64, 64) * 0.25 + torch.linspace(0, 0.01, 64)
    blocks = {
        "zeros": torch.cat([torch.zeros(63 * 64), torch.linspace(-1, 1, 64)]),
        "repeated": torch.linspace(-1, 1, 64)[:, None].expand(64, 64).reshape(-1),
        "close to a base": rows.reshape(-1),
        "close to a base, and zeros": torch.where(torch.arange(64) % 3 == 0, 0.0, rows).reshape(-1),
    }
    bits = {name: 8 * (Format("nnw_bdi").pack(x, KEY).nbytes - 36) / x.numel() for name, x in blocks.items()}
    assert bits["zeros"] < 0.4 and bits["repeated"] < 0.4
    assert bits["close to a base"] < 4.5 and bits["close to a base, and zeros"] < 5.5


@pytest.mark.parametrize("spec", TRAINED)
@given(cut=st.integers(1, 60), bit=st.integers(0, 7), place=st.floats(0, 0.999))
@settings(max_examples=40, deadline=None)
def test_damaged_bytes_are_errors_or_numbers(spec, cut, bit, place):
    message = Format(spec).pack(torch.linspace(-1, 3, 777), KEY).message
    for body in (message.body[:-cut], torch.cat([message.body, message.body[:cut]])):
        with pytest.raises(MessageError):
            Format(spec).compressor.decode(Message(message.tag, 777, body))
    turned = message.body.clone()
    turned[int(place * turned.numel())] ^= 1 << bit
    with contextlib.suppress(MessageError):
        assert Format(spec).compressor.decode(Message(message.tag, 777, turned)).shape == (777,)


@pytest.mark.parametrize("spec", TRAINED)
def test_what_is_no_finite_tensor_of_numbers_is_an_error(spec):
    for bad in (float("nan"), float("-inf")):
        with pytest.raises(NonFiniteError):
            Format(spec).pack(torch.tensor([[1.0, bad]]), KEY)
    with pytest.raises(TypeError, match="int64"):
        Format(spec).pack(torch.arange(3), KEY)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_the_plain_fp8_is_pytorchs_own_cast(name):
    dtype = getattr(torch, name)
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 100
    found, _ = Format(f"fp8 scale=none table={'e4m3' if 'e4m3' in name else 'e5m2'}").roundtrip(x, KEY)
    most = torch.finfo(dtype).max
    assert torch.equal(found, x.clamp(-most, most).to(dtype).float())


def test_every_format_of_the_table_is_a_method():
    assert all(Format(spec).name in METHODS for spec in TRAINED)
