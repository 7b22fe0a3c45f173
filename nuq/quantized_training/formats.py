"""Formats: tensors of any shape, type and memory order as a method's bytes, which training keeps instead of float32.

A format is a method of METHODS that a tensor alone decides the bytes of (``nuq.registry.legal_formats``), with its
settings in one string::

    >>> from nuq.quantized_training.formats import Format
    >>> from nuq.kernels.operators import Key
    >>> import torch
    >>> packed = Format("fp16").pack(torch.ones(3, 5).t(), Key(seed=0, step=0, worker=0, parameter="x"))
    >>> packed.nbytes, packed.unpack().stride()
    (62, (1, 5))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.message import Message
from nuq.kernels.spec import DTYPES, Key
from nuq.parameters import dense
from nuq.registry import method
from nuq.settings.layers import parsed_format


@dataclass(frozen=True)
class Packed:
    """One tensor as the bytes of a message, on the tensor's device."""

    message: Message
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # of the tensor that ``unpack`` gives, without gaps
    dtype: torch.dtype
    compressor: Any = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The number of bytes that are held: codes, scales, masks and the message's header."""
        return self.message.num_bytes

    def unpack(self) -> Tensor:
        """A fresh tensor of this shape, stride and dtype; MessageError where the bytes are damaged."""
        place = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.message.body.device)
        numbers = _in_memory_order(place)
        if self.dtype == torch.float32:
            self.compressor.decode_into(self.message, numbers)
        else:
            decoded = self.compressor.decode(self.message, place.numel())
            # a number just below the largest may have been rounded up
            if self.dtype in (torch.float16, torch.bfloat16):
                decoded.clamp_(-torch.finfo(self.dtype).max, torch.finfo(self.dtype).max)
            numbers.copy_(decoded)
        return place


class Format:
    """A format for tensors: a method and its settings.

    spec: ``smaq``, ``smaq samples=16 bits_outlier=8`` or ``fp32``, which keeps tensors as they are (``parsed_format``).
    where: what errors call it.
    """

    def __init__(self, spec: str, where: str = "format") -> None:
        self.spec = spec
        self.name, self.settings = parsed_format(spec, where)
        self.compressor: Any = method(self.name).load()(self.settings)

    def __repr__(self) -> str:
        return f"Format({self.spec!r})"

    def pack(self, tensor: Tensor, key: Key) -> Packed:
        """Pack a tensor of any floating dtype (float64 goes through float32), if without gaps as it lies in memory.

        NonFiniteError for a tensor that is not finite; TypeError for one that is not of floating-point numbers.
        """
        if not tensor.is_floating_point():
            raise TypeError(f"a tensor of {tensor.dtype}: formats hold floating-point numbers")
        tensor = tensor.detach()
        if not dense(tensor):
            tensor = tensor.contiguous()
        numbers = _in_memory_order(tensor)
        if numbers.dtype not in DTYPES:
            numbers = numbers.to(torch.float32)
        if self.compressor.shaped:
            numbers = numbers.view(_sizes_in_memory_order(tensor))
        message = self.compressor.encode(numbers, key)
        return Packed(_compact(message), tuple(tensor.shape), tensor.stride(), tensor.dtype, self.compressor)

    def roundtrip(self, tensor: Tensor, key: Key) -> tuple[Tensor, int]:
        """The tensor that ``pack`` and ``unpack`` make of a tensor, and the number of bytes between them."""
        packed = self.pack(tensor, key)
        return packed.unpack(), packed.nbytes


def is_large(value: Any, min_size: int) -> bool:
    """Whether a value is a tensor to pack: of floating-point numbers, not sparse, of ``min_size`` or more."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.layout != torch.strided:
        return False
    return value.numel() >= min_size


def _in_memory_order(tensor: Tensor) -> Tensor:
    """The numbers of a dense tensor as they lie in memory: a view [n]."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _sizes_in_memory_order(tensor: Tensor) -> tuple[int, ...]:
    """The dimensions of a dense tensor, the one of the largest stride first."""
    order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), axis))
    return tuple(tensor.shape[axis] for axis in order)


def _compact(message: Message) -> Message:
    """The message in memory of its own, where more is held than it takes: coders reserve the most they may need."""
    held = message.body.untyped_storage().nbytes()
    if held <= message.num_bytes:
        return message
    return Message(message.tag, message.num_coordinates, message.body.clone())
