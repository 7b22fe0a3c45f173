"""SGD and SuperSGD: float32 as it is.  The body is the 4n bytes of the vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nuq.message import HEADER_BYTES, Message, MessageError, as_bytes, from_bytes
from nuq.ops import Key, NonFiniteError

TAG = b"FP32"


class FullPrecision:
    """Bits per coordinate: 32, and a header."""

    def __init__(self, settings: Any = None) -> None:
        del settings

    def encode(self, vector: Tensor, key: Key) -> Message:
        del key
        if not bool(torch.isfinite(vector).all()):
            raise NonFiniteError("the gradient is not finite")
        return Message(TAG, vector.numel(), as_bytes(vector.to(torch.float32)))

    def decode(self, message: Message) -> Tensor:
        if message.tag != TAG or message.body.numel() != 4 * message.num_coordinates:
            raise MessageError(
                f"a message tagged {message.tag!r} with {message.body.numel()} bytes is not {TAG!r} with 4 bytes a coordinate"
            )
        return from_bytes(message.body, torch.float32)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + 4 * num_coordinates

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state
