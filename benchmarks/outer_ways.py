"""The trainings that ``benchmarks.outer`` compares, as data: sizes of a model, and ways to train it on two ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Size:
    """The size of a GPT and of its training.

    batch: windows of a rank and step.  steps: of DDP.  The learning rate rises to ``lr`` over ``warm_up`` steps, and
    falls along a cosine to a tenth of it at a training's end.  eval_every: steps between two evaluations on ``test``
    held-out windows.
    """

    layers: int
    width: int
    batch: int
    steps: int
    warm_up: int
    eval_every: int
    test: int
    lr: float


@dataclass(frozen=True)
class Way:
    """A way to train: under DDP with the mean in bfloat16, or with ``nuq.OuterLoop`` and these settings.

    every: local steps of a round; 1 is DDP.  plain: the way of the same rhythm that sends float32, where there is one.
    inner: ``adamw`` or ``muon``.  longer: its training has so many times DDP's steps.
    """

    title: str
    every: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    plain: str = ""
    inner: str = "adamw"
    longer: float = 1.0

    def num_steps(self, size: Size) -> int:
        """The steps of its training, in whole rounds."""
        return self.every * max(round(self.longer * size.steps / self.every), 1)


DDP, SPARSE = "ddp", "sparse_loco"
SIZES = {
    "10M": Size(layers=6, width=384, batch=4, steps=336, warm_up=32, eval_every=12, test=128, lr=7e-4),
    "quick": Size(layers=1, width=16, batch=2, steps=24, warm_up=4, eval_every=12, test=8, lr=3e-3),
}
_MEAN = {"outer_lr": 1.0, "outer_momentum": 0.0, "nesterov": False}  # the outer parameters are the ranks' mean
_ALQ = {"method": "alq", "bits": 3, **_MEAN}
_TOP = {"method": "topk", "bucket_size": 4096, "ratio": 64 / 4096, "values": "2bit", "decay": 0.95, "min_size": 0}
WAYS = {
    DDP: Way("DDP, bf16"),
    "diloco": Way("DiLoCo, float32", 24, {"method": "supersgd", **_MEAN}, longer=1.4),
    "alq": Way("DiLoCo, ALQ", 24, _ALQ, "diloco", longer=1.4),
    "alq_72": Way("DiLoCo, ALQ", 72, _ALQ, longer=1.5),
    SPARSE: Way("SparseLoCo", 12, {**_TOP, **_MEAN}, longer=2.0),
    "muloco": Way("MuLoCo, ALQ", 24, _ALQ, inner="muon"),
}
