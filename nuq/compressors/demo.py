"""DeMo: the largest coefficients of a cosine transform of every chunk of a gradient.

Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization", arXiv 2411.19870.

A tensor is a matrix, its first dimension against all others; a vector is one row.  It is cut into chunks of at most
``chunk`` x ``chunk``, nearly equal, and each is transformed, by rows and by columns, with the orthonormal DCT-II

    D[f, p] = sqrt(2 / s) cos(pi (2 p + 1) f / (2 s)),  and sqrt(1 / s) for f = 0,  s the length.

The k largest coefficients of each travel (``nuq.compressors.sparse``); the receiver transforms them back.  As D is
orthonormal, the error is the sum of squares of what was left out: a contraction.

The paper's Algorithm 1 is this method with error feedback, whose ``feedback.decay`` is the paper's beta: m = beta m +
gradient, and m - decoded(encoded(m)) is kept.  A worker's momentum is thus what error feedback calls its residual, and
the optimizer itself has none: ``feedback.decay=0.999 optim=sgd optim.momentum=0``, or ``optim=signsgd``, the paper's
variant, in which every coordinate moves by the sign of the mean.

Differences from the paper's code: its chunks have a dimension's largest divisor up to ``chunk`` as their side, here
nearly equal ones are padded with zeros (the same for multiples of ``chunk``); flat vectors (scope=model, what a
collective cuts) are rows of ``chunk`` coordinates; it divides a coefficient by the number of workers that sent it, here
by that of all; its learning rate is part of the momentum.  Error feedback's factor is 1 but for rounding.

Body of a message::

    chunk's rows uint8, chunk's columns uint8, 2 zero bytes, matrix's columns uint32
    the body of a sparse message (``nuq.compressors.sparse``) of all coefficients, chunk after chunk

Limit of the speed: 2 ``chunk`` products and sums a coordinate, each rounded in a fixed order, to encode and to decode.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nuq.compressors import sparse
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import Message, finite, flat, unpacked
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import selection
from nuq.kernels.low_rank import columns_of, left_product, num_rows, outer_product
from nuq.kernels.selection import Share
from nuq.kernels.spec import Key
from nuq.settings.sparse import MOST_CHUNK
from nuq.settings.sparse import DeMo as Settings

TAG = b"DEMO"
_HEAD = struct.Struct("<BBxxI")


class Chunks(NamedTuple):
    """The chunks of a matrix: ``down`` x ``across`` of them, each of ``height`` x ``width``, padded with zeros."""

    rows: int
    columns: int
    height: int
    width: int

    @classmethod
    def of(cls, size: int, columns: int, chunk: int) -> Chunks:
        rows = num_rows(size, columns)
        return cls(rows, columns, _side(rows, chunk), _side(columns, chunk))

    @property
    def down(self) -> int:
        return -(-self.rows // self.height)

    @property
    def across(self) -> int:
        return -(-self.columns // self.width)

    def share(self, k: int) -> Share:
        """The k largest coefficients of every chunk, or all."""
        area = self.height * self.width
        return Share(self.down * self.across * area, area, min(k, area), min(k, area))

    def transformed(self, x: Tensor) -> Tensor:
        """The coefficients of float32[size], chunk after chunk: float32[num_coordinates of ``share``]."""
        height, width, down, across = self.height, self.width, self.down, self.across
        x = torch.nn.functional.pad(x, (0, self.rows * self.columns - x.numel())).view(self.rows, self.columns)
        missing = across * width - self.columns, down * height - self.rows
        padded = torch.nn.functional.pad(x, (0, missing[0], 0, missing[1]))
        rows = padded.view(down, height, across, width).transpose(1, 2).contiguous()
        by_columns = left_product(rows.view(-1), width, _cosines(width, x.device))
        both = left_product(by_columns.view(-1), height, _cosines(height, x.device))
        return both.view(height, width, -1).permute(2, 0, 1).reshape(-1)

    def restored(self, coefficients: Tensor, size: int) -> Tensor:
        """The inverse of ``transformed``: float32[size]; the coefficients' memory is written over."""
        height, width, down, across = self.height, self.width, self.down, self.across
        both = coefficients.view(-1, height, width).permute(1, 2, 0).reshape(height, -1)
        by_columns = torch.empty_like(coefficients)
        outer_product(both, _cosines(height, coefficients.device), by_columns)
        del both
        outer_product(by_columns.view(width, -1), _cosines(width, coefficients.device), coefficients)
        del by_columns
        padded = coefficients.view(down, across, height, width).transpose(1, 2).reshape(down * height, across * width)
        return padded[: self.rows, : self.columns].reshape(-1)[:size]


class DeMo(Compressor):
    """The demo method: the k largest cosine coefficients of every chunk of a gradient."""

    shaped = True  # encode takes a parameter's own shape where scope=tensor
    exact_bytes = False
    settings: Settings

    def _chunks(self, tensor: Tensor, key: Key) -> Chunks:
        size, of_one = tensor.numel(), self.settings.scope == "tensor" and (key.piece_of or tensor.dim()) <= 1
        columns = columns_of(tensor.shape) if tensor.dim() > 1 else size if of_one else self.settings.chunk
        return Chunks.of(size, max(min(columns, size), 1), self.settings.chunk)

    def _sparse(self, share: Share) -> sparse.Sparse:
        """The compressor of coefficients, of which this share travels."""
        values, indices = self.settings.values, self.settings.indices
        return sparse.Sparse(lambda x, key: selection.top(x, share), lambda n: share.total, False, values, indices)

    def encode(self, tensor: Tensor, key: Key) -> Message:
        x = flat(tensor)
        selection.check_finite(x)
        chunks = self._chunks(tensor, key)
        coefficients = chunks.transformed(x)
        if not bool(torch.isfinite(coefficients).all()):
            raise NonFiniteError("the cosine transform of the gradient overflows float32")
        inner = self._sparse(chunks.share(self.settings.k)).encode(coefficients, key)
        return Message.of(TAG, x.numel(), _HEAD.pack(chunks.height, chunks.width, chunks.columns), inner.body)

    def _decoded(self, message: Message) -> Tensor:
        message.check_tag(TAG, _HEAD.size, "one of cosine coefficients")
        size = message.num_coordinates
        height, width, columns = unpacked(_HEAD, message.body)
        rows = num_rows(size, columns) if columns else 0
        sides = ((width, columns), (height, max(rows, 1)))
        if columns > max(size, 1) or not all(0 < side <= min(length, MOST_CHUNK) for side, length in sides):
            raise MessageError(f"chunks of {height} x {width} and {columns} columns of {size} coordinates: damaged")
        chunks = Chunks(rows, columns, height, width)
        share = chunks.share(self.settings.k)
        inner = Message(sparse.TAG, share.num_coordinates, message.body[_HEAD.size :])
        return finite(chunks.restored(self._sparse(share).decode(inner), size), "coordinate")

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message over all shapes, in which all coefficients of padded chunks travel."""
        chunk = self.settings.chunk
        padded = math.ceil((num_coordinates + chunk) * (1 + 1 / chunk) ** 2)
        return _HEAD.size + self._sparse(Share(padded, padded, padded, padded)).message_bytes(padded)

    def usual_bytes(self, num_coordinates: int) -> int:
        """The approximate length of a message of a square matrix."""
        chunks = Chunks.of(num_coordinates, max(columns_of((num_coordinates,)), 1), self.settings.chunk)
        share = chunks.share(self.settings.k)
        return _HEAD.size + self._sparse(share).message_bytes(share.num_coordinates)


def _side(length: int, chunk: int) -> int:
    """The side of nearly equal chunks of at most ``chunk``."""
    return -(-length // max(-(-length // chunk), 1)) or 1


@functools.cache
def _cosines(length: int, device: torch.device) -> Tensor:
    """The orthonormal DCT-II: float32[frequencies, places]."""
    frequencies, places = np.arange(length)[:, None], np.arange(length)
    basis = np.sqrt(2 / length) * np.cos(np.pi * (2 * places + 1) * frequencies / (2 * length))
    basis[0] = np.sqrt(1 / length)
    return torch.from_numpy(basis.astype(np.float32)).to(device)
