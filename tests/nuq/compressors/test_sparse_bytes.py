"""Any sparse message of any size: its bytes give back its indices and values, and no other form of its indices would be
shorter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nuq.coding import index_coding
from nuq.coding.index_forms import BITMAP, FORMS, INT32, OTHERS, RANS, RICE
from nuq.compressors.message import HEADER_BYTES, parse
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.registry import METHODS

HEAD, KEYED, SCALE = 5, 16, 4  # bytes of a body before its values


def make(name: str, **given: Any) -> Any:
    return METHODS[name].load()(METHODS[name].settings(**given))


@st.composite
def indices(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """0 < k < n indices in runs whose density differs: from nearly none to nearly all."""
    n = draw(st.integers(2, 60_000))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    runs = draw(st.lists(st.floats(-4, 0), min_size=1, max_size=5))
    density = np.repeat(10.0 ** np.array(runs), -(-n // len(runs)))[:n]
    chosen = np.flatnonzero(rng.random(n) < density)
    chosen = chosen[: n - 1] if chosen.size else np.array([int(rng.integers(n))])
    return torch.from_numpy(chosen.astype(np.int32)), n


@settings(max_examples=60)
@given(indices())
def test_auto_is_the_shortest_of_all_forms(of: tuple[torch.Tensor, int]) -> None:
    """The length is compared with every form written out; rANS is chosen by an estimate, so it may be missed by a
    little, and is not tried for a few gaps.
    """
    where, n = of
    gaps = index_coding._gaps(where.numpy())
    sizes = {
        INT32: index_coding.encode(where, n, "int32").numel(),
        BITMAP: index_coding.encode(where, n, "bitmap").numel(),
        RICE: index_coding._encode_rice(gaps).size,
        RANS: index_coding._encode_rans(gaps).size,
    }
    data, delta = index_coding.encode(where, n), index_coding.encode(where, n, "delta")
    form = int(data[0])
    assert form == OTHERS if form not in sizes else data.numel() == sizes[form]
    assert data.numel() <= min(sizes[form] for form in (INT32, BITMAP, RICE))
    if len(where) >= 1024:
        assert data.numel() <= sizes[RANS] * 1.02 + 8
    if form in (RICE, RANS):
        assert torch.equal(delta, data)
    assert delta.numel() <= min(sizes[INT32], sizes[RICE])


@settings(max_examples=60)
@given(indices(), st.sampled_from([RICE, RANS]))
def test_either_form_of_gaps_round_trips(of: tuple[torch.Tensor, int], form: int) -> None:
    """Whichever ``auto`` would have chosen."""
    where, n = of
    gaps = index_coding._gaps(where.numpy())
    data = (index_coding._encode_rice if form == RICE else index_coding._encode_rans)(gaps)
    assert int(data[0]) == form
    assert torch.equal(index_coding.decode(torch.from_numpy(data), len(where), n), where)


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, dict[str, Any], torch.Tensor]:
    """A sparse method, settings of it, and a vector that may have ties, zeros, and one size throughout."""
    name = draw(st.sampled_from(["topk", "randomk", "thresholdv", "adaptive_threshold", "dgc", "nonzero"]))
    given: dict[str, Any] = {"values": draw(st.sampled_from(["fp32", "fp16", *["2bit"] * (name == "topk")]))}
    if name != "randomk":
        given["indices"] = draw(st.sampled_from(FORMS))
    if name in ("topk", "randomk", "dgc"):
        given["ratio"] = draw(st.floats(1e-4, 1))
    if name in ("topk", "randomk", "adaptive_threshold"):
        given["bucket_size"] = draw(st.sampled_from([0, 1, 7, 64, 1000]))
    if name == "thresholdv":
        given["threshold"] = draw(st.floats(0, 3))
    if name == "dgc":
        given["dense_1d"] = draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(draw(st.integers(0, 4000)), generator=generator)
    kind = draw(st.sampled_from(["normal", "ties", "mostly zero", "constant"]))
    if kind == "ties":
        x = (2 * x).round()
    elif kind == "mostly zero":
        x = torch.where(x > 2, x, 0.0)
    elif kind == "constant":
        x = torch.full_like(x, -1.5)
    return name, given, x * 10.0 ** draw(st.integers(-20, 20))


@settings(max_examples=120)
@given(messages())
def test_any_message_gives_back_its_indices_and_values(of: tuple[str, dict[str, Any], torch.Tensor]) -> None:
    name, given, x = of
    method, key = make(name, **given), Key(1, 2, 3, "x")
    data = method.encode(x, key).to_bytes()
    message = parse(data.clone())
    decoded = make(name).decode(message)  # by one of other settings: the bytes say all
    sent = method.indices(message)
    where = torch.arange(x.numel()) if sent is None else sent
    assert bool((where[1:] > where[:-1]).all())
    elsewhere = torch.ones(x.numel(), dtype=torch.bool)
    elsewhere[where] = False
    assert not decoded[elsewhere].any()
    if given["values"] == "2bit":
        assert bool((decoded[where].sign() * x[where].sign() >= 0).all())
        assert len(set(decoded[where].tolist())) <= 4
    elif name != "randomk":
        half = given["values"] == "fp16"
        largest = float(x.abs().max()) if x.numel() else 0.0
        allowed = x[where].abs() * 2.0**-11 + largest * 2.0**-38 if half else torch.zeros(len(where))
        assert bool(((decoded[where] - x[where]).abs() <= allowed).all())
    count = len(where)
    fixed = (
        HEADER_BYTES
        + HEAD
        + {"fp32": 4 * count, "fp16": SCALE + 2 * count, "2bit": 16 + (count + 3) // 4}[given["values"]]
    )
    coded = data.numel() - fixed - (KEYED if name == "randomk" and data.numel() > fixed else 0)
    assert 0 <= coded <= (0 if name == "randomk" else index_coding.bound(len(where), x.numel(), given["indices"]))
    assert data.numel() <= method.message_bytes(x.numel())
    if method.exact_bytes:
        assert data.numel() == method.message_bytes(x.numel())


@settings(max_examples=60)
@given(messages(), st.integers(0, 10**6))
def test_any_changed_byte_is_noticed(of: tuple[str, dict[str, Any], torch.Tensor], seed: int) -> None:
    """The checksum notices it; a body changed behind its back is an error or a vector of the right length, never an
    error of another kind.
    """
    name, given, x = of
    message = make(name, **given).encode(x, Key(1, 2, 3, "x"))
    rng = np.random.default_rng(seed)
    data = message.to_bytes().clone()
    data[int(rng.integers(data.numel()))] ^= int(rng.integers(1, 256))
    with pytest.raises(MessageError):
        parse(data)
    body = message.body.clone()
    body[int(rng.integers(body.numel()))] ^= int(rng.integers(1, 256))
    try:
        decoded = make(name).decode(type(message)(message.tag, message.num_coordinates, body))
    except MessageError:
        return
    assert decoded.shape == x.shape and bool(torch.isfinite(decoded).all())
