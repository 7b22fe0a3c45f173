"""The compression methods, one file per method or family.

Families: ``quantized`` (QSGD, NUQSGD, TernGrad, ALQ, AMQ), ``sparse`` (top-k, random-k, thresholds, DGC), ``signs``,
``casts``, ``blockwise``.  The table ``nuq.registry.METHODS`` has the file of each method.

May import ``nuq.coding`` and the rooms below it.

A method provides:

- ``encode(vector, key) -> Message``: float[n] to the bytes that travel; NonFiniteError for a gradient that is not
  finite;
- ``decode(message, max_coordinates=None) -> Tensor``: float32[n], from the message alone: any instance decodes any
  instance's messages; MessageError for one that is damaged or claims more than ``max_coordinates``, before memory is
  asked for (``Message.check_count``);
- ``message_bytes(num_coordinates) -> int``: the length of its messages, by formula (the tests hold it to the real
  ones); where the length depends on the values, the most it can be;
- ``state_dict() / load_state_dict(state)``: plain numbers and tensors; under ``by_worker`` what is kept for each worker
  that was encoded here, plain numbers alone, so that a checkpoint can hold those of all processes.

Adaptive methods have more: see ``nuq.compressors.quantized.AdaptiveQuantizer``.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from nuq.compressors.message import Message
from nuq.kernels.spec import Key


class Compressor(Protocol):
    """A method of METHODS, built from its settings."""

    def encode(self, vector: Tensor, key: Key) -> Message: ...
    def decode(self, message: Message, max_coordinates: int | None = None) -> Tensor: ...
    def message_bytes(self, num_coordinates: int) -> int: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
