"""Messages, frames and markers of earlier code decode to the same numbers, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nuq.compressors.feedback import Scaled
from nuq.compressors.frame import Frame
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.message import Message, parse, raw
from nuq.errors import MessageError
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import MARKER, PayloadCodec, RemoteNonFinite
from nuq.registry import METHODS
from nuq.testing.cases import build
from tests.compat import WRITTEN

# the tags that there were, and a method, with its default settings, that reads each
TAGS = {
    "ATMO": "atomo",
    "BLK8": "block8",
    "CASQ": "casq",
    "CAST": "bf16",
    "DEMO": "demo",
    "EDEN": "eden",
    "FP32": "supersgd",
    "LVLS": "qsgd",
    "NATC": "natural",
    "NBDI": "nnw_bdi",
    "POWR": "powersgd",
    "S2F8": "s2fp8",
    "SIGN": "sign",
    "SKML": "sketchml",
    "SMAQ": "smaq",
    "SPRS": "topk",
}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(WRITTEN / "messages.npz") as file:
        return dict(file)


def decoded(message: Message) -> np.ndarray:
    """A message by an instance that did not write it, and has other settings than the one that did."""
    tag = message.tag.decode()
    if tag != "BETA":
        return build(TAGS[tag]).decode(message, message.num_coordinates).numpy()
    inner = parse(message.body[4:])
    return Scaled(build(TAGS[inner.tag.decode()]), {}).decode(message, message.num_coordinates).numpy()


def assert_same_bits(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert found.dtype == expected.dtype == np.float32
    assert np.array_equal(found.view(np.int32), expected.view(np.int32)), name


def test_messages(arrays: dict[str, np.ndarray]) -> None:
    names = sorted({name.removesuffix("/message") for name in arrays if name.endswith("/message")})
    seen = set()
    for name in names:
        message = parse(torch.from_numpy(arrays[f"{name}/message"]))
        seen.add(message.tag.decode())
        assert_same_bits(decoded(message), arrays[f"{name}/decoded"], name)
        total = torch.full((message.num_coordinates,), 0.5)
        method = build(name.partition(":")[0].partition(" inside")[0])  # its own kind of instance adds it, too
        if message.tag != b"BETA":
            method.add(message, total)
            assert_same_bits(total.numpy(), arrays[f"{name}/decoded"] + np.float32(0.5), name)
    assert seen == {*TAGS, "BETA"}
    assert {name.partition(":")[0] for name in names} >= set(METHODS)


@pytest.mark.parametrize("name", ["alq", "qsgdinf"])
def test_frames_and_markers(arrays: dict[str, np.ndarray], name: str) -> None:
    """A frame is read message by message, its total is theirs, and a marker names the worker and the segment."""
    payload, places = torch.from_numpy(arrays[f"{name}/frame"]), arrays[f"{name}/places"].tolist()
    frame = Frame.read(payload)
    total = np.zeros(sum(size for _, size in places), dtype=np.float32)
    for number, (start, size) in enumerate(places):
        total[start : start + size] += decoded(frame.message(number))
    assert frame.num_messages == len(places)
    assert_same_bits(total, arrays[f"{name}/total"], name)
    damaged = payload.clone()
    damaged[-1] ^= 1
    with pytest.raises(MessageError):
        Frame.read(damaged)

    marker = Frame.read(torch.from_numpy(arrays[f"{name}/marker"])).message(0)
    assert marker.tag == MARKER == b"!NAN"
    layout = FlatLayout(tuple(Segment(str(place), *at) for place, at in enumerate(places)))
    with pytest.raises(RemoteNonFinite) as told:
        PayloadCodec(FullPrecision()).add(
            torch.from_numpy(arrays[f"{name}/marker"]), layout, torch.from_numpy(total.copy())
        )
    assert (told.value.worker, told.value.number) == (1, 1)


def test_every_damaged_byte_of_a_header_is_seen(arrays: dict[str, np.ndarray]) -> None:
    """The header's own layout holds: magic, version, tag, checksum and counts lie where they lay."""
    whole = arrays["qsgdinf: matrix/message"]
    for place in range(28):
        damaged = whole.copy()
        damaged[place] ^= 1
        with pytest.raises(MessageError):
            build("qsgdinf").decode(parse(raw(damaged.tobytes())))
