"""The C++ kernels give the reference's bits, for every instruction set, number of threads, type, norm, number of levels
and packing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nuq import errors, native
from nuq.kernels import bit_packing, operators, reference, spec
from nuq.kernels import cpu as kernels
from tests.tiers import few

pytestmark = pytest.mark.skipif(not native.instruction_sets(), reason="the C++ kernels are not built")

KEY = (0x9E3779B9, 0x12345678)
SIZES = st.one_of(
    st.integers(0, 200), st.sampled_from([255, 256, 1023, 1024, 1025, 1279, 1280, 1281, 8192]), st.integers(0, 20000)
)
BUCKETS = st.one_of(
    st.integers(1, 200), st.sampled_from([64, 512, 1000, 1024, 2048, 8192, 1 << 40]), st.integers(1, 20000)
)
AMONG = st.one_of(
    st.just(spec.ALONE),
    st.sampled_from([2, 3, 4, 5, 7, 8, 64, 1 << 16]).flatmap(
        lambda workers: st.tuples(st.integers(0, workers - 1), st.just(workers))
    ),
)
LEVELS = st.one_of(st.integers(2, 40), st.sampled_from([64, 65, 255, 256, 257, 512]), st.integers(2, 512))


def vector_of(kind: str, size: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    if kind == "all magnitudes":
        x *= torch.exp(6 * torch.randn(size, generator=generator))
    elif kind == "sparse":
        x *= torch.rand(size, generator=generator) < 0.02
    elif kind != "normal":
        x *= {"zero": 0.0, "denormal": 1e-39, "huge": 1e34}[kind]
    x = x.to(dtype)
    return x.clamp(-6e4, 6e4) if dtype == torch.float16 else x


KINDS = ("normal", "all magnitudes", "sparse", "zero", "denormal", "huge")


def levels_of(count: int, crowded: bool = False, seed: int = 1) -> Tensor:
    interior = torch.rand(count - 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    if crowded:
        interior = interior**7
    return torch.cat([torch.tensor([-1.0]), interior.sort().values, torch.tensor([1.0])])


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Threads as before, whatever a test asks for."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Case:
    """One call: ``levels`` None for equally spaced ones."""

    vector: Tensor
    bucket_size: int
    norm: str
    num_levels: int
    packing: int
    levels: Tensor | None = None
    stochastic: bool = True
    among: spec.Among = spec.ALONE

    def encoded(self, by: Any) -> tuple[Tensor, Tensor]:
        """(scales, packed)"""
        n = self.vector.numel()
        scales = torch.full((spec.num_buckets(n, self.bucket_size) * spec.scales_per_bucket(self.norm),), 7.0)
        packed = torch.full((bit_packing.packed_bytes(n, self.packing),), 99, dtype=torch.uint8)
        rest = (scales, packed, self.bucket_size, self.norm, 2.5, self.packing, (*KEY, *self.among))
        stochastic = self.levels is None or self.stochastic
        by.encode_(self.vector, self.levels, self.num_levels, *rest, stochastic)
        return scales, packed

    def decoded(self, by: Any, scales: Tensor, packed: Tensor, accumulate: bool, dither: bool) -> Tensor:
        levels = torch.linspace(-1, 1, self.num_levels) if self.levels is None else self.levels
        total = torch.linspace(-3, 5, self.vector.numel())
        by.decode_(packed, scales, levels, total, self.bucket_size, self.packing, accumulate, dither, *KEY)
        return total


@st.composite
def cases(draw: st.DrawFn, uniform: bool) -> Case:
    num_levels = draw(LEVELS)
    bits = bit_packing.code_bits(num_levels)
    packing = draw(
        st.sampled_from([bit_packing.packing(num_levels), bit_packing.raw_packing(num_levels), bits, bits + 1])
    )
    levels = None if uniform else levels_of(num_levels, draw(st.booleans()), draw(st.integers(0, 99)))
    return Case(
        vector_of(
            draw(st.sampled_from(KINDS)), draw(SIZES), draw(st.sampled_from(spec.DTYPES)), draw(st.integers(0, 99))
        ),
        draw(BUCKETS),
        draw(st.sampled_from(spec.NORMS[:3] if uniform else spec.NORMS)),
        num_levels,
        packing,
        levels,
        draw(st.booleans()),
        draw(AMONG),
    )


def same(a: Tensor, b: Tensor) -> bool:
    """Equal bits: a zero's sign counts."""
    return a.dtype == b.dtype and torch.equal(*(x.view(torch.int32) if x.dtype == torch.float32 else x for x in (a, b)))


def check(case: Case) -> None:
    scales, packed = case.encoded(reference)
    totals = {
        (accumulate, dither): case.decoded(reference, scales, packed, accumulate, dither)
        for accumulate, dither in ((True, False), (False, False), (True, True))
    }
    for name in native.instruction_sets():
        with native.using(name):
            ours = case.encoded(kernels)
            assert same(ours[0], scales), name
            assert same(ours[1], packed), name
            assert same(kernels.bucket_scales(case.vector, case.bucket_size, case.norm, 2.5), scales), name
            for way, total in totals.items():
                assert same(case.decoded(kernels, scales, packed, *way), total), (name, *way)


@given(case=cases(uniform=False))
@settings(max_examples=120)
def test_levels(case: Case) -> None:
    check(case)


@given(case=cases(uniform=True))
@settings(max_examples=80)
def test_uniform(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("num_levels", [2, 3, 4, 5, 8, 9, 10, 16, 17, 32, 33, 64, 128, 256, 512])
def test_whole_buckets(num_levels: int) -> None:
    """Buckets of whole words, where codes are packed from registers; the last one ends anywhere."""
    for size in (4096, 4096 + 127, 3 * 2048 + 1):
        vector = vector_of("normal", size, torch.float32)
        for norm in ("l2", "quantile"):
            check(Case(vector, 2048, norm, num_levels, bit_packing.packing(num_levels), levels_of(num_levels)))
        check(Case(vector, 2048, "linf", num_levels, bit_packing.packing(num_levels)))


@few(2, ("bucket_size", "norm"), product([37, 1023, 8192, 100_003, 150_000, 1 << 40], spec.NORMS))
def test_threads(bucket_size: int, norm: str) -> None:
    """Buckets that share bytes, that one thread measures, and that all threads measure together."""
    vector = vector_of("all magnitudes", 400_007, torch.float32)
    for num_levels in (3, 8):
        case = Case(vector, bucket_size, norm, num_levels, bit_packing.packing(num_levels), levels_of(num_levels))
        scales, packed = case.encoded(reference)
        total = case.decoded(reference, scales, packed, True, False)
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            assert all(map(same, case.encoded(kernels), (scales, packed))), count
            assert same(case.decoded(kernels, scales, packed, True, False), total), count


@given(
    size=st.one_of(st.integers(0, 300), st.integers(0, 40000)),
    log_block=st.integers(0, 17),
    inverse=st.booleans(),
    kind=st.sampled_from(KINDS),
    count=st.sampled_from([1, 3]),
)
@settings(max_examples=120)
def test_hadamard(size: int, log_block: int, inverse: bool, kind: str, count: int) -> None:
    vector = vector_of(kind, size, torch.float32)
    expected = vector.clone()
    reference.hadamard_(expected, 1 << log_block, *KEY, inverse)
    torch.set_num_threads(count)
    for name in native.instruction_sets():
        with native.using(name):
            ours = vector.clone()
            kernels.hadamard_(ours, 1 << log_block, *KEY, inverse)
            assert same(ours, expected), name


@pytest.mark.parametrize("norm", spec.NORMS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_not_finite_names_the_bucket(norm: str, bad: float) -> None:
    vector = vector_of("normal", 1000, torch.float32)
    vector[500:600] = bad  # in buckets 5 and no other; 3e38 overflows l2, and 64 times the quantile
    case = Case(vector, 100, norm, 8, 3, levels_of(8))
    if bad == 3e38 and norm == "linf":
        return
    with pytest.raises(errors.NonFiniteError) as expected:
        case.encoded(reference)
    for name in native.instruction_sets():
        with native.using(name), pytest.raises(errors.NonFiniteError, match=re.escape(str(expected.value))):
            case.encoded(kernels)


@pytest.mark.parametrize(
    ("num_levels", "packing", "byte"), [(7, 3, 0xFF), (3, 0, 243), (3, 2, 0xC0), (200, 8, 200), (300, 16, 2), (5, 9, 7)]
)
def test_damaged_codes_leave_the_total_alone(num_levels: int, packing: int, byte: int) -> None:
    packed = torch.zeros(bit_packing.packed_bytes(3000, packing), dtype=torch.uint8)
    packed[-3] = byte
    total, levels = torch.ones(3000), torch.linspace(-1, 1, num_levels)
    for by in (reference, kernels):
        with pytest.raises(ValueError, match=f"{num_levels} levels"):
            by.decode_(packed, torch.ones(3), levels, total, 1000, packing, True, False, 0, 0)
    assert bool((total == 1).all())


def test_padding_is_no_code() -> None:
    """Bits behind the last code may be anything."""
    packed = torch.full((2,), 0xFF, dtype=torch.uint8)
    packed[0] = 0
    packed[1] = 0xF0  # the fourth code of three bits ends within the second byte
    for by in (reference, kernels):
        total = torch.zeros(4)
        by.decode_(packed, torch.ones(1), torch.linspace(-1, 1, 7), total, 4, 3, False, False, 0, 0)
        assert total.tolist() == [-1.0] * 4


def test_strided_tensors() -> None:
    vector, total = vector_of("normal", 3000, torch.float32)[::3], torch.zeros(2000)[::2]
    case = Case(vector, 100, "l2", 8, 3, levels_of(16)[::2].contiguous())
    scales, packed = case.encoded(reference)
    assert all(map(same, case.encoded(kernels), (scales, packed)))
    wide = torch.zeros(20), torch.zeros(750, dtype=torch.uint8)
    kernels.encode_(vector, None, 8, wide[0][::2], wide[1][::2], 100, "l2", 0.0, 3, (*KEY, *spec.ALONE), True)
    assert all(
        map(same, (wide[0][::2].clone(), wide[1][::2].clone()), Case(vector, 100, "l2", 8, 3).encoded(reference))
    )
    kernels.decode_(packed, scales, levels_of(8), total, 100, 3, True, False, *KEY)
    expected = torch.zeros(1000)
    reference.decode_(packed, scales, levels_of(8), expected, 100, 3, True, False, *KEY)
    assert same(total.clone(), expected)
    kernels.hadamard_(total, 64, *KEY, False)
    reference.hadamard_(expected, 64, *KEY, False)
    assert same(total.clone(), expected)


def _wrong(change: Callable[[dict[str, Any]], None], name: str) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "encode_": {
            "vector": torch.ones(100),
            "levels": levels_of(8),
            "num_levels": 8,
            "scales": torch.ones(10),
            "packed": torch.zeros(38, dtype=torch.uint8),
            "bucket_size": 10,
            "norm": "l2",
            "multiple": 0.0,
            "packing": 3,
            "noise": (1, 2, 0, 1),
            "stochastic": True,
        },
        "decode_": {
            "packed": torch.zeros(38, dtype=torch.uint8),
            "scales": torch.ones(10),
            "levels": levels_of(8),
            "total": torch.zeros(100),
            "bucket_size": 10,
            "packing": 3,
            "accumulate": True,
            "dither": False,
            "k0": 1,
            "k1": 2,
        },
    }
    getattr(kernels, name)(**arguments[name])  # as they are, all is well
    change(arguments[name])
    with pytest.raises(ValueError):
        getattr(kernels, name)(**arguments[name])


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("encode_", "scales", torch.ones(9)),
        ("encode_", "scales", torch.ones(10, dtype=torch.float64)),
        ("encode_", "packed", torch.zeros(37, dtype=torch.uint8)),
        ("encode_", "packed", torch.zeros(38, dtype=torch.int8)),
        ("encode_", "packing", 2),
        ("encode_", "packing", 17),
        ("encode_", "levels", torch.ones(7)),
        ("encode_", "num_levels", 1),
        ("encode_", "num_levels", 513),
        ("encode_", "levels", levels_of(8).double()),
        ("encode_", "vector", torch.ones(10, 10)),
        ("encode_", "vector", torch.ones(100, dtype=torch.float64)),
        ("encode_", "bucket_size", 0),
        ("encode_", "norm", "l1"),
        ("encode_", "noise", (1, 2, 1, 1)),
        ("encode_", "noise", (1, 2, 0, 65537)),
        ("decode_", "packed", torch.zeros(39, dtype=torch.uint8)),
        ("decode_", "scales", torch.ones(11)),
        ("decode_", "scales", torch.ones(10, dtype=torch.float16)),
        ("decode_", "levels", torch.ones(513)),
        ("decode_", "total", torch.zeros(100, dtype=torch.float64)),
        ("decode_", "total", torch.zeros(101)),
        ("decode_", "packing", -1),
        ("decode_", "bucket_size", 0),
    ],
)
def test_wrong_arguments_stay_outside(name: str, argument: str, value: Any) -> None:
    _wrong(lambda arguments: arguments.update({argument: value}), name)


X, PACKED = vector_of("normal", 1000, torch.float32), torch.zeros(375, dtype=torch.uint8)
CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "levels": ("encode_", (X, levels_of(8), 8, torch.zeros(10), PACKED, 100, "l2", 0.0, 3, [1, 2, 3, 4], True)),
    "uniform": ("encode_", (X, None, 8, torch.zeros(10), PACKED, 100, "l2", 0.0, 3, [1, 2, 3, 4], True)),
    "decode": ("decode_", (PACKED, torch.ones(10), levels_of(8), torch.zeros(1000), 100, 3, True, False, 1, 2)),
    "rotation": ("hadamard_", (X.clone(), 64, 1, 2, False)),
}


@few(2, "call", CALLS)
def test_opcheck(call: str) -> None:
    """Schema (what is said to be written is written, and nothing else), fake kernel and dispatch."""
    name, arguments = CALLS[call]
    torch.library.opcheck(getattr(torch.ops.nuq, name).default, arguments)


def test_every_operator_is_checked() -> None:
    assert {name for name, _ in CALLS.values()} == set(operators.SCHEMAS)


def test_operators_reach_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.ops.nuq`` on CPU tensors is C++ where that is built."""
    asked = []
    function = kernels._function
    monkeypatch.setattr(kernels, "_function", lambda name: asked.append(name) or function(name))
    operators.hadamard_(torch.ones(8), 8, KEY)
    assert asked == ["nuq_hadamard"]


@pytest.mark.parametrize("name", native.instruction_sets() or ["none"])
@pytest.mark.parametrize(
    ("size", "bucket_size"), [(0, 8), (1, 8), (1000, 64), (5000, 2048), (70_001, 8192), (3000, 1 << 40)]
)
def test_scalar_products_and_leading_bits(name: str, size: int, bucket_size: int) -> None:
    a, b = vector_of("all magnitudes", size, torch.float32, 1), vector_of("normal", size, torch.float32, 2)
    with native.using(name):
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(
                kernels.bucket_dots(a, b, bucket_size), reference.bucket_dots(a, b, min(bucket_size, max(size, 1)))
            )
            for count in (1, 3, 8):
                assert torch.equal(kernels.leading_bits(size, *KEY, count), reference.leading_bits(size, *KEY, count))
