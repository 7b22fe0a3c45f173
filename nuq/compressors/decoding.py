"""What methods share that decode into memory of the caller's, and that keep no state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from nuq.message import Message


class InPlace(ABC):
    """``decode`` and ``add`` by one method that writes or adds."""

    @abstractmethod
    def _decode(self, message: Message, total: Tensor, *, accumulate: bool) -> None:
        """total float32[n] becomes, or grows by, what the message holds; MessageError where it is damaged."""

    def decode(self, message: Message) -> Tensor:
        total = torch.empty(message.num_coordinates, dtype=torch.float32, device=message.body.device)
        self.decode_into(message, total)
        return total

    def decode_into(self, message: Message, total: Tensor) -> None:
        """total = decode(message), in the caller's memory.  total: float32[n]."""
        self._decode(message, total, accumulate=False)

    def add(self, message: Message, total: Tensor) -> None:
        """total += decode(message), in one pass.  total: float32[n]."""
        self._decode(message, total, accumulate=True)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state
