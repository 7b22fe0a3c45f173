"""The parts that decoders share: a limit to the claimed size, decoding into given memory, and an empty state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.message import Message, finite
from nuq.errors import MessageError

MOST = torch.finfo(torch.float32).max
Write = Callable[..., None]  # (total float32[n], *, accumulate): the total becomes, or grows by, what a message holds


class Decoder(ABC):
    """A base class that decodes within a limit, and adds by decoding."""

    @abstractmethod
    def _decoded(self, message: Message) -> Tensor:
        """Decode a message whose count is checked: float32[n].

        Memory is asked for where the body can hold what it claims.
        """

    def decode(self, message: Message, max_coordinates: int | None = None) -> Tensor:
        """Decode a message: float32[n].

        MessageError for a damaged message, and for more coordinates than ``Message.check_count`` lets through.
        """
        message.check_count(max_coordinates)
        return self._decoded(message)

    def add(self, message: Message, total: Tensor) -> None:
        """Add the decoded message: total += decode(message).

        total: float32[n].
        """
        message.check_fits(total)
        self._add(message, total)

    def _add(self, message: Message, total: Tensor) -> None:
        total += self._decoded(message)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


class InPlace(Decoder):
    """A base class whose ``decode`` and ``add`` use one function that writes or adds."""

    @abstractmethod
    def _opened(self, message: Message) -> Write:
        """The function that writes or adds; MessageError where the body does not hold what it claims.

        The function may raise ValueError for damage that it meets.
        """

    def _decoded(self, message: Message) -> Tensor:
        write = self._opened(message)
        total = torch.empty(message.num_coordinates, dtype=torch.float32, device=message.body.device)
        _run(write, total, accumulate=False)
        return total

    def decode_into(self, message: Message, total: Tensor) -> None:
        """Decode into the caller's memory: total = decode(message).

        total: float32[n].
        """
        message.check_fits(total)
        _run(self._opened(message), total, accumulate=False)

    def _add(self, message: Message, total: Tensor) -> None:
        _run(self._opened(message), total, accumulate=True)


def write_constant(value: float, total: Tensor, *, accumulate: bool) -> None:
    """A ``Write`` of one number to every coordinate."""
    total.add_(value) if accumulate else total.fill_(value)


def careful(write: Write) -> Write:
    """A ``Write`` with a MessageError where finite numbers give a result that is not finite."""

    def checked(total: Tensor, *, accumulate: bool) -> None:
        decoded = torch.empty_like(total)
        write(decoded, accumulate=False)
        finite(decoded, "coordinate")
        total.add_(decoded) if accumulate else total.copy_(decoded)

    return checked


def largest(scales: Tensor) -> float:
    """The largest magnitude, or 0 where there is none."""
    return float(scales.abs().amax()) if scales.numel() else 0.0


def _run(write: Write, total: Tensor, *, accumulate: bool) -> None:
    try:
        write(total, accumulate=accumulate)
    except MessageError:
        raise
    except ValueError as error:  # a code beyond the levels
        raise MessageError(str(error)) from error
