"""The interface of a compressor, with defaults for what a method need not say, and the parts that decoders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.frame import Frame, Pieces, told
from nuq.compressors.message import Message, finite
from nuq.errors import MessageError
from nuq.kernels.spec import Key
from nuq.settings import check

MOST = torch.finfo(torch.float32).max
Write = Callable[..., None]  # (total float32[n], *, accumulate): the total becomes, or grows by, what a message holds


class Compressor(ABC):
    """A method of METHODS, built from its settings.

    shaped: ``encode`` takes a parameter's own shape where scope=tensor.  exact_bytes: ``message_bytes`` is the length
    of every message, not only the most it can be.  overshoots: what a message leaves out is least over steps, not now
    (``nuq.compressors.feedback``).  least_part: the coordinates that an owner needs in two stages
    (``nuq.exchange.mean_error``).
    """

    shaped: bool = False
    exact_bytes: bool = True
    overshoots: bool = False
    least_part: int = 0

    def __init__(self, settings: Any) -> None:
        """Keep checked settings, and how they round (see ``Key.together``); ValueError for one out of range."""
        check(type(settings), vars(settings), "")
        self.settings = settings
        rounding = getattr(settings, "rounding", "nearest")
        self.stochastic, self.correlated = rounding != "nearest", rounding == "correlated"

    @property
    def method(self) -> Compressor:
        """The method itself, without a memory around it."""
        return self

    @abstractmethod
    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient float[n]: the bytes that travel.  NonFiniteError where it is not finite."""

    @abstractmethod
    def _decoded(self, message: Message) -> Tensor:
        """Decode a message whose count is checked: float32[n]; memory is taken once the body can hold its claims."""

    @abstractmethod
    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message, by formula; where it depends on the values, the most it can be."""

    def usual_bytes(self, num_coordinates: int) -> int:
        """The usual length of a message, by which a collective is chosen."""
        return self.message_bytes(num_coordinates)

    def decode(self, message: Message, max_coordinates: int | None = None) -> Tensor:
        """Decode a message of any instance: float32[n]; MessageError for damage, and as ``Message.check_count``."""
        message.check_count(max_coordinates)
        return self._decoded(message)

    def decode_into(self, message: Message, total: Tensor) -> None:
        """Decode into the caller's memory float32[n]: total = decode(message)."""
        message.check_fits(total)
        total.copy_(self._decoded(message))

    def add(self, message: Message, total: Tensor) -> None:
        """Add the decoded message to float32[n]: total += decode(message)."""
        message.check_fits(total)
        self._add(message, total)

    def _add(self, message: Message, total: Tensor) -> None:
        total += self._decoded(message)

    def encode_sum(self, vector: Tensor, kept: Tensor | None, key: Key) -> tuple[Tensor, Message, Tensor]:
        """Encode vector + ``kept`` float32[n], if any: what is encoded, its message, and that decoded, float32[n]."""
        wanted = vector if kept is None else vector + kept.view(vector.shape)
        message = self.encode(wanted, key)
        return wanted, message, self.decode(message, vector.numel())

    def add_scaled(self, message: Message, factor: float, total: Tensor) -> None:
        """Add a factor from 0 to 1 times the decoded message to float32[n]: total += factor * decode(message)."""
        message.check_fits(total)
        total += self._decoded(message).mul_(factor)

    def encode_pieces(self, vector: Tensor, pieces: Pieces, key: Key, frame: Frame) -> None:
        """Encode pieces of a vector, of lengths known beforehand; ``PieceError`` names the first one not finite."""
        for number, piece, own in pieces.each(vector, key, shaped=self.shaped):
            with told(number):
                frame.put(number, self.encode(piece, own))

    def add_pieces(self, frame: Frame, pieces: Pieces, total: Tensor) -> None:
        """Add the decoded messages of a frame to their places in a total float32[n]."""
        for number, start, size in pieces.places():
            self.add(frame.message(number), total[start : start + size])

    def indices(self, message: Message) -> Tensor | None:
        """The coordinates that a message holds: int64[k], or None for all."""
        del message
        return None

    def aside(self, name: str, part: slice) -> AbstractContextManager[None]:
        """Keep what is remembered of a part of a vector out of its next message, and as it is.

        name: of the vector, or of a piece of one, as keys have it; part: of that.
        """
        del name, part
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """The state; ``by_worker`` holds plain numbers for each worker encoded here, which processes can gather."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        del state


class InPlace(Compressor):
    """A base class whose ``decode`` and ``add`` use one function that writes or adds."""

    @abstractmethod
    def _opened(self, message: Message) -> Write:
        """The function that writes or adds (ValueError for damage); MessageError where the body lacks its claims."""

    def _decoded(self, message: Message) -> Tensor:
        write = self._opened(message)
        total = torch.empty(message.num_coordinates, dtype=torch.float32, device=message.body.device)
        _run(write, total, accumulate=False)
        return total

    def decode_into(self, message: Message, total: Tensor) -> None:
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


def _run(write: Write, total: Tensor, *, accumulate: bool) -> None:
    try:
        write(total, accumulate=accumulate)
    except MessageError:
        raise
    except ValueError as error:  # a code beyond the levels
        raise MessageError(str(error)) from error
