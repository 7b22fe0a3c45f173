"""SGD and SuperSGD: float32 as it is.  The body is the 4n bytes of the vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nuq import selection
from nuq.message import HEADER_BYTES, Message, MessageError, from_bytes
from nuq.ops import Key

TAG = b"FP32"


class FullPrecision:
    """Bits per coordinate: 32, and a header."""

    def __init__(self, settings: Any = None) -> None:
        del settings

    def encode(self, vector: Tensor, key: Key) -> Message:
        """NonFiniteError for a gradient that is not finite.  One copy, which is what limits the speed: its memory is fresh."""
        del key
        message = Message.room_for(TAG, vector.numel(), 4 * vector.numel(), vector.device)
        sent = message.body.view(torch.float32)
        sent.copy_(vector.reshape(-1))
        selection.check_finite(sent)
        return message

    def decode(self, message: Message) -> Tensor:
        return self._numbers(message).clone()

    def decode_into(self, message: Message, total: Tensor) -> None:
        """total = decode(message), without a copy between.  total: float32[n]."""
        total.copy_(self._numbers(message))

    def add(self, message: Message, total: Tensor) -> None:
        """total += decode(message), without a copy."""
        total += self._numbers(message)

    def _numbers(self, message: Message) -> Tensor:
        """float32[n]; the message's own memory, where that is aligned."""
        if message.tag != TAG or message.body.numel() != 4 * message.num_coordinates:
            raise MessageError(
                f"a message tagged {message.tag!r} with {message.body.numel()} bytes is not {TAG!r} with 4 bytes a coordinate"
            )
        body = message.body
        return body.view(torch.float32) if body.storage_offset() % 4 == 0 else from_bytes(body, torch.float32)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + 4 * num_coordinates

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state
