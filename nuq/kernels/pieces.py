"""Many pieces of a vector in one call into C++: encoded into the bodies of a frame, or added out of them.

The bytes of a body are those of ``nuq.compressors.body`` without entropy coding, rotation and dither, the bits those of
the operators: a call per piece costs more than a small piece's work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.kernels import bit_packing
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import (
    DTYPES,
    NORMS,
    Among,
    Words,
    check_among,
    check_input,
    check_num_coordinates,
    check_tensor,
    scales_per_bucket,
)
from nuq.native import FLOAT, INT, LONG, POINTER, WORD, Signature, address, functions

_CPU = torch.device("cpu")
_PLACES, _LEVELS, _HEAD, _INTO = [POINTER] * 4, (POINTER, INT, INT), (POINTER, LONG), (POINTER, INT)
_SIGNATURES: dict[str, Signature] = {
    "nuq_encode_pieces": (
        [
            *(POINTER, INT, LONG),
            *_PLACES,
            *(WORD, WORD, LONG, INT, FLOAT, INT),
            *_LEVELS,
            *_HEAD,
            *[POINTER] * 3,
            *_INTO,
        ],
        LONG,
    ),
    "nuq_add_pieces": ([POINTER, LONG, *_PLACES, *(LONG, INT, INT), *_LEVELS, *_HEAD, FLOAT, *_INTO], LONG),
}
_function = functions(_SIGNATURES)
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Format:
    """What the bodies of all pieces have in common.

    head: their first bytes.  levels: float32[L]; travel: whether they stand in every body, behind the head.
    """

    bucket_size: int
    norm: str
    packing: int
    levels: Tensor
    travel: bool
    head: bytes
    multiple: float = 0.0

    def body_bytes(self, sizes: Places) -> Places:
        """The lengths of the bodies of pieces of these sizes."""
        scales = -(-sizes // self.bucket_size) * scales_per_bucket(self.norm)
        codes = -(-sizes // 5) if self.packing == bit_packing.TERNARY else -(-sizes * self.packing // 8)
        return len(self.head) + 4 * self.levels.numel() * self.travel + 4 * scales + codes


def together(*tensors: Tensor) -> bool:
    """Whether pieces of these tensors can go in one call."""
    return all(in_cpp(tensor, contiguous=True) for tensor in tensors)


def encode_(
    vector: Tensor,
    starts: Places,
    sizes: Places,
    words: NDArray[np.uint32],
    among: Among,
    frame: Tensor,
    bodies: Places,
    ends: Places,
    how: Format,
    *,
    kept: Tensor | None = None,
    wanted: Tensor | None = None,
    decoded: Tensor | None = None,
) -> int:
    """Encode the pieces: -1, or the first whose gradient is not finite.

    vector: float[n]; starts, sizes: of the pieces; words: uint32[count, 2] behind their random numbers; among:
    the worker's place among those that share them, and their number; frame: uint8[bytes]; bodies, ends: where the body
    of each begins, at multiples of 4, and ends.

    kept float32[n]: what is added to the vector, with room for that sum, ``wanted``.  decoded: room for what the bodies
    hold.  Where a gradient is not finite both contain nothing of use.
    """
    check_input(vector[:0], how.bucket_size, how.norm)
    check_among(among)
    check_num_coordinates(int(sizes.max(initial=0)))
    _check(vector.numel(), starts, sizes, frame, bodies, ends)
    assert (ends - bodies == how.body_bytes(sizes)).all()
    beside = (kept, wanted, decoded)
    for each in beside:
        if each is not None:
            check_tensor(each, "what lies beside the vector", _CPU, torch.float32, vector.numel())
            assert each.is_contiguous()
    assert (kept is None) == (wanted is None)
    assert words.shape == (len(starts), 2) and words.dtype == np.uint32 and words.flags.c_contiguous
    return _function("nuq_encode_pieces")(
        vector.data_ptr(),
        DTYPES.index(vector.dtype),
        len(starts),
        address(starts),
        address(sizes),
        address(bodies),
        address(words),
        *among,
        how.bucket_size,
        NORMS.index(how.norm),
        how.multiple,
        how.packing,
        how.levels.data_ptr(),
        how.levels.numel(),
        how.travel,
        how.head,
        len(how.head),
        frame.data_ptr(),
        *(None if each is None else each.data_ptr() for each in beside),
        torch.get_num_threads(),
    )


def add_(
    frame: Tensor,
    bodies: Places,
    ends: Places,
    total: Tensor,
    starts: Places,
    sizes: Places,
    how: Format,
    factor: float = 1.0,
) -> int:
    """Add ``factor`` (-1 to 1) times the decoded pieces to the total: -1, or the first left out, for a closer look.

    It is damaged, or of another format, or its numbers are so large that a sum might overflow.  Those before it are
    added.  total: float32[n]; the rest as in ``encode_``.
    """
    check_tensor(total, "a total", _CPU, torch.float32)
    _check(total.numel(), starts, sizes, frame, bodies, ends)
    return _function("nuq_add_pieces")(
        frame.data_ptr(),
        len(starts),
        address(starts),
        address(sizes),
        address(bodies),
        address(ends),
        how.bucket_size,
        how.norm == "quantile",
        how.packing,
        how.levels.data_ptr(),
        how.levels.numel(),
        how.travel,
        how.head,
        len(how.head),
        factor,
        total.data_ptr(),
        torch.get_num_threads(),
    )


def encode_one(
    vector: Tensor,
    kept: Tensor | None,
    wanted: Tensor,
    words: Words,
    among: Among,
    body: Tensor,
    decoded: Tensor,
    how: Format,
) -> bool:
    """Encode a whole vector, plus ``kept`` if any, into one body, and decode it again; False where it is not finite.

    Arguments as in ``encode_``; ``wanted`` is written where something is kept.
    """
    sizes, start, end = np.array([[vector.numel()], [0], [body.numel()]])
    own = np.array([words], dtype=np.uint32)
    beside = {} if kept is None else {"kept": kept, "wanted": wanted}
    return encode_(vector, start, sizes, own, among, body, start, end, how, decoded=decoded, **beside) < 0


def add_one(body: Tensor, total: Tensor, how: Format, factor: float) -> bool:
    """Add ``factor`` times a decoded body to the total; False where it is left out, as in ``add_``."""
    size, start, end = np.array([[total.numel()], [0], [body.numel()]])
    return add_(body, start, end, total, start, size, how, factor) < 0


def _check(num_coordinates: int, starts: Places, sizes: Places, frame: Tensor, bodies: Places, ends: Places) -> None:
    """What C++ takes for granted: a wrong size or place would read or write beside the tensors."""
    check_tensor(frame, "a frame", _CPU, torch.uint8)
    for places in (starts, sizes, bodies, ends):
        assert places.dtype == np.int64 and places.flags.c_contiguous and places.shape == starts.shape
    if not len(starts):
        return
    inside = starts.min() >= 0 and sizes.min() >= 0 and (starts + sizes).max() <= num_coordinates
    assert inside and bodies.min() >= 0 and (bodies <= ends).all() and ends.max() <= frame.numel()
    assert frame.data_ptr() % 4 == 0 and not (bodies % 4).any()
