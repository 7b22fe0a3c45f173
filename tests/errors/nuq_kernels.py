"""Errors of the operators: keys, sizes, types and packings."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from nuq import native
from nuq.kernels import bit_packing, operators, selection, spec
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.native import build
from nuq.native.checksum import crc32
from tests.errors.rows import Row, row

KEY = Key(seed=1, step=0, worker=0, parameter="model")


def encode(given: str, name: str, value: Any, **others: Any) -> Row:
    """A bad argument of ``encode_`` beside good ones: 10 coordinates, four levels, one bucket."""
    good: dict[str, Any] = {
        "vector": torch.ones(10),
        "levels": torch.tensor([-1.0, -0.5, 0.5, 1.0]),
        "scales": torch.zeros(1),
        "packed": torch.zeros(3, dtype=torch.uint8),
        "bucket_size": 16,
        "norm": "l2",
        "packing": 2,
        "key": KEY,
    }
    return row(f"nuq.kernels.encode_({name}=)", given, lambda: operators.encode_(**good | {name: value} | others))


def decode(given: str, name: str, value: Any, **others: Any) -> Row:
    """A bad argument of ``decode_`` beside good ones."""
    good: dict[str, Any] = {
        "packed": torch.zeros(3, dtype=torch.uint8),
        "scales": torch.ones(1),
        "levels": torch.tensor([-1.0, -0.5, 0.5, 1.0]),
        "total": torch.zeros(10),
        "bucket_size": 16,
        "packing": 2,
        "accumulate": False,
    }
    return row(f"nuq.kernels.decode_({name}=)", given, lambda: operators.decode_(**good | {name: value} | others))


def _library(asked: str) -> Any:
    """The library as another process would load it."""
    with mock.patch.dict(os.environ, {"NUQ_CPU": asked}):
        return native.library.__wrapped__()


def _built(**environment: str) -> Any:
    with mock.patch.dict(os.environ, environment):
        return build.build()


def _failing(folder: Path) -> Path:
    """A compiler that fails whatever it is given."""
    path = folder / "c++"
    path.write_text("#!/bin/sh\necho 'nuq.cpp:3: error' >&2\nexit 1\n")
    path.chmod(0o755)
    return path


def _not_of_this_processor() -> None:
    library = SimpleNamespace(nuq_choose_isa=lambda place: 0, nuq_isas=lambda: 0b011)
    native._choose(library, "avx512")  # pyright: ignore[reportArgumentType]


def _without_library() -> None:
    with mock.patch.object(native, "library", lambda: None):
        native.functions({"nuq_crc32": ([], None)})("nuq_crc32")


def _statistics(vector: torch.Tensor) -> Statistics:
    found = Statistics.empty(4)
    found.add([vector], 16, "l2")
    return found


def _thresholds_of_none() -> None:
    vector, scales, packed = torch.ones(4), torch.zeros(1), torch.zeros(1, dtype=torch.uint8)
    torch.ops.nuq.encode_(vector, None, 4, scales, packed, 4, "l2", 0.0, 2, [0, 0, 0, 1], False)


ROWS = [
    row("nuq.Key(step=)", "0.5", lambda: Key(seed=1, step=0.5, worker=0, parameter="model").words()),  # pyright: ignore[reportArgumentType]
    row("nuq.Key(seed=)", "1.5", lambda: Key(1.5, 0, 0).words()),  # pyright: ignore[reportArgumentType]
    row("nuq.Key(worker=)", "'2'", lambda: Key(1, 0, "2").words()),  # pyright: ignore[reportArgumentType]
    row("nuq.Key(worker=)", "-1 of two workers", lambda: Key(1, 0, -1, "model", workers=2).together()),
    row("nuq.Key(workers=)", "65537", lambda: Key(1, 0, 0, "model", workers=(1 << 16) + 1).together()),
    row("nuq.Key(worker=)", "3 of two workers", lambda: Key(1, 0, 3, "model", workers=2).together()),
    encode("'l3'", "norm", "l3"),
    encode("float64", "vector", torch.ones(10, dtype=torch.float64)),
    encode("a matrix", "vector", torch.ones(2, 5)),
    encode("2^31 + 1 coordinates", "vector", torch.empty(2**31 + 1, device="meta")),
    encode("0.5", "bucket_size", 0.5),
    encode("0", "bucket_size", 0),
    *(encode(repr(number), "levels", number) for number in (True, None, "4", 4.0, 0)),
    encode("600", "levels", 600),
    encode("4, at thresholds", "levels", 4, stochastic=False),
    encode("4, under quantile", "levels", 4, norm="quantile"),
    encode("two buckets'", "scales", torch.zeros(2)),
    encode("float64", "scales", torch.zeros(1, dtype=torch.float64)),
    encode("17", "packing", 17),
    encode("1, of four levels", "packing", 1),
    encode("of a norm that overflows", "vector", torch.full((10,), 3e38)),
    encode("infinite", "vector", torch.full((10,), torch.inf)),
    decode("too short", "packed", torch.zeros(2, dtype=torch.uint8)),
    decode("three buckets'", "scales", torch.ones(3)),
    decode("one", "levels", torch.ones(1)),
    decode("a code beyond the levels", "packed", torch.full((3,), 255, dtype=torch.uint8), levels=torch.ones(3)),
    row("nuq.kernels.hadamard_(block=)", "-2", lambda: operators.hadamard_(torch.ones(4), -2, KEY)),
    row("nuq.kernels.hadamard_(vector)", "float64", lambda: operators.hadamard_(torch.ones(4).double(), 4, KEY)),
    row("nuq.kernels.hadamard_(block=)", "3", lambda: operators.hadamard_(torch.ones(4), 3, KEY)),
    row(
        "nuq.kernels.unpack_codes(packed)",
        "a code beyond the levels",
        lambda: bit_packing.unpack_codes(torch.full((3,), 255, dtype=torch.uint8), 10, 3, 2),
    ),
    row("torch.ops.nuq.encode_(levels)", "None, at thresholds", _thresholds_of_none),
    row(
        "nuq.kernels.encode_(scales=)",
        "on another device",
        lambda: spec.check_tensor(torch.zeros(1, device="meta"), "scales", torch.device("cpu"), torch.float32),
    ),
    row("nuq.kernels.Statistics.fit(kind)", "'gamma'", lambda: _statistics(torch.ones(64)).fit("gamma")),
    row("nuq.kernels.Statistics.fit(kind)", "of zeros", lambda: _statistics(torch.zeros(64)).fit("normal")),
    row(
        "nuq.kernels.check_finite(x)",
        "nan, of a vector with gaps",
        lambda: selection.check_finite(torch.full((8,), torch.nan)[::2]),
    ),
    row("NUQ_CPU", "'sse'", lambda: _library("sse")),
    row("NUQ_CPU", "a set that this processor lacks", _not_of_this_processor),
    row("nuq.native: a kernel", "no library", _without_library),
    row("nuq.native.crc32(num_bytes)", "-1", lambda: crc32(0, -1)),
    row("python -m nuq.native", "CXX names no program", lambda: _built(CXX="nothing-here")),
    row("python -m nuq.native", "no compiler on the path", lambda: _built(CXX="", PATH="/nowhere")),
    row("python -m nuq.native", "a program that compiles nothing", lambda folder: _built(CXX=str(_failing(folder)))),
    row("python -m nuq.native", "a file that does not compile", lambda folder: build._run([str(_failing(folder))])),
]

HELD = {
    "nuq/kernels/cuda/operators.py:_check_contiguous": (
        "tests/nuq/kernels/test_cuda_checks.py::test_gaps_and_other_devices_are_refused"
    ),
    "nuq/kernels/cuda/operators.py:decode_": "tests/nuq/kernels/test_cuda.py::test_interpreter_equals_reference",
    "nuq/coding/entropy_device.py:decode": (
        "tests/nuq/kernels/test_cuda_rans.py::test_damage_is_told_in_the_words_of_the_cpu"
    ),
    "nuq/coding/entropy_device.py:_counts": (
        "tests/nuq/kernels/test_cuda_rans.py::test_a_code_beyond_the_symbols_is_refused"
    ),
}
