"""Error feedback: what a message left out is added to the next gradient (Seide et al., 2014; Karimireddy et al., ICML 2019).

With p = gradient + residual and q = decoded(encoded(p)), the message stands for beta q and the residual becomes p - beta q, where
beta = <p, q> / <q, q> within [0, 1] makes every message a contraction: |p - beta q| <= |p|, also for unbiased quantizers, whose error
alone may be larger than p.  (The usual remedy divides by 1 + w with w the worst case of the variance; beta is the best such factor for
the message at hand.)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nuq.compressors import Compressor
from nuq.message import HEADER_BYTES, Message, MessageError, parse
from nuq.ops import Key

TAG = b"BETA"
_FACTOR = struct.Struct("<f")
_PLACE = re.compile(r"(?P<name>.*?)(\[(?P<first>\d+)\])?")


class ErrorFeedback:
    """Any method with a memory.  sizes: coordinates of every parameter that has one; others are encoded without.

    A message is 32 bytes longer than the method's own: its factor travels with it.  Where a vector is a piece of a parameter
    (``nuq.payload.Part.key_name``), so is its residual, so that the memory does not depend on how a collective cuts.
    """

    def __init__(self, inner: Compressor, sizes: Mapping[str, int]) -> None:
        self.inner = inner
        self.sizes = dict(sizes)
        self.residuals: dict[str, Tensor] = {}  # float32[size] by parameter
        self._before: list[tuple[Tensor, Tensor]] = []  # residuals of messages that may yet be thrown away, and what they were
        self.may_undo = False

    def _residual(self, key: Key, vector: Tensor) -> Tensor:
        """The memory of this vector: a piece of its parameter's, zeros at first."""
        place = _PLACE.fullmatch(key.parameter)
        assert place is not None
        name, first = place["name"], int(place["first"] or 0)
        if name not in self.sizes:
            return torch.zeros(vector.numel(), dtype=torch.float32, device=vector.device)
        if name not in self.residuals:
            self.residuals[name] = torch.zeros(self.sizes[name], dtype=torch.float32, device=vector.device)
        return self.residuals[name][first : first + vector.numel()]

    def encode(self, vector: Tensor, key: Key) -> Message:
        residual = self._residual(key, vector)
        wanted = vector + residual  # float32
        message = self.inner.encode(wanted, key)
        decoded = self.inner.decode(message)
        square = float(torch.dot(decoded, decoded))
        factor = float(torch.dot(wanted, decoded)) / square if square > 0 else 0.0
        head = torch.frombuffer(bytearray(_FACTOR.pack(min(max(factor, 0.0), 1.0))), dtype=torch.uint8)
        if self.may_undo:
            self._before.append((residual, residual.clone()))
        torch.sub(wanted, decoded.mul_(_FACTOR.unpack(bytes(head.numpy()))[0]), out=residual)
        return Message(TAG, vector.numel(), torch.cat([head.to(vector.device), message.to_bytes()]))

    def settle(self, *, undo: bool = False) -> None:
        """The messages since the last call have counted, or (undo) were thrown away on all ranks."""
        for residual, before in self._before if undo else ():
            residual.copy_(before)
        self._before = []

    def decode(self, message: Message) -> Tensor:
        if message.tag != TAG or message.body.numel() < _FACTOR.size:
            raise MessageError(f"a message tagged {message.tag!r} with {message.body.numel()} bytes is not a scaled one ({TAG!r})")
        (factor,) = _FACTOR.unpack(bytes(message.body[: _FACTOR.size].cpu().numpy()))
        if not 0.0 <= factor <= 1.0:
            raise MessageError(f"a scale of {factor}: damaged, it lies between 0 and 1")
        inner = parse(message.body[_FACTOR.size :])
        if inner.num_coordinates != message.num_coordinates:
            raise MessageError(f"{inner.num_coordinates} coordinates inside a message of {message.num_coordinates}: damaged")
        return self.inner.decode(inner).mul_(factor)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + _FACTOR.size + self.inner.message_bytes(num_coordinates)

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "residuals": {name: residual.clone() for name, residual in self.residuals.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self.residuals = {name: residual.clone() for name, residual in state["residuals"].items()}
