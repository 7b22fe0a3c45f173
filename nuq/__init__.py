"""Gradient compression for data-parallel SGD: QSGD, NUQSGD, TernGrad, ALQ, AMQ, measured in bytes that travel;
quantized training.

``nuq.registry`` holds the table of methods and imports no torch; levels, distributions and adapt are NumPy; the rest is
PyTorch::

    from nuq.registry import METHODS
    from nuq.kernels.operators import Key
    from nuq.compressors.message import parse

    method = METHODS["alq"]
    compressor = method.load()(method.settings(bits=3, bucket_size=8192))
    data = compressor.encode(gradient, Key(seed=1, step=0, worker=0, parameter="model")).to_bytes()
    restored = compressor.decode(parse(data))

Between real processes::

    state = nuq.CompressionState(ddp, method="alq", bits=3)
    ddp.register_comm_hook(state, nuq.compress_hook)     # an ordinary DDP training, compressed
    mean = nuq.all_reduce(tensor, "alq", step=step)      # one tensor, as for outer loops
    nuq.compress_fsdp(model, "alq", bits=4)              # FSDP2's reduce-scatter

Every large tensor of training in a compressed format, on one's own model and optimizer::

    compressed = nuq.CompressedTraining(model, optimizer, weights="smaq", activations="smaq", moments="smaq")

These names bring torch in when they are first used; ``import nuq`` alone does not.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "CompressionState": "nuq.ddp",
    "compress_hook": "nuq.ddp",
    "all_reduce": "nuq.functional",
    "compress_fsdp": "nuq.fsdp",
    "CompressedTraining": "nuq.quantized_training.training",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'nuq' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
