"""The C++ kernels, loaded through ctypes: no torch headers, no Python headers, one library for every Python version.

``library()`` is the loaded library, or None where it was not built, after one warning; callers then use NumPy or
PyTorch.  ``NUQ_CPU=off`` asks for that without a warning, ``NUQ_CPU=baseline`` (or avx2, avx512) for one instruction
set.

May import NumPy alone.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Signature = tuple[list[Any], Any]  # ctypes of the arguments, and of the result
POINTER, LONG, INT, WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_uint32
FLOAT, DOUBLE = ctypes.c_float, ctypes.c_double

SETS = ("baseline", "avx2", "avx512")
LIBRARY = Path(__file__).parent / "libnuq.so"


@cache
def library() -> ctypes.CDLL | None:
    """The library, loaded once; None where it is off, or (after one RuntimeWarning) missing, stale or not ours."""
    asked = os.environ.get("NUQ_CPU", "")
    if asked not in ("", "off", *SETS):
        raise ValueError(f"NUQ_CPU={asked!r}: must be off, or one of {', '.join(SETS)}")
    if asked == "off":
        return None
    reason = "they are not built"
    if LIBRARY.exists():
        try:
            loaded = ctypes.CDLL(str(LIBRARY))
        except OSError as error:
            reason = f"{LIBRARY.name} does not load ({error})"
        else:
            reason = _unusable(loaded)
            if not reason:
                if asked:
                    _choose(loaded, asked)
                return loaded
    warnings.warn(
        f"nuq runs without its C++ kernels ({reason}): results are the same, learned levels to about nine digits, 20 "
        "to 90 times slower; with a C++17 compiler, `python -m nuq.native` builds them",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def functions(signatures: Mapping[str, Signature]) -> Callable[[str], Any]:
    """The library's functions by name, each told its ctypes once; RuntimeError without a library."""

    @cache
    def function(name: str) -> Any:
        loaded = library()
        if loaded is None:
            raise RuntimeError("the C++ kernels are not built")
        found = getattr(loaded, name)
        found.argtypes, found.restype = signatures[name]
        return found

    return function


def address(array: np.ndarray) -> int:
    """Where an array's memory begins; NumPy's ``array.ctypes.data`` says it in several calls of Python."""
    return array.__array_interface__["data"][0]


def calls(signatures: Mapping[str, Signature]) -> Callable[..., Any]:
    """The function ``call(name, *arguments)``; arrays go as pointers to their memory, None as a null pointer."""
    function = functions(signatures)

    def passed(argument: Any) -> Any:
        assert not isinstance(argument, np.ndarray) or argument.flags.c_contiguous
        return address(argument) if isinstance(argument, np.ndarray) else argument

    return lambda name, *arguments: function(name)(*map(passed, arguments))


def _unusable(loaded: ctypes.CDLL) -> str:
    """The reason why the loaded file is not this version's library, or an empty text."""
    from nuq.native.build import digest

    try:
        built = loaded.nuq_digest
    except AttributeError:
        return f"{LIBRARY.name} is another library: it has no nuq_digest"
    built.restype = ctypes.c_char_p
    return "" if built() == digest().encode() else "they were built from other sources"


def _choose(loaded: ctypes.CDLL, name: str) -> None:
    if not loaded.nuq_choose_isa(SETS.index(name)):
        raise ValueError(f"NUQ_CPU={name!r}: does not run on this processor (legal: {', '.join(_legal(loaded))})")


def _legal(loaded: ctypes.CDLL) -> list[str]:
    return [name for place, name in enumerate(SETS) if loaded.nuq_isas() >> place & 1]


def instruction_sets() -> list[str]:
    """The instruction sets that the library was built for and this processor has, slowest first; none without it."""
    loaded = library()
    return _legal(loaded) if loaded else []


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use one instruction set for a while; the tests compare instruction sets with each other this way."""
    loaded = library()
    assert loaded is not None
    before = SETS[loaded.nuq_chosen_isa()]
    _choose(loaded, name)
    try:
        yield
    finally:
        _choose(loaded, before)
