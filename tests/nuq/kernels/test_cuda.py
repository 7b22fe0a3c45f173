"""The Triton kernels: the reference's bits in Triton's interpreter and, where there is one, on a GPU; and what they
compile to.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nuq import errors
from nuq.kernels import bit_packing, reference, spec
from nuq.kernels import operators as registered
from nuq.kernels.cuda import operators
from tests.nuq.without_gpu import ROOT, SOME_AND_ALL, check_machine_code, interpreted, recorded

K0, K1 = 0x1234567, 0xFEDCBA98
MULTIPLE = 2.5


@dataclass(frozen=True)
class Case:
    """One encode and one decode."""

    n: int
    bucket_size: int
    norm: str = "l2"
    num_levels: int = 8
    dtype: str = "float32"
    packing: int | None = None  # None: the densest
    uniform: bool = False
    stochastic: bool = True
    dither: bool = False
    accumulate: bool = True
    among: spec.Among = spec.ALONE

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default)


LEVEL_COUNTS = (2, 3, 4, 8, 16, 17, 255, 256, 300, 512)
# Around every boundary of bytes, groups of eight codes, tiles, blocks of 1024 and buckets that one program holds.
SHAPES = (
    (1, 1),
    (7, 4),
    (5, 8),
    (64, 64),
    (77, 7),
    (129, 1),
    (130, 64),
    (301, 100),
    (1030, 2000),
    (2500, 2048),
    (3000, 1000),
    (9000, 8192),
)
CASES = list(
    dict.fromkeys(
        [
            *(Case(520, 256, norm, count) for norm in ("l2", "quantile") for count in LEVEL_COUNTS),
            *(Case(520, 256, norm, count) for norm in ("linf", "rms") for count in (2, 9)),
            *(
                Case(n, size, norm, count)
                for n, size in SHAPES
                for norm, count in (("l2", 8), ("quantile", 3), ("rms", 40))
            ),
            *(Case(n, size, "linf", 8, packing=8) for n, size in SHAPES[::2]),
            *(Case(n, size, "linf", 300, packing=16) for n, size in SHAPES[1::2]),
            *(Case(n, size, "linf", count, uniform=True, dither=True) for n, size in SHAPES for count in (3, 16)),
            *(Case(600, 256, "l2", count, uniform=True, accumulate=False) for count in LEVEL_COUNTS),
            *(Case(520, 64, norm, 3, accumulate=False) for norm in spec.NORMS),  # a zero bucket's signs
            *(Case(1100, 512, norm, 8, dtype) for norm in spec.NORMS for dtype in ("bfloat16", "float16")),
            *(Case(301, 100, "rms", 5, dtype, uniform=True) for dtype in ("bfloat16", "float16")),
            *(Case(700, 256, norm, count, stochastic=False) for norm in spec.NORMS for count in (2, 8, 300)),
            *(Case(3000, 1000, "linf", 8, among=(own, workers)) for workers in (2, 3, 1 << 16) for own in (0, 1)),
            *(Case(600, 256, "l2", 7, uniform=True, among=(own, 5)) for own in range(5)),
            # Buckets too large for one program.
            *(Case(36001, 17000, norm, 8) for norm in spec.NORMS),
            Case(20001, 1 << 31, "quantile", 3, "float16"),
            Case(33000, 16500, "l2", 16, uniform=True, dither=True),
        ]
    )
)
# What a quick run interprets: every norm with a zero bucket, a tiny one and a short one, dither, and a cut bucket.
FEW = [
    *(Case(301, 100, norm) for norm in spec.NORMS),
    Case(301, 100, "linf", 16, uniform=True, dither=True),
    Case(17000, 17000, "rms"),
]
ROTATIONS = [
    (n, block, inverse)
    for n, block in (
        (1, 1),
        (1, 8),
        (7, 4),
        (100, 2),
        (1024, 1024),
        (3000, 1024),
        (4097, 256),
        (5000, 64),
        (1023, 1024),
        (70001, 32768),
        (55000, 1 << 20),
    )
    for inverse in (False, True)
]
BIG_ROTATIONS = [((1 << 20) + 999, 1024, False), ((1 << 20) + 999, 4096, True), ((1 << 20) + 999, 1 << 17, False)]
BIG = [
    *(
        Case((1 << 20) + 77, 8192, norm, count, dtype)
        for norm in spec.NORMS
        for count in (3, 8, 300)
        for dtype in ("float32", "bfloat16", "float16")
    ),
    *(Case((1 << 20) + 5, 512, "linf", count, uniform=True, dither=True) for count in (2, 3, 16, 255)),
    *(Case(3 << 19, 1 << 20, norm, 8) for norm in spec.NORMS),
]
PARTS = 8  # tests on a GPU: what comes before a time limit is told


def vector(case: Case) -> Tensor:
    """Heavy tails, a zero bucket, one below the smallest norm, and exact level points."""
    generator = torch.Generator().manual_seed(case.n)
    x = torch.randn(case.n, generator=generator) * torch.randn(case.n, generator=generator).exp()
    if case.n > 3 * case.bucket_size:
        x[case.bucket_size : 2 * case.bucket_size] = 0
        x[2 * case.bucket_size : 3 * case.bucket_size] = 1e-42
    return x.to(getattr(torch, case.dtype))


def levels_of(case: Case) -> Tensor:
    if case.uniform:
        return torch.linspace(-1, 1, case.num_levels)
    inner = torch.randn(case.num_levels - 2, generator=torch.Generator().manual_seed(case.num_levels)) * 0.2
    return torch.cat([torch.tensor([-1.0]), inner.clamp(-0.99, 0.99).sort().values, torch.tensor([1.0])])


def encoded(operators: Any, case: Case, device: str, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scales and packed bytes of x, else of ``vector``; both buffers hold other numbers before."""
    x = vector(case).to(device) if x is None else x
    packing = bit_packing.packing(case.num_levels) if case.packing is None else case.packing
    buckets = spec.num_buckets(case.n, case.bucket_size)
    scales = torch.full((buckets * spec.scales_per_bucket(case.norm),), 9.0, device=device)
    packed = torch.full((bit_packing.packed_bytes(case.n, packing),), 77, dtype=torch.uint8, device=device)
    levels = None if case.uniform else levels_of(case).to(device)
    rest = (scales, packed, case.bucket_size, case.norm, MULTIPLE, packing, (K0, K1, *case.among))
    operators.encode_(x, levels, case.num_levels, *rest, case.uniform or case.stochastic)
    return scales, packed


def decoded(
    operators: Any, case: Case, scales: Tensor, packed: Tensor, device: str, total: Tensor | None = None
) -> Tensor:
    """The decoded vector: in ``total``, else in numbers of its own."""
    total = torch.randn(case.n, generator=torch.Generator().manual_seed(7)).to(device) if total is None else total
    packing = bit_packing.packing(case.num_levels) if case.packing is None else case.packing
    scales, packed, levels = scales.to(device), packed.to(device), levels_of(case).to(device)
    operators.decode_(packed, scales, levels, total, case.bucket_size, packing, case.accumulate, case.dither, K0, K1)
    return total


def bits_of(tensor: Tensor) -> Tensor:
    return tensor.cpu().view(torch.int32) if tensor.dtype == torch.float32 else tensor.cpu()


def difference(case: Case, operators: Any, device: str) -> str:
    """The differences of the operators from the reference, or an empty text."""
    scales, packed = encoded(reference, case, "cpu")
    mine = encoded(operators, case, device)
    total, my_total = decoded(reference, case, scales, packed, "cpu"), decoded(operators, case, scales, packed, device)
    pairs = {"scales": (scales, mine[0]), "bytes": (packed, mine[1]), "decoded numbers": (total, my_total)}
    wrong = {name: (bits_of(a) != bits_of(b)).nonzero().flatten() for name, (a, b) in pairs.items()}
    return "; ".join(f"{len(at)} {name} differ, the first at {int(at[0])}" for name, at in wrong.items() if len(at))


def rotation_difference(n: int, block: int, inverse: bool, operators: Any, device: str) -> str:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    mine = x.to(device)
    reference.hadamard_(x, block, K0, K1, inverse)
    operators.hadamard_(mine, block, K0, K1, inverse)
    at = (bits_of(x) != bits_of(mine)).nonzero().flatten()
    return f"{len(at)} numbers differ, the first at {int(at[0])}" if len(at) else ""


# --- errors, by the same functions in the interpreter and on a GPU ---------------------------------------------------


def _raises(expected: type[Exception], text: str, call: Callable[[], Any]) -> str:
    try:
        call()
    except expected as error:
        return "" if text in str(error) else f"said {error}"
    return "nothing was raised"


def _not_finite(bad: float, norm: str, operators: Any, device: str) -> str:
    x = torch.ones(40, device=device)
    x[29] = bad
    scales = torch.zeros(3 * spec.scales_per_bucket(norm), device=device)
    packed = torch.zeros(15, dtype=torch.uint8, device=device)
    levels = torch.linspace(-1, 1, 8, device=device)
    return _raises(
        errors.NonFiniteError,
        "bucket 1",
        lambda: operators.encode_(x, levels, 8, scales, packed, 16, norm, 1.0, 3, (K0, K1, *spec.ALONE), True),
    )


def _damaged(packing: int, count: int, at: int, value: int, operators: Any, device: str) -> str:
    """A code beyond the levels anywhere, the last byte included."""
    n = 50
    packed = torch.zeros(bit_packing.packed_bytes(n, packing), dtype=torch.uint8, device=device)
    packed[at] = value
    levels, total = torch.linspace(-1, 1, count, device=device), torch.zeros(n, device=device)
    arguments = (torch.ones(4, device=device), levels, total, 16, packing, True, False, K0, K1)
    fine = torch.zeros_like(packed)
    operators.decode_(fine, *arguments)
    said = _raises(ValueError, f"beyond {count} levels", lambda: operators.decode_(packed, *arguments))
    return said or _raises(ValueError, "packed bytes", lambda: operators.decode_(packed[:-1], *arguments))


ERRORS: dict[str, Callable[[Any, str], str]] = {
    **{
        f"{bad} under {norm}": (lambda o, d, bad=bad, norm=norm: _not_finite(bad, norm, o, d))
        for bad in (float("nan"), float("inf"), -float("inf"))
        for norm in spec.NORMS
    },
    "a damaged 3-bit code": lambda o, d: _damaged(3, 5, -2, 255, o, d),
    "a damaged byte": lambda o, d: _damaged(8, 255, 0, 255, o, d),
    "a damaged 9-bit code": lambda o, d: _damaged(9, 300, -1, 3, o, d),
    "a damaged 16-bit code": lambda o, d: _damaged(16, 512, 99, 2, o, d),
    "a ternary byte of 243": lambda o, d: _damaged(0, 3, 9, 243, o, d),
    "ternary codes for two levels": lambda o, d: _damaged(0, 2, 3, 2, o, d),
}


# --- in Triton's interpreter, and on a GPU ---------------------------------------------------------------------------


def differences(
    operators: Any, device: str, cases: list[Case], rotations: list[tuple[int, int, bool]]
) -> dict[str, str]:
    """A table from the name of every case that went wrong to what it did."""
    found = {str(case): difference(case, operators, device) for case in cases}
    found |= {f"rotation {rotation}": rotation_difference(*rotation, operators, device) for rotation in rotations}
    found |= {name: check(operators, device) for name, check in ERRORS.items()}
    return {name: wrong for name, wrong in found.items() if wrong}


def _interpret() -> None:
    """The program: the differences of interpreted kernels, as JSON."""
    import numpy as np

    torch.set_num_threads(1)
    cases, rotations = (CASES, ROTATIONS) if int(sys.argv[1]) == 1 else (FEW, ROTATIONS[::11])
    with np.errstate(all="ignore"):  # Triton computes both sides of a where
        print(json.dumps(differences(operators, "cpu", cases, rotations)))


@pytest.mark.parametrize("every", SOME_AND_ALL)
def test_interpreter_equals_reference(every: int) -> None:
    assert interpreted(__file__, every) == {}


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here: the kernels were interpreted and compiled, not run"
)
@pytest.mark.parametrize("part", range(PARTS))
def test_gpu_equals_reference(part: int) -> None:
    cases, rotations = (CASES + BIG)[part::PARTS], (ROTATIONS + BIG_ROTATIONS)[part::PARTS]
    assert registered.SCHEMAS  # imported, torch.ops.nuq is there
    assert differences(torch.ops.nuq, "cuda", cases, rotations) == {}


# --- what they compile to --------------------------------------------------------------------------------------------

LARGE = Case(1 << 15, 8192)
COMPILED: dict[str, Callable[[], Any]] = {
    "levels, 3 bits": lambda: encoded(operators, LARGE, "cpu"),
    "levels, 3 bits, quantile": lambda: encoded(operators, Case(1 << 15, 8192, "quantile"), "cpu"),
    "levels, 3 bits, rms, bfloat16": lambda: encoded(operators, Case(1 << 15, 8192, "rms", dtype="bfloat16"), "cpu"),
    "levels, 8 bits": lambda: encoded(operators, Case(1 << 15, 8192, "linf", 256), "cpu"),
    "levels, 3 bits, bucket 16384": lambda: encoded(operators, Case(1 << 15, 16384), "cpu"),
    "uniform, 4 bits": lambda: encoded(operators, Case(1 << 15, 8192, num_levels=16, uniform=True), "cpu"),
    "ternary": lambda: encoded(operators, Case(1 << 15, 8192, "linf", 3, uniform=True), "cpu"),
    "large buckets": lambda: encoded(operators, Case(1 << 17, 1 << 16, "rms"), "cpu"),
    "decode, 3 bits": lambda: decoded(operators, LARGE, torch.zeros(4), torch.zeros(3 << 12, dtype=torch.uint8), "cpu"),
    "decode, dither": lambda: decoded(
        operators,
        Case(1 << 15, 8192, num_levels=16, uniform=True, dither=True),
        torch.zeros(4),
        torch.zeros(1 << 14, dtype=torch.uint8),
        "cpu",
    ),
    "decode, ternary": lambda: decoded(
        operators, Case(1 << 15, 8192, num_levels=3), torch.zeros(4), torch.zeros(6554, dtype=torch.uint8), "cpu"
    ),
    "hadamard, large": lambda: operators.hadamard_(torch.zeros(1 << 18), 1 << 18, K0, K1, True),
    "hadamard": lambda: operators.hadamard_(torch.zeros(3000), 1024, K0, K1, False),
}
ON_BOTH = ("levels, 3 bits", "uniform, 4 bits", "ternary", "decode, 3 bits", "hadamard")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "architecture"), [*((name, 80) for name in COMPILED), *((name, 90) for name in ON_BOTH)]
)
def test_compiled_kernels_round_as_specified_and_do_not_spill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, architecture: int
) -> None:
    recorders = recorded(monkeypatch, tmp_path)
    monkeypatch.setattr(operators, "check_scales", lambda *_: None)  # nothing is computed
    COMPILED[name]()
    check_machine_code(recorders, architecture)


@pytest.mark.slow
def test_a_block_of_the_norms_tree_stays_inside_one_warp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Five halvings of 128 sums in 32 threads exchange four float64, two words each: 40 shuffles, and a few for what
    comes after.
    """
    recorders = recorded(monkeypatch, tmp_path)
    monkeypatch.setattr(operators, "check_scales", lambda *_: None)  # nothing is computed
    encoded(operators, Case(1 << 15, 8192, num_levels=16), "cpu")
    (kernel,) = (kernel for recorder in recorders for kernel in recorder.compile(80))
    assert 40 <= kernel.asm["ptx"].count("shfl.sync") < 80


# --- without Triton --------------------------------------------------------------------------------------------------


def test_without_triton_the_reference_runs_after_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    operators.device_code.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="triton is not installed"):
            assert difference(Case(100, 64), operators, "cpu") == ""
        assert difference(Case(100, 64, uniform=True), operators, "cpu") == ""  # a second warning would be an error
        assert rotation_difference(100, 32, False, operators, "cpu") == ""
    finally:
        operators.device_code.cache_clear()


def test_importing_nuq_imports_no_triton() -> None:
    code = (
        "import sys, nuq.kernels.operators, nuq.kernels.reference, nuq.kernels.cuda.operators; sys.exit('triton' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


if __name__ == "__main__":
    _interpret()
