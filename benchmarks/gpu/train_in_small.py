"""The step ``train`` on a CPU, with CUDA graphs but without CUDA.

Run it as ``python -m benchmarks.gpu.train_in_small [--model NAME ..]``.

Each model takes a few steps on pictures of ImageNet's size, then a few on smaller ones as a recorded graph. To that end
``torch.cuda``'s streams and graphs are replaced by ones for the CPU: while a graph is recorded, every operator and its
tensors are noted, and a replay calls them again on the same memory. So the trainer's own code runs
(``train.steps.cuda_graphs``), and ``benchmarks.speed train`` checks that its parameters stay with those of a bare loop.
The seconds mean nothing. Reading a number back from the device while a graph is recorded is refused, as CUDA does. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.speed_cases import training

# The trainer's settings; 64 pixels are the least for which the models have ImageNet's form.
CASES: dict[str, dict[str, Any]] = {
    "ImageNet's size": {"batch_size": 1, "data": "imagenet", "stand_in": True},
    "a recorded graph": {
        "batch_size": 2,
        "data": "folder",
        "data.size": 64,
        "stand_in": True,
        "compute.cuda_graphs": True,
    },
}


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Graph:
    """A replacement of ``torch.cuda.CUDAGraph``."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any], Any]] = []

    def replay(self) -> None:
        with torch._C._AutoDispatchBelowAutograd():  # kernels know nothing of gradients
            for function, given, named, before in self.calls:
                now = function(*given, **named)
                for old, new in zip(tree_leaves(before), tree_leaves(now), strict=True):
                    if isinstance(old, Tensor) and _memory(old) != _memory(new):  # neither a view nor computed in place
                        old.copy_(new)


class Recording(TorchDispatchMode):
    """A replacement of ``torch.cuda.graph``."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a number is read back from the device while a graph is recorded")
        found = func(*args, **(kwargs or {}))
        self._graph.calls.append((func, args, kwargs or {}, found))
        return found


class Stream:
    """A replacement of ``torch.cuda.Stream``: everything is in order on a CPU."""

    def wait_stream(self, other: Stream) -> None:
        del other


@contextlib.contextmanager
def graphs_on_cpu() -> Iterator[None]:
    """A context within which ``compute.cuda_graphs=true`` works on a CPU."""
    fakes: dict[str, Any] = {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": contextlib.nullcontext,
        "CUDAGraph": Graph,
        "graph": Recording,
    }
    with mock.patch.multiple(torch.cuda, **fakes), mock.patch("train.steps.gradients._check_device"):
        yield


def compared(model: str, batch_size: int, **settings: Any) -> dict[str, float]:
    """The cost of the trainer beside the bare loop.

    Raises AssertionError where they part.
    """
    trainer = training.trainer_of(model, batch_size, 1, 1, training.METHODS["sgd"], **settings)
    return training.overhead(trainer, 0.0, exact=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each model and case, then one JSON object, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.train_in_small", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--model", nargs="+", default=["resnet18", "resnet50"], metavar="NAME")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: dict[str, dict[str, Any]] = {}
    with graphs_on_cpu():
        for model in chosen.model:
            for case, settings in CASES.items():
                rows.setdefault(model, {})[case] = row = compared(model, **settings)
                print(f"{model}, {case}: differs from the bare loop by {row['disagreement']:.1e}", flush=True)
    print(json.dumps({"device": "CPU in place of CUDA", "models": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
