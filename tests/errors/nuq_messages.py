"""Errors of messages that came damaged: what each method sends, with a byte of its body changed, cut off or added."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

import nuq
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import Message
from nuq.settings.layers import parsed
from tests.errors.rows import Row, row

KEY = nuq.Key(seed=1, step=0, worker=0, parameter="model")


def _spread(n: int) -> Tensor:
    """Numbers between -1 and 1, no two of which are alike for n up to 101."""
    return torch.tensor([(37 * place % 101 - 50) / 50 for place in range(n)])


VECTORS = {
    "50 numbers": _spread(50),
    "5 x 10 numbers": _spread(50).view(5, 10),
    "50 equal numbers": torch.full((50,), 0.5),
    "50 zeros": torch.zeros(50),
    "400 numbers, most of them zero": _spread(400) * (_spread(400).abs() > 0.9),
    "one number": torch.ones(1),
    "none": torch.zeros(0),
}


@functools.cache
def compressor(method: str) -> Compressor:
    """The compressor of ``METHOD key=value ...``, as in a line of layers."""
    (layer,) = parsed([f"* = {method}"])
    return nuq.METHODS[layer.method].load()(layer.settings)


@functools.cache
def sent(method: str, vector: str) -> Message:
    return compressor(method).encode(VECTORS[vector], KEY)


def changed(message: Message, changes: str) -> Message:
    """The message with changes of its body ("byte 3 is 0", "cut to 8 bytes", "a byte more"), count or tag."""
    tag, count, body = message.tag, message.num_coordinates, message.body.clone()
    for change in changes.split(", "):
        match change.split():
            case ["byte", at, "is", value]:
                body[int(at)] = int(value)
            case ["cut", "to", size, "bytes"]:
                body = body[: int(size)]
            case ["a", "byte", "more"]:
                body = torch.cat([body, body.new_zeros(1)])
            case ["for", number, "coordinates"]:
                count = int(number)
            case ["tagged", text]:
                tag = text.encode()
            case _:
                raise AssertionError(change)
    return Message(tag, count, body)


def damaged(method: str, vector: str, change: str) -> Row:
    def make() -> None:
        compressor(method).decode(changed(sent(method, vector), change))

    return row(f"nuq.METHODS: decode of {method}", f"{vector}, {change}", make)


ROWS = [
    damaged("supersgd", "50 numbers", "byte 3 is 127"),
    damaged("supersgd", "50 numbers", "for 2147483648 coordinates"),
    damaged("supersgd", "50 numbers", "cut to 0 bytes"),
    damaged("qsgd", "50 numbers", "byte 7 is 1"),
    damaged("qsgd", "50 numbers", "byte 1 is 0"),
    damaged("qsgd", "50 numbers", "cut to 12 bytes"),
    damaged("qsgd", "50 numbers", "byte 4 is 5"),
    damaged("qsgd", "50 numbers", "cut to 0 bytes"),
    damaged("qsgd", "50 numbers", "byte 15 is 127"),
    damaged("nuqsgd", "50 numbers", "byte 12 is 1"),
    damaged("ecdq", "50 equal numbers", "byte 4 is 0"),
    damaged("ecdq", "50 equal numbers", "cut to 69 bytes"),
    damaged("ecdq", "50 equal numbers", "cut to 25 bytes"),
    damaged("ecdq", "50 equal numbers", "byte 26 is 2"),
    damaged("ecdq", "50 numbers", "cut to 25 bytes"),
    damaged("ecdq", "50 numbers", "byte 4 is 1"),
    damaged("ecdq", "50 numbers", "cut to 24 bytes"),
    damaged("ecdq", "50 numbers", "byte 24 is 1"),
    damaged("ecdq", "50 numbers", "byte 24 is 3"),
    damaged("ecdq", "50 equal numbers", "byte 28 is 0"),
    damaged("eden", "50 numbers", "byte 0 is 0"),
    damaged("eden", "50 numbers", "cut to 12 bytes"),
    damaged("sign", "50 numbers", "byte 1 is 0"),
    damaged("sign", "50 numbers", "cut to 8 bytes"),
    damaged("natural", "50 numbers", "byte 0 is 0"),
    damaged("block8", "50 numbers", "byte 1 is 0"),
    damaged("block8", "50 numbers", "cut to 8 bytes"),
    damaged("fp16", "50 numbers", "byte 0 is 0"),
    damaged("fp16", "50 numbers", "cut to 4 bytes"),
    damaged("fp16", "50 numbers", "byte 0 is 5"),
    damaged("smaq", "50 numbers", "byte 0 is 2"),
    damaged("smaq", "50 numbers", "byte 15 is 127"),
    damaged("smaq", "50 equal numbers", "a byte more"),
    damaged("smaq", "50 numbers", "cut to 28 bytes"),
    damaged("smaq", "50 numbers", "cut to 30 bytes"),
    damaged("s2fp8", "50 numbers", "byte 3 is 0"),
    damaged("nnw_bdi", "50 numbers", "byte 1 is 1"),
    damaged("nnw_bdi", "50 numbers", "tagged XXXX"),
    damaged("nnw_bdi", "50 numbers", "byte 0 is 0"),
    damaged("nnw_bdi", "50 numbers", "for 0 coordinates"),
    damaged("nnw_bdi", "50 numbers", "cut to 10 bytes"),
    damaged("topk", "50 numbers", "byte 9 is 5"),
    damaged("topk", "50 numbers", "byte 0 is 1"),
    damaged("topk", "50 numbers", "byte 9 is 0"),
    damaged("topk", "50 numbers", "byte 9 is 3"),
    damaged("topk", "50 numbers", "cut to 10 bytes"),
    damaged("topk", "50 numbers", "a byte more"),
    damaged("topk", "50 numbers", "byte 11 is 3"),
    damaged("topk", "50 numbers", "byte 1 is 0"),
    damaged("topk", "50 numbers", "cut to 9 bytes"),
    damaged("topk", "50 numbers", "cut to 5 bytes"),
    damaged("randomk", "50 numbers", "byte 13 is 0"),
    damaged("thresholdv", "50 numbers", "byte 205 is 64"),
    damaged("adaptive_threshold", "50 numbers", "byte 116 is 8"),
    damaged("demo", "50 numbers", "byte 0 is 0"),
    damaged("atomo", "50 numbers", "cut to 0 bytes"),
    damaged("atomo", "50 numbers", "byte 0 is 2"),
    damaged("atomo", "50 numbers", "byte 0 is 1"),
    damaged("atomo", "400 numbers, most of them zero", "byte 27 is 127"),
    damaged("powersgd", "50 numbers", "byte 0 is 0"),
    damaged("powersgd", "50 numbers", "cut to 12 bytes"),
    damaged("powersgd", "5 x 10 numbers", "byte 15 is 127"),
    damaged("casq", "50 numbers", "byte 0 is 2"),
    damaged("casq", "50 numbers", "cut to 16 bytes"),
    damaged("casq", "50 numbers", "byte 0 is 1"),
    damaged("casq", "50 numbers", "cut to 172 bytes"),
    damaged("sketchml", "50 numbers", "byte 0 is 17"),
    damaged("sketchml", "50 equal numbers", "byte 12 is 0"),
    damaged("sketchml", "50 numbers", "byte 0 is 1"),
    damaged("sketchml", "50 equal numbers", "byte 60 is 0"),
    damaged("sketchml", "50 numbers", "byte 2 is 127"),
    damaged("qsgd coding=huffman", "50 numbers", "cut to 21 bytes"),
    damaged("qsgd coding=huffman", "50 numbers", "cut to 28 bytes"),
    damaged("qsgd coding=huffman", "50 numbers", "byte 4 is 16"),
    damaged("qsgd coding=huffman", "50 numbers", "cut to 17 bytes"),
    damaged("qsgd coding=huffman", "50 numbers", "byte 4 is 5"),
    damaged("nuqsgd coding=rans", "50 numbers", "byte 6 is 4"),
    damaged("sketchml rows=0", "50 equal numbers", "byte 20 is 1, a byte more"),
    damaged("bf16 coding=rans", "50 equal numbers", "a byte more"),
]
