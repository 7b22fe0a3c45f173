"""What an exchange of workers gives: the mean and what it took, or the error that all processes raise together."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nuq.errors import NonFiniteError


@dataclass(frozen=True)
class Exchanged:
    """The result of one exchange: the mean gradient as one flat float32 vector, and what the exchange took.

    bytes_per_worker: of the messages, and of the means in a second encoding, that the first worker hosted here encoded,
    however often they travelled; on the first process the same in every split.  means_bytes: the means' share of them.
    unused: the parameters that no worker used, whose mean is zero.
    """

    mean: Tensor
    losses: list[float]
    bytes_per_worker: int
    stop: bool
    means_bytes: int = 0
    unused: frozenset[str] = frozenset()


class BadGradientError(NonFiniteError):
    """The error for a worker's gradient or loss that is not finite, known to all before a memory has changed.

    losses: of all workers; stop: whether any process was asked to stop.
    """

    def __init__(self, why: str, losses: list[float], stop: bool) -> None:
        super().__init__(why)
        self.losses, self.stop = losses, stop
