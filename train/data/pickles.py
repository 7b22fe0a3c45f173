"""Reader of CIFAR's pickles that runs nothing in them.

A pickle is a program: a stranger's file may call any function.  This reader knows the few names that an array of bytes
needs, narrowed to bytes, and refuses every other.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
from typing import Any

import numpy as np

from .data_files import GARBLED


def _dtype(kind: object, *_: object) -> np.dtype[Any]:
    """numpy.dtype, for bytes alone; the flags that follow (numbers in old files) say nothing for them."""
    if kind not in ("u1", "|u1"):
        raise pickle.UnpicklingError(f"refused: an array of {kind!r}, where images are bytes ('u1')")
    return np.dtype("u1")


def _encode(text: object, encoding: object) -> bytes:
    """The bytes of a text, encoded as _codecs.encode does when Python 3 writes bytes in a pickle of protocol 2."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"refused: text in the encoding {encoding!r}")
    return text.encode("latin1")


def _from_buffer(buffer: Any, dtype: np.dtype[Any], shape: Any, order: str, *_: object) -> np.ndarray:
    """The array that numpy writes in protocol 5."""
    return np.frombuffer(buffer, dtype).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(*_: object) -> np.ndarray:
    """The empty array that numpy starts from; its type, shape and bytes follow."""
    return np.empty(0, np.uint8)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # in the original files, and as numpy 1 wrote it
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # as numpy 2 writes it
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): None,  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _BytesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused: it asks for {module}.{name}, which a file of images does not need")
        return _ALLOWED[module, name]


def load_arrays(data: bytes) -> Any:
    """The object in a pickle of plain values and arrays of bytes; ValueError for anything else, or damage."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # strings with unknown escapes, such as '\\d'
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name in ("PUT", "LONG_BINPUT") and int(str(argument)) > len(data):  # it would fill the memory
                    raise pickle.UnpicklingError(
                        f"refused: it would remember {argument} values, more than it has bytes"
                    )
            return _BytesOnly(io.BytesIO(data), encoding="latin1").load()
    except (*GARBLED, pickle.UnpicklingError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
