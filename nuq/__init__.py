"""Gradient compression for data-parallel SGD (QSGD, NUQSGD, TernGrad, ALQ, AMQ) and quantized training.

Every method is measured in the bytes that travel.

A method encodes a vector into a message and decodes what another worker sent::

    method = nuq.METHODS["alq"]
    compressor = method.load()(method.settings(bits=3, bucket_size=8192))
    data = compressor.encode(gradient, nuq.Key(seed=1, step=0, worker=0, parameter="model")).to_bytes()
    restored = compressor.decode(nuq.parse(data))

Between real processes::

    state = nuq.CompressionState(ddp, method="alq", bits=3)
    ddp.register_comm_hook(state, nuq.compress_hook)     # an ordinary DDP training, compressed
    mean = nuq.all_reduce(tensor, "alq", step=step)      # one tensor
    loop = nuq.OuterLoop(model, optimizer, every=64)     # local steps, as in DiLoCo
    nuq.compress_fsdp(model, "alq", bits=4)              # FSDP2's reduce-scatter
    nuq.compress_fsdp_weights(model, bits=4)             # and its gather of parameters

Every large tensor of training in a compressed format, on one's own model and optimizer::

    compressed = nuq.CompressedTraining(model, optimizer, weights="smaq", activations="smaq", moments="smaq")

What there is to choose from: ``nuq.METHODS`` and, in words, ``print(nuq.describe("topk"))``.

Errors: ``nuq.MessageError`` (bytes that are no whole message), ``nuq.NonFiniteError`` (a gradient that is not finite),
``nuq.RankLost`` (a process that died or fell silent, by its rank), of these ``nuq.RankFailed`` (a rank that met an
error of its own), and ValueError for a setting, which names the legal ones.

The names of ``__all__`` are the public ones.  They bring torch in when they are first used; ``import nuq`` and
``nuq.METHODS`` do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nuq.compressors.message import Message, parse
    from nuq.ddp import CompressionState, compress_hook
    from nuq.description import describe
    from nuq.errors import MessageError, NonFiniteError, RankFailed, RankLost
    from nuq.exchange.saved_ranks import saved_states
    from nuq.fsdp import compress_fsdp, compress_fsdp_weights
    from nuq.fsdp_state import FsdpState
    from nuq.functional import all_reduce
    from nuq.kernels.spec import Key
    from nuq.outer import OuterLoop
    from nuq.quantized_training.training import CompressedTraining
    from nuq.registry import METHODS

__all__ = [
    "METHODS",
    "CompressedTraining",
    "CompressionState",
    "FsdpState",
    "Key",
    "Message",
    "MessageError",
    "NonFiniteError",
    "OuterLoop",
    "RankFailed",
    "RankLost",
    "all_reduce",
    "compress_fsdp",
    "compress_fsdp_weights",
    "compress_hook",
    "describe",
    "parse",
    "saved_states",
]
__version__: str  # of the installed package

_LAZY = {
    "CompressedTraining": "nuq.quantized_training.training",
    "CompressionState": "nuq.ddp",
    "FsdpState": "nuq.fsdp_state",
    "Key": "nuq.kernels.spec",
    "METHODS": "nuq.registry",
    "Message": "nuq.compressors.message",
    "MessageError": "nuq.errors",
    "NonFiniteError": "nuq.errors",
    "OuterLoop": "nuq.outer",
    "RankFailed": "nuq.errors",
    "RankLost": "nuq.errors",
    "all_reduce": "nuq.functional",
    "compress_fsdp": "nuq.fsdp",
    "compress_fsdp_weights": "nuq.fsdp",
    "compress_hook": "nuq.ddp",
    "describe": "nuq.description",
    "parse": "nuq.compressors.message",
    "saved_states": "nuq.exchange.saved_ranks",
}


if not TYPE_CHECKING:  # a checker then knows that there is nothing but __all__

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version("nuq")
            except PackageNotFoundError:  # a checkout that was not installed
                return "unknown"
        if name not in _LAZY:
            raise AttributeError(f"module 'nuq' has no attribute {name!r}; its names: {', '.join(__all__)}")
        return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
