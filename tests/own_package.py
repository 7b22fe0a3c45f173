"""A tiny package of a user's own: a method, a data set, a model and a sweep; and what an installer writes beside it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuq.settings import plugins
from settings import resolving

INIT = """
from my_package.settings import Toy
from nuq.registry import METHODS, Method

__version__ = "1.2"

METHODS["mine"] = Method("My method", Toy, "my_package.compressor:ToyCompressor")
try:
    from settings.data import DATA, DataRecord, Embedded
    from settings.models import ANYTHING, MODELS, Model, ModelRecord
except ModuleNotFoundError:  # nuq alone is here, without the checkout
    pass
else:
    DATA["light"] = DataRecord(Embedded, "my_package.data:Light", 4, (1, 8, 8), (400, 40))
    MODELS["tiny"] = ModelRecord(Model, "my_package.model:tiny", ANYTHING)
"""
SETTINGS = '''
from dataclasses import dataclass

from nuq.settings import setting


@dataclass
class Toy:
    """What the toy reads."""

    bits: int = setting(4, "bits of one toy code", low=1, high=8)
'''
COMPRESSOR = '''
"""Equally spaced levels between plus and minus the largest magnitude, rounded at random."""

import struct

import torch

from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import bit_packing, reference

HEAD = struct.Struct("<Bf")


class ToyCompressor(Compressor):
    def __init__(self, settings):
        super().__init__(settings)
        self.bits = settings.bits

    def encode(self, tensor, key):
        x = tensor.reshape(-1).to(torch.float64)
        scale = float(x.abs().max()) if x.numel() else 0.0
        if not scale < float("inf"):
            raise NonFiniteError("the gradient is not finite")
        top = 2**self.bits - 1
        places = (x / (scale or 1.0) + 1) / 2 * top
        codes = (places + reference.uniforms(x.numel(), key)).floor().clamp(0, top).to(torch.int32)
        head = torch.frombuffer(bytearray(HEAD.pack(self.bits, scale)), dtype=torch.uint8)
        return Message(b"TOYS", x.numel(), torch.cat([head, bit_packing.pack_codes(codes, self.bits)]))

    def _decoded(self, message):
        n, body = message.num_coordinates, message.body
        if message.tag != b"TOYS" or body.numel() < HEAD.size:
            raise MessageError("not a toy")
        bits, scale = HEAD.unpack(bytes(body[: HEAD.size].numpy()))
        size = HEAD.size + bit_packing.packed_bytes(n, bits) if 1 <= bits <= 8 else -1
        if not 0 <= scale < float("inf") or body.numel() != size:
            raise MessageError("a damaged toy, or one whose scale is not finite")
        codes = bit_packing.unpack_codes(body[HEAD.size :], n, 2**bits, bits)
        return ((codes.double() / (2**bits - 1) * 2 - 1) * scale).float()

    def message_bytes(self, n):
        return HEADER_BYTES + HEAD.size + bit_packing.packed_bytes(n, self.bits)
'''
DATA = '''
"""Pictures that are as light as their class."""

import numpy as np

from train.data.dataset import Arrays, Normalization
from train.data.source import Source, Splits


class Light(Source):
    normalization = Normalization((0.35,), (0.26,))

    def read(self) -> Splits:
        train, test = (np.arange(count) % self.num_classes for count in self.record.sizes)
        return self._of(train), self._of(test)

    def _of(self, labels):
        return Arrays(np.tile((60 * labels).astype(np.uint8)[:, None, None, None], (1, *self.input_shape())), labels)
'''
MODEL = '''
"""A linear model."""

import math

from torch import nn


def tiny(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))
'''
SWEEPS = '''
"""Sweeps of the package."""

from grid.engine.sweep import Sweep, axis, point, product

TASK = point("toy", data="light", method="mine", model="tiny", steps=4, eval_every=4, workers=2, batch_size=8)


def toys() -> Sweep:
    """The toy at two numbers of bits."""
    return Sweep(product(TASK, axis("method.bits=2,4")), seeds=[1])
'''
FILES = {
    "__init__": INIT,
    "settings": SETTINGS,
    "compressor": COMPRESSOR,
    "data": DATA,
    "model": MODEL,
    "sweeps": SWEEPS,
}


def write(folder: Path) -> Path:
    """Write the package ``my_package`` to a folder; returns its own."""
    package = folder / "my_package"
    package.mkdir(parents=True)
    for name, text in FILES.items():
        (package / f"{name}.py").write_text(text.lstrip())
    return package


def install(folder: Path, name: str, version: str, entry_points: str) -> None:
    """Write what an installer leaves of a distribution in a folder: its name, version and entry points."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


@contextmanager
def restored() -> Iterator[None]:
    """Afterwards the tables, and what is imported once, are as before."""
    before = {kind: dict(table) for kind, (table, _) in plugins.TABLES.items()}
    modules = set(sys.modules)
    try:
        yield
    finally:
        for kind, (table, _) in plugins.TABLES.items():
            table.clear()
            table.update(before[kind])
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] in ("my_package", "bad"):
                del sys.modules[name]
        plugins.load.cache_clear()
        resolving.of_words.cache_clear()
        plugins.named_by_option.clear()
        importlib.invalidate_caches()
