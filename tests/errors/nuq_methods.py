"""Errors of methods and their parts: vectors that cannot be encoded, bytes that are no message, entropy coding."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

import nuq
from nuq.coding import entropy, entropy_reference, index_coding
from nuq.compressors.feedback import TAG, ErrorFeedback
from nuq.compressors.frame import Frame, Table
from nuq.compressors.message import Message
from tests.errors.nuq_messages import KEY, compressor
from tests.errors.rows import Row, row

CODES = np.arange(100, dtype=np.uint8) % 8
CONTEXTS = np.zeros(100, dtype=np.uint8)
NAN = torch.full((50,), torch.nan)
HUGE = torch.full((1000,), 3e38)


def encode(method: str, given: str, vector: Tensor) -> Row:
    return row(f"nuq.METHODS: encode of {method}", given, lambda: compressor(method).encode(vector, KEY))


def made(method: str, given: str) -> Row:
    return row(f"nuq.METHODS: settings of {method.split()[0]}", given, lambda: compressor(f"{method} {given}"))


def coded(given: str, codes: Any = CODES, symbols: int = 8, coder: str = "rans", *contexts: Any) -> Row:
    return row("nuq.coding.entropy.encode", given, lambda: entropy.encode(codes, symbols, coder, *contexts))


def indices(given: str, numbers: list[int], form: str = "auto") -> Row:
    tensor = torch.tensor(numbers, dtype=torch.int32)
    return row("nuq.coding.index_coding.encode", given, lambda: index_coding.encode(tensor, 5, form))


def parsed(given: str, change: Any) -> Row:
    """The bytes of a message, changed."""
    data = compressor("qsgd").encode(torch.ones(4), KEY).to_bytes()
    return row("nuq.parse(data)", given, lambda: nuq.parse(change(data)))


def framed(given: str, change: Any) -> Row:
    """A frame of one message, changed."""
    data = Frame.of([compressor("qsgd").encode(torch.ones(4), KEY)], torch.device("cpu")).sealed()
    return row("nuq.compressors.Frame.read(data)", given, lambda: Frame.read(change(data)))


def byte(at: int, value: int) -> Any:
    """The bytes with another one in one place."""

    def change(data: Tensor) -> Tensor:
        data = data.clone()
        data[at] = value
        return data

    return change


def _scaled(factor: float, count: int) -> None:
    """A message of feedback around supersgd of two coordinates, with this factor, as of ``count`` coordinates."""
    memory = ErrorFeedback(compressor("supersgd"), {"p": 2})
    inner = memory.inner.encode(torch.ones(2), KEY).to_bytes()
    scale = torch.frombuffer(bytearray(struct.pack("<f", factor)), dtype=torch.uint8)
    memory.decode(Message(TAG, count, torch.cat([scale, inner])))


def _remember(memory: dict[str, Any]) -> None:
    ErrorFeedback(compressor("topk"), {"p": 2}).load_memory({"workers": {0: memory}})


def _low_bits_cut_off() -> None:
    numbers = torch.cumsum(torch.tensor([1, 1, 1, 1, 1, 1, 1, 3000] * 200, dtype=torch.int32), 0, dtype=torch.int32)
    data = index_coding.encode(numbers, 700_000)
    assert data[0] == index_coding.RANS
    index_coding.decode(data[:-1], 1600, 700_000)


ROWS = [
    made("eden", "bucket_size=1000"),
    made("eden", "levels=uniform"),
    made("smaq", "bits_inlier=2"),
    made("smaq", "samples=-1"),
    made("smaq", "rounding=up"),
    made("smaq", "bits_inlier=7 bits_outlier=6"),
    made("atomo", "svd_rank=0"),
    made("atomo", "atoms=entries svd_rank=2"),
    made("atomo", "ratio=0.5"),
    made("atomo", "atoms=columns"),
    made("topk", "ratio=0.0"),
    made("topk", "bucket_size=64 selection=sampled"),
    made("thresholdv", "threshold=-1.0"),
    made("dgc", "scope=model dense_1d=false"),
    made("dgc", "warmup_every=9 warmup_ratios=[0.5,2.0]"),
    made("randomk", "values=fp8"),
    made("smaq", "inlier_threshold=3.0 outlier_limit=2.5"),
    row("nuq.METHODS: a quantizer's set_levels", "an array", lambda: compressor("qsgd").set_levels(np.ones(2))),  # pyright: ignore[reportAttributeAccessIssue]
    encode("topk", "float64", torch.ones(4, dtype=torch.float64)),
    encode("topk", "2^31 + 1 coordinates", torch.empty(2**31 + 1, device="meta")),
    encode("smaq", "2^31 + 1 coordinates", torch.empty(2**31 + 1, device="meta")),
    encode("smaq", "nan", NAN),
    encode("topk", "nan", NAN),
    encode("sign", "nan", NAN),
    encode("casq", "nan", NAN),
    encode("nnw_bdi", "nan", NAN),
    encode("powersgd", "nan", NAN),
    encode("powersgd", "nan, of a matrix", torch.full((20, 20), torch.nan)),
    encode("natural", "above 2^127", torch.full((4,), 1.8e38)),
    encode("demo", "up to 3e38", HUGE),
    encode("randomk", "up to 3e38", HUGE),
    encode("atomo atoms=entries", "up to 3e38", HUGE),
    row("feedback: decode", "a factor of 2", lambda: _scaled(2.0, 2)),
    row("feedback: decode", "a message of another size inside", lambda: _scaled(1.0, 3)),
    row("feedback: load_memory", "of another kind", lambda: _remember({"momenta": {"p": torch.zeros(2)}})),
    row("feedback: load_memory", "of another size", lambda: _remember({"residuals": {"p": torch.zeros(3)}})),
    # bytes
    parsed("cut short", lambda data: data[:10]),
    parsed("another first byte", byte(0, 0)),
    parsed("another version", byte(2, 9)),
    parsed("a body cut short", lambda data: data[:-1]),
    parsed("another last byte", lambda data: byte(-1, int(data[-1]) ^ 1)(data)),
    framed("cut short", lambda data: data[:10]),
    framed("a message without a frame", lambda data: compressor("qsgd").encode(torch.ones(4), KEY).to_bytes()),
    framed("another first byte", byte(0, 0)),
    framed("another version", byte(2, 9)),
    framed("a table cut short", lambda data: data[:14]),
    framed("bodies cut short", lambda data: data[:-8]),
    framed("another last byte", lambda data: byte(12, int(data[12]) ^ 1)(data)),
    row("nuq.compressors.Frame", "a message of 2^32 coordinates", lambda: Table.of([2**32], [8])),
    # entropy coding
    coded("coder='elias'", coder="elias"),
    coded("num_symbols=513", symbols=513),
    coded("a code beyond the symbols", symbols=7),
    coded("a code beyond 512 symbols", np.array([0, 600], dtype=np.uint16), 512),
    coded("a matrix", CODES.reshape(10, 10)),
    coded("contexts for Huffman", CODES, 8, "huffman", CONTEXTS),
    coded("num_contexts=17", CODES, 8, "rans", CONTEXTS, 17),
    coded("too few contexts", CODES, 8, "rans", CONTEXTS[:99]),
    coded("a context beyond", CODES, 8, "rans", CONTEXTS + np.uint8(4), 4),
    row("nuq.coding.entropy.decode", "num_codes=-1", lambda: entropy.decode(CODES, -1, 8, "rans")),
    row("nuq.coding.entropy.decode", "a matrix", lambda: entropy.decode(CODES.reshape(10, 10), 100, 8, "rans")),
    row(
        "nuq.coding.entropy.decode",
        "a context beyond",
        lambda: entropy.decode(CODES, 100, 8, "rans", CONTEXTS + np.uint8(4), 4),
    ),
    row(
        "nuq.coding.entropy.encode, without C++",
        "a code beyond the symbols",
        lambda: entropy_reference.count(CODES, 7, None, 1, 0),
    ),
    row(
        "nuq.coding.entropy.encode, without C++",
        "a context beyond",
        lambda: entropy_reference.count(CODES, 8, CONTEXTS + np.uint8(4), 4, 0),
    ),
    # indices
    indices("form='gamma'", [1], "gamma"),
    indices("a number twice", [1, 1]),
    indices("numbers that fall", [2, 1]),
    indices("a number beyond", [4, 5]),
    indices("a number below zero", [-1, 2]),
    row(
        "nuq.coding.index_coding.decode",
        "the form of the others alone",
        lambda: index_coding.decode(torch.tensor([index_coding.OTHERS], dtype=torch.uint8), 9, 10),
    ),
    row("nuq.coding.index_coding.decode", "low bits cut off", _low_bits_cut_off),
]
