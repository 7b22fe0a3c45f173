"""Calls of C++ functions with NumPy arrays, which must be contiguous, by their signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.native import library

Signature = tuple[list[Any], Any]  # ctypes types of the arguments, and of the result


def call(name: str, signature: Signature, *arguments: NDArray[Any] | float) -> Any:
    """The function's result; arrays go as pointers to their memory."""
    loaded = library()
    assert loaded is not None
    function = getattr(loaded, name)
    function.argtypes, function.restype = signature
    for argument in arguments:
        assert not isinstance(argument, np.ndarray) or argument.flags.c_contiguous
    return function(*(argument.ctypes.data if isinstance(argument, np.ndarray) else argument for argument in arguments))
