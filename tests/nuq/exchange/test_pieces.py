"""A frame holds, for every segment, the body that its method makes of it alone, whoever wrote it: one call or many."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.compressors.frame import Frame, PieceError
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels import pieces
from nuq.kernels.spec import ALONE, Key
from nuq.kernels.statistics import Statistics
from nuq.registry import METHODS
from tests.nuq.parts import tiled
from tests.tiers import few

KEY = Key(9, 4, 2, workers=5)
QUANTIZED = [("qsgd", {}), ("qsgdinf", {}), ("trn", {}), ("nuqsgd", {}), ("amq", {"norm": "l2"}), ("alq", {})]
QUANTIZED += [("alq", {"rounding": "correlated"}), ("qsgdinf", {"rounding": "correlated"})]
QUANTIZED += [("alq", {"norm": "quantile"}), ("alq_n", {"bits": 5}), ("qsgd", {"bits": 8, "form": "magnitude"})]


def compressor(name: str, **given: Any) -> Any:
    """The method with buckets of 96 coordinates; adaptive ones have fitted levels."""
    made = METHODS[name].load()(METHODS[name].settings(bucket_size=96, **given))
    if isinstance(made, AdaptiveQuantizer):
        seen = Statistics.empty(made.settings.num_components)
        made.observe(torch.randn(5000, generator=torch.Generator().manual_seed(1)), Key(0, 0, 0, "s"), seen)
        made.update(seen)
    return made


@few(3, ("name", "chosen"), QUANTIZED)
@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=7),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    prefix=st.sampled_from(["", "mean"]),
)
def test_one_call_writes_what_each_segment_takes_alone(
    name: str, chosen: dict[str, Any], sizes: list[int], dtype: torch.dtype, prefix: str
) -> None:
    of, layout = compressor(name, **chosen), tiled({f"p{number}": size for number, size in enumerate(sizes)})
    x = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)
    codec, key = PayloadCodec(of), dataclasses.replace(KEY, parameter=prefix)
    payload = codec.encode(x, layout, key)
    frame, wanted = Frame.read(payload), torch.ones(sum(sizes))
    for number, segment in enumerate(layout.segments):
        alone = of.encode(x[segment.place], key.of(segment.key_name))
        message = frame.message(number)
        assert (message.tag, message.num_coordinates) == (alone.tag, segment.size)
        assert torch.equal(message.body, alone.body), (number, sizes)
        of.add(alone, wanted[segment.place])
    total = torch.ones(sum(sizes))
    codec.add(payload, layout, total)
    assert torch.equal(total, wanted)


def test_messages_of_other_settings_are_added_one_by_one() -> None:
    """Whatever a receiver's own settings are, and with scales whose sums want a closer look."""
    layout, sent = tiled({"a": 50, "b": 300, "c": 7}), torch.randn(357, generator=torch.Generator().manual_seed(3))
    sent[100] = 3e38
    sender, total, wanted = PayloadCodec(compressor("qsgdinf", bits=2)), torch.zeros(357), torch.zeros(357)
    payload = sender.encode(sent, layout, KEY)
    sender.add(payload, layout, wanted)
    PayloadCodec(compressor("qsgd", bits=6)).add(payload, layout, total)
    assert torch.equal(total, wanted) and float(total.abs().max()) > 1e38


@pytest.mark.skipif(not pieces.together(torch.zeros(1)), reason="the C++ kernels are not built")
def test_one_call_into_cpp_for_all_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("encode_", "add_"):
        real = getattr(pieces, name)
        monkeypatch.setattr(pieces, name, lambda *given, real=real, name=name: (calls.append(name), real(*given))[1])
    layout, codec = tiled({str(number): 100 for number in range(50)}), PayloadCodec(compressor("alq"))
    payload = codec.encode(torch.randn(5000), layout, KEY)
    codec.add(payload, layout, torch.zeros(5000))
    assert calls == ["encode_", "add_"]


def test_the_piece_that_is_not_finite_is_numbered() -> None:
    x = torch.ones(300)
    x[150] = float("inf")
    with pytest.raises(PieceError) as caught:
        PayloadCodec(compressor("qsgdinf")).encode(x, tiled({"a": 100, "b": 100, "c": 100}), KEY)
    assert caught.value.number == 1


@pytest.mark.skipif(not pieces.together(torch.zeros(1)), reason="the C++ kernels are not built")
def test_a_vector_that_is_too_long_for_one_message_is_told() -> None:
    """Before anything of it is read; nobody here has the memory for one."""
    made, places = compressor("qsgd"), np.zeros(1, dtype=np.int64)
    words, long = np.zeros((1, 2), dtype=np.uint32), np.array([(1 << 31) + 1], dtype=np.int64)
    with pytest.raises(ValueError, match="2147483649"):
        pieces.encode_(
            torch.zeros(4),
            places,
            long,
            words,
            ALONE,
            torch.zeros(4).view(torch.uint8),
            places,
            places,
            made._in_use.pieces,
        )
    with pytest.raises(ValueError, match="4294967296"):
        PayloadCodec(made).size(FlatLayout((Segment("a", 0, 1 << 32),)))
