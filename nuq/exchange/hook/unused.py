"""The memories of parameters that no rank used in a step: they stay as they were.

With ``find_unused_parameters`` DDP hands over zeros for a parameter that this rank did not use.  If no rank used it,
DDP throws the mean away, so that a residual that was sent would be lost.  Which parameters those are DDP agrees on
after the last bucket, too late for the encoders.  So what is remembered of a parameter whose gradient is zero here is
copied before the exchange, and put back after the backward pass if no rank used the parameter.  A gradient of zeros of
a parameter that some rank used is an ordinary gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from nuq.compressors.feedback import ErrorFeedback
from nuq.exchange.flat_layout import FlatLayout

_Place = tuple[str, int, int]  # a vector that is encoded, and the coordinates of a parameter in it: first, end
_Remembered = list[dict[tuple[Any, ...], Tensor]]  # by memory


class Unused:
    """What is remembered of the parameters that this rank may not have used in the present step.

    model: under DDP with ``find_unused_parameters`` or ``static_graph``; for every other one nothing is done.
    """

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter], memories: Sequence[ErrorFeedback]):
        found = getattr(model, "find_unused_parameters", False) or getattr(model, "static_graph", False)
        self._reducer: Any = getattr(model, "reducer", None) if found and memories else None
        self._parameters = parameters  # in the order of DDP's map
        self._views = getattr(model, "gradient_as_bucket_view", False)
        self._memories = memories
        self._before: dict[str, tuple[_Place, _Remembered]] = {}  # by parameter

    def note(self, vector: Tensor, layout: FlatLayout, sizes: Mapping[str, int]) -> None:
        """Copy what is remembered of the parameters whose gradient is zero.

        vector: float[n], not yet encoded; sizes: coordinates of its parameters, in its order.
        """
        if self._reducer is None:
            return
        for name, place, gradient in _places(vector, layout, sizes):
            if not bool(gradient.any()):
                copies = [
                    {key: view.clone() for key, view in memory.remembered(*place).items()} for memory in self._memories
                ]
                self._before[name] = place, copies

    def settle(self) -> None:
        """Put back what was remembered of those that no rank used; the backward pass has ended."""
        if not self._before:
            return
        noted, self._before = self._before, {}
        used = self._reducer._get_local_used_map().tolist()  # since that end the map of all ranks
        for number, (name, parameter) in enumerate(self._parameters.items()):
            if name in noted and not used[number]:
                if self._views and parameter.grad is not None:  # in it lies what was decoded, and it was zero
                    parameter.grad.zero_()
                place, copies = noted[name]
                for memory, before in zip(self._memories, copies, strict=True):
                    for key, view in memory.remembered(*place).items():
                        if key in before:
                            view.copy_(before[key])
                        else:  # it was not there, which counts as zero
                            view.zero_()


def _places(vector: Tensor, layout: FlatLayout, sizes: Mapping[str, int]) -> Iterator[tuple[str, _Place, Tensor]]:
    """Each parameter that is encoded: its place in the encoded vector, and its gradient."""
    segments, start = iter(layout.segments), 0
    segment = next(segments, None)
    for name, size in sizes.items():
        while segment is not None and start >= segment.start + segment.size:
            segment = next(segments, None)
        if segment is not None and size and not segment.exact:
            first = max(segment.first, 0) + start - segment.start
            yield name, (segment.name, first, first + size), vector[start : start + size]
        start += size
