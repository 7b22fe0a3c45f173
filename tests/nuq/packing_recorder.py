"""A storage format of saved tensors that notes what it is given."""

from __future__ import annotations

import weakref

from torch import Tensor

from nuq.kernels.spec import Key
from nuq.quantized_training.formats import Format, Packed

MIN_SIZE = 64


class Recorder:
    """Packs exactly (or in ``spec``), and keeps what it was given, not the packed forms."""

    def __init__(self, spec: str = "fp32") -> None:
        self.format, self.given, self.packed = Format(spec), [], []

    def __call__(self, tensor: Tensor) -> Packed:
        packed = self.format.pack(tensor, Key(1, 0, 0, str(len(self.given))))
        self.given.append(tuple(tensor.shape))
        self.packed.append(weakref.ref(packed))
        return packed

    @property
    def alive(self) -> int:
        return sum(packed() is not None for packed in self.packed)
