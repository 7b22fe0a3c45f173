"""The one place that imports torchvision.

PyPI's torchvision is compiled against a CUDA build of torch.  Beside a CPU build its compiled operators cannot be
loaded, and ``import torchvision`` then fails with ``operator torchvision::nms does not exist``, because it registers
shape functions for two operators that nobody declared.  Declaring the schemas of these two is enough for its models,
transforms and data sets; the operators themselves (detection boxes) stay without an implementation.

Where the compiled operators load, they declare the schemas themselves, and nothing is done here.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _compiled_operators_load(package: Path) -> bool:
    """Whether torchvision's own library loads beside this torch; loading it twice does no harm."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        library = package / f"_C{suffix}"
        if library.exists():
            try:
                torch.ops.load_library(str(library))
            except OSError:
                return False
            return True
    return False


@functools.cache
def _declare_operators() -> torch.library.Library:
    """Declare the operators, for as long as the object returned lives: the life of the process."""
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    return library


@functools.cache
def torchvision() -> ModuleType:
    """The torchvision package, imported; ImportError with the remedy where it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("this needs torchvision, which is not installed; constraints.txt names the tested version")
    if not _compiled_operators_load(Path(spec.origin).parent):
        _declare_operators()
    return importlib.import_module("torchvision")
