"""8-bit codes: the tables are those of the formats, and a code is the nearest value of its table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nuq import native
from nuq.compressors.blockwise import Blockwise
from nuq.compressors.message import Message
from nuq.errors import MessageError
from nuq.kernels import operators
from nuq.kernels.spec import Key
from nuq.levels import code_tables
from nuq.settings.baselines import FP8, Block8
from tests.nuq.kernels.test_cpu import vector_of

KEY = Key(1, 2, 3, "x")


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_the_tables_hold_every_finite_number_of_the_format(name, dtype):
    every = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float64)
    finite = np.unique(every[torch.isfinite(every)].numpy() + 0.0)
    assert np.array_equal(code_tables.values(name), finite / finite.max())


def test_the_dynamic_table():
    values = code_tables.values("dynamic")
    assert values.size == 256 and np.unique(values.astype(np.float32)).size == 256
    assert values[0] == -0.99296875 and values[-1] == 1.0 and 0.0 in values
    assert values[values > 0][:4] == pytest.approx(
        [0.55e-6, 3.25e-6, 7.75e-6, 2.125e-5], rel=1e-12
    )  # 0000000|1, 000001|x, 00001|xx
    decades = [int(((values > 10.0**-j * 0.1) & (values < 10.0**-j)).sum()) for j in range(7)]
    assert decades == [64, 32, 16, 8, 4, 2, 1]


@pytest.mark.parametrize("name", code_tables.TABLES)
def test_tables_rise_through_zero_within_the_scale(name):
    values = code_tables.values(name)
    assert (
        (np.diff(values.astype(np.float32)) > 0).all() and 0.0 in values and np.abs(values).max() == 1.0 == values[-1]
    )
    assert (np.diff(code_tables.thresholds(name).astype(np.float32)) > 0).all() and values.size <= 256


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_is_pytorchs_own_cast_in_units_of_the_scale(name):
    dtype = getattr(torch, {"e4m3": "float8_e4m3fn"}.get(name, "float8_e5m2"))
    x = vector_of("normal", 4096, torch.float32)
    compressor = Blockwise(FP8(bucket_size=4096, table=name))
    message = compressor.encode(x, KEY)
    assert message.num_bytes == 28 + 8 + 4 + 4096
    factor = torch.finfo(dtype).max / x.abs().max()
    expected = (x * factor).to(dtype).to(torch.float32) / factor
    assert torch.allclose(compressor.decode(message), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "settings", [Block8(bucket_size=100), Block8(bucket_size=100, table="linear"), FP8(bucket_size=100)]
)
def test_the_nearest_value(settings):
    x = vector_of("all magnitudes", 1000, torch.float32)
    compressor = Blockwise(settings)
    decoded = compressor.decode(compressor.encode(x, KEY)).double().view(10, 100)
    rows = x.double().view(10, 100)
    table = torch.tensor(code_tables.values(compressor.table))
    candidates = rows.abs().amax(dim=1)[:, None, None] * table
    least = (rows[:, :, None] - candidates).abs().amin(dim=2)
    assert torch.allclose((decoded - rows).abs(), least, rtol=1e-4, atol=1e-7 * float(x.abs().max()))


@pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("table", ["dynamic", "linear"])
def test_without_the_kernels_the_bytes_are_the_same(rounding, table, monkeypatch):
    from nuq.kernels import reference

    x = vector_of("all magnitudes", 5000, torch.float32)
    compressor = Blockwise(Block8(bucket_size=300, table=table, rounding=rounding))
    total = torch.linspace(-1, 1, 5000)
    message = compressor.encode(x, KEY)
    added = total.clone()
    compressor.add(message, added)
    monkeypatch.setattr(operators, "_cpu_kernels", lambda: reference)
    assert torch.equal(compressor.encode(x, KEY).to_bytes(), message.to_bytes())
    assert torch.equal(total + compressor.decode(message), added)


def test_damaged_bytes_are_errors():
    message = Blockwise(FP8(bucket_size=9)).encode(torch.ones(20), KEY)  # 253 values
    for place, value in ((4, 5), (0, 0), (-1, 255), (11, 0x7F)):
        body = message.body.clone()
        body[place] = value
        if place == 11:  # infinite
            body[10] = 0x80
        with pytest.raises(MessageError):
            Blockwise(Block8()).decode(Message(message.tag, 20, body))
