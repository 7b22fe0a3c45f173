"""PowerSGD: a gradient matrix as a product of two thin matrices.

Vogels, Karimireddy, Jaggi, NeurIPS 2019, arXiv 1905.13727.

With M of rows x columns and Q of columns x rank, P = orthonormal(M Q), Q = M^T P, and M is decoded as P Q^T = P P^T M:
a projection, so that the error is |M|^2 - |Q|^2, a contraction.  Matrices are as ``nuq.kernels.low_rank.columns_of``
has them; tensors of one dimension (see ``dense_1d``) and those whose factors would be no fewer numbers travel whole.

This file is one worker's message by itself: Q begins at random, from the key, and what the messages of M workers decode
to are added.  The paper's method averages the *factors* of all workers instead, in two rounds, warm-started
(``nuq.exchange.collectives.powersgd``): what the collectives gather and two_stage do with this method, with about 2
(M-1)/M times rank (rows + columns) numbers from each rank for a matrix with two_stage.  server and hierarchical send
these messages.

Body of a message::

    flags uint8 (1: whole, 2: half precision), 1 zero byte, rank uint16, columns uint32, exponent int16, 2 zero bytes
    whole:    float32[n]
    factors:  left [rank, rows], right [rank, columns] (times 2^exponent), float32 or float16

Differences from the paper's code: Q is made orthonormal, too, before M Q, which changes the rounding alone; a direction
that the matrix does not have is zero instead of noise divided by its norm.  Half precision rounds P first, and Q is
made for the rounded one.  A gradient of subnormal numbers may vanish.

Speed: two passes over the matrix for the products and, to decode, one to write it; per tensor some 0.1 ms are
Gram-Schmidt and calls.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nuq.compressors import floats
from nuq.compressors.compressor import MOST, InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message, finite, flat, from_bytes, unpacked
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.low_rank import (
    columns_of,
    left_product,
    num_rows,
    orthonormal,
    outer_product,
    right_product,
    saved,
    start,
)
from nuq.kernels.spec import Key
from nuq.settings.powersgd import PowerSGD as Settings

TAG = b"POWR"
START = "start of "  # before a vector's name, in a state
_HEAD = struct.Struct("<BxHIhxx")
_WHOLE, _HALF = 1, 2
_TOP_HALF = 15  # the largest number is brought below 2^15, so that rounding cannot overflow
_MOST = 2.0**124  # of the factors: beyond, sums of their products may overflow
_LEAST_EXPONENT, _MOST_EXPONENT = -126, 126


class PowerSGD(InPlace):
    """The PowerSGD compressor, with the starts of the power iteration."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.rank, self.half = settings.rank, settings.values == "fp16"
        self.exact_bytes = settings.scope == "model"
        self.shaped = not self.exact_bytes  # the length of a message depends on the tensor's shape
        # by vector, the right factors float32[rank, columns] of the collective's next iteration, alike on all ranks
        self.starts: dict[str, Tensor] = {}

    def columns(self, shape: Sequence[int], dims: int) -> int:
        """The columns of a tensor's matrix, 0 where it travels whole.  dims: of the parameter, even for a piece."""
        if self.settings.scope == "tensor" and self.settings.dense_1d and dims <= 1:
            return 0
        columns = columns_of(shape)
        return columns if saved(math.prod(shape), columns, self.rank) else 0

    def encode(self, tensor: Tensor, key: Key) -> Message:
        x = flat(tensor)
        columns = self.columns(tensor.shape, key.piece_of or tensor.dim())
        if not columns:
            if not bool(torch.isfinite(x).all()):
                raise NonFiniteError("the gradient is not finite")
            return Message.of(TAG, x.numel(), _HEAD.pack(_WHOLE, 0, 0, 0), x)
        right = start(columns, self.rank, key, x.device)
        for number in range(self.settings.iterations):
            left = orthonormal(_finite(left_product(x, columns, orthonormal(right) if number else right)))
            left = left.to(torch.float16).to(torch.float32) if self.half else left
            right = _finite(right_product(x, columns, left))
        if not self.half:
            return Message.of(TAG, x.numel(), _HEAD.pack(0, self.rank, columns, 0), left, right)
        largest = float(right.abs().amax())
        exponent = min(max(math.frexp(largest)[1] - _TOP_HALF, _LEAST_EXPONENT), _MOST_EXPONENT) if largest else 0
        right = (right * 2.0**-exponent).clamp_(-65504.0, 65504.0)
        head = _HEAD.pack(_HALF, self.rank, columns, exponent)
        return Message.of(TAG, x.numel(), head, left.to(torch.float16), right.to(torch.float16))

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "one of low rank")
        flags, rank, columns, exponent = unpacked(_HEAD, body)
        whole, half = flags == _WHOLE, flags == _HALF
        fits = rank and 0 < columns <= n and abs(exponent) <= _MOST_EXPONENT
        if flags not in (0, _WHOLE, _HALF) or not (whole or fits):
            raise MessageError(f"flags {flags}, rank {rank}, {columns} columns, exponent {exponent}: damaged")
        rows = 0 if whole else num_rows(n, columns)
        numbers, size = (n, 4) if whole else (rank * (rows + columns), 2 if half else 4)
        if body.numel() != _HEAD.size + numbers * size:
            raise MessageError(f"{body.numel()} bytes where {numbers} numbers take {_HEAD.size + numbers * size}")
        if whole:
            return partial(floats.read_, body[_HEAD.size :], torch.float32)
        values = from_bytes(body[_HEAD.size :], torch.float16 if half else torch.float32).to(torch.float32)
        left, right = values[: rank * rows].view(rank, rows), values[rank * rows :].view(rank, columns)
        left, right = finite(left, "number"), finite(right * 2.0**exponent if exponent else right, "number")
        if not _longest(left) * _longest(right) < MOST:
            raise MessageError("factors whose product overflows float32: damaged")
        return partial(outer_product, left, right)

    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message with scope=model; else, as it depends on the tensors' shapes, an upper bound."""
        whole = HEADER_BYTES + _HEAD.size + 4 * num_coordinates
        return self.usual_bytes(num_coordinates) if self.exact_bytes else whole

    def usual_bytes(self, num_coordinates: int) -> int:
        """The length of a message of a nearly square matrix."""
        columns = self.columns((num_coordinates,), 2)
        if not columns:
            return HEADER_BYTES + _HEAD.size + 4 * num_coordinates
        numbers = self.rank * (num_rows(num_coordinates, columns) + columns)
        return HEADER_BYTES + _HEAD.size + numbers * (2 if self.half else 4)

    @contextmanager
    def aside(self, name: str, part: slice) -> Iterator[None]:
        del part
        before = dict(self.starts)
        try:
            yield
        finally:
            if self.settings.scope == "tensor":  # else other parts of the same matrix make a new start
                self.starts.pop(name, None)
                self.starts |= {name: before[name]} if name in before else {}

    def state_dict(self) -> dict[str, Any]:
        return {f"{START}{name}": right.to("cpu", copy=True) for name, right in self.starts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.starts = {name.removeprefix(START): right.clone() for name, right in state.items()}


def _finite(factor: Tensor) -> Tensor:
    """The factor itself; NonFiniteError where it, and so the matrix, is not finite or overflows."""
    if not float(factor.abs().amax()) < _MOST:
        raise NonFiniteError("the gradient is not finite or overflows float32")
    return factor


def _longest(factor: Tensor) -> float:
    """The largest norm of what one coordinate takes from a factor float32[rank, ...]: at most 1 if orthonormal."""
    return float(torch.linalg.vector_norm(factor, dim=0, dtype=torch.float64).amax())
