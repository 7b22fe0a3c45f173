"""ATOMO: the probabilities of least error, what is kept by them, and what travels."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.atomo import Atomo
from nuq.compressors.message import HEADER_BYTES, Message, parse
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import atoms
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from tests.tiers import few

KEY = Key(1, 2, 3, "x")
SIZES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=30)


def make(**given: Any) -> Atomo:
    return METHODS["atomo"].load()(METHODS["atomo"].settings(**given))


def heavy(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()


def through(compressor: Atomo, x: torch.Tensor, key: Key = KEY) -> torch.Tensor:
    return compressor.decode(parse(compressor.encode(x, key).to_bytes().clone()))


def as_in_the_paper(sizes: list[float], budget: float) -> list[float]:
    """Algorithm 1, atom by atom from the largest."""
    p, left, order = [0.0] * len(sizes), budget, sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for done, i in enumerate(order):
        mass = sum(sizes[j] for j in order[done:])
        if mass == 0:
            break
        if left * sizes[i] <= mass:
            for j in order[done:]:
                p[j] = sizes[j] * left / mass
            break
        p[i], left = 1.0, left - 1
    return p


def error(sizes: torch.Tensor, p: torch.Tensor) -> float:
    there = sizes > 0
    return float((sizes[there].square() * (1 / p[there] - 1)).sum())


@given(SIZES, st.floats(0.1, 35.0))
def test_water_filling_is_the_papers_algorithm(values: list[float], budget: float) -> None:
    sizes = torch.tensor(values, dtype=torch.float64)
    p = atoms.keep_probabilities(sizes, budget)
    assert torch.allclose(p, torch.tensor(as_in_the_paper(values, budget), dtype=torch.float64), rtol=1e-9, atol=1e-15)
    assert float(p.sum()) <= budget * (1 + 1e-12) and bool(((p > 0) == (sizes > 0)).all()) and float(p.max()) <= 1
    assert float(p.sum()) == pytest.approx(min(budget, int((sizes > 0).sum())))


@given(SIZES, st.floats(0.5, 20.0), st.integers(0, 2**31))
def test_no_other_probabilities_err_less(values: list[float], budget: float, seed: int) -> None:
    sizes, generator = torch.tensor(values, dtype=torch.float64), torch.Generator().manual_seed(seed)
    best = error(sizes, atoms.keep_probabilities(sizes, budget))
    for _ in range(20):
        other = torch.rand(len(values), generator=generator, dtype=torch.float64) * (sizes > 0) + 1e-9
        other = (other * min(budget / float(other.sum()), 1 / float(other.max()))).clamp(max=1.0)
        assert error(sizes, other) >= best * (1 - 1e-9)


@given(SIZES, st.floats(0.5, 20.0), st.randoms(use_true_random=False), st.sampled_from([1e-30, 1e30]))
def test_order_and_unit_do_not_matter(values: list[float], budget: float, random: Any, unit: float) -> None:
    sizes, order = torch.tensor(values, dtype=torch.float64), list(range(len(values)))
    random.shuffle(order)
    p = atoms.keep_probabilities(sizes, budget)
    assert torch.allclose(atoms.keep_probabilities(sizes[order] * unit, budget), p[order], rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("norm", [math.inf, 2])
def test_terngrad_and_qsgd_are_budgets_of_entries(norm: float) -> None:
    """Paper, Section 4: TernGrad's |x_i| / |x|_inf, and |x_i| / |x|_2 of QSGD with one level."""
    x = heavy(300).double()
    scale = float(torch.linalg.vector_norm(x, norm))
    p = atoms.keep_probabilities(x.abs(), float(x.abs().sum()) / scale)
    assert torch.allclose(p, x.abs() / scale, rtol=1e-12)


@pytest.mark.slow
@given(SIZES, st.floats(0.1, 20.0))
def test_systematic_sampling_keeps_each_as_often_as_it_should(values: list[float], budget: float) -> None:
    p, grid = atoms.keep_probabilities(torch.tensor(values, dtype=torch.float64), budget), 64
    counts = torch.zeros(len(values), dtype=torch.float64)
    for i in range(grid):
        kept = atoms.drawn(p, (i + 0.37) / grid)
        assert math.floor(float(p.sum()) - 1e-9) <= len(kept) <= math.ceil(float(p.sum()) + 1e-9)
        assert bool((p[kept] > 0).all()) and len(kept) == len(set(kept.tolist()))
        counts[kept] += 1
    assert bool(((counts / grid - p).abs() <= 2 / grid).all()) and bool((counts[p == 1] == grid).all())


def test_coins_fall_as_often_as_they_should_and_alike_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from nuq import native as cpu

    x = heavy(200_000)
    kept = atoms.tossed(x, 20.0, (3, 4))
    p = (x.abs().double() / 20).clamp(max=1.0)
    assert abs(len(kept) - float(p.sum())) < 4 * float((p * (1 - p)).sum().sqrt())
    assert set((p == 1).nonzero().view(-1).tolist()) <= set(kept.tolist())
    monkeypatch.setattr(cpu, "library", lambda: None)
    assert torch.equal(atoms.tossed(x, 20.0, (3, 4)), kept)


def low_rank(m: int, n: int, noise: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(m, 2, generator=generator) @ torch.randn(2, n, generator=generator) + noise * heavy(m, n)


@few(1, "how", ["exact", "randomized"])
@pytest.mark.parametrize(
    "matrix", [low_rank(12, 30, 0.3), heavy(9, 11), low_rank(70, 80, 0.1)], ids=["noisy", "heavy", "larger"]
)
def test_the_mean_over_all_draws_is_the_matrix(how: str, matrix: torch.Tensor) -> None:
    """The uniform number goes through a grid, so this is an integral and no statistic."""
    grid, total = 400, torch.zeros(matrix.shape, dtype=torch.float64)
    for i in range(grid):
        uniform = (i + 0.5) / grid
        kept = (
            atoms._exact(matrix, 2, uniform) if how == "exact" else atoms._randomized(matrix, 2, (5, 6), uniform, 0.5)
        )
        total += kept.left.double().T @ kept.right.double()
        total[kept.indices] += kept.rows.double()
    size = float(torch.linalg.matrix_norm(matrix.double(), "nuc"))
    assert (
        float((total / grid - matrix).norm()) <= 4 * size * len(matrix) ** 0.5 / grid
    )  # each atom: lambda / p of 1 / grid


def test_exact_atoms_are_the_singular_ones() -> None:
    matrix = low_rank(40, 90, 0.5)
    kept = atoms.estimate(matrix, 40, "exact", KEY)
    u, sizes, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    order = kept.right.norm(dim=1).argsort(descending=True)
    assert torch.allclose(kept.right.norm(dim=1)[order].double(), sizes, rtol=1e-6)
    assert torch.allclose(
        (kept.left[order].double() @ u).diagonal().abs(), torch.ones(40, dtype=torch.float64), rtol=1e-5
    )
    assert torch.allclose((kept.right[order].double() @ v.T).diagonal().abs(), sizes, rtol=1e-5)
    assert float((atoms.restored(kept, False) - matrix).norm()) <= 1e-6 * float(matrix.norm())


@pytest.mark.parametrize("how", ["exact", "randomized"])
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_a_rank_within_the_budget_comes_back_without_error(how: str, unit: float) -> None:
    matrix = low_rank(80, 100) * unit
    kept = atoms.estimate(matrix, 3, how, KEY)
    assert len(kept.left) == 2 and not len(kept.rows)
    assert float((atoms.restored(kept, False) / unit - matrix / unit).norm()) <= 1e-6 * float((matrix / unit).norm())


def test_a_sketch_errs_hardly_more_than_singular_atoms() -> None:
    matrix, errors = low_rank(96, 160, 0.1), {}
    for how in ("exact", "randomized"):
        draws = [atoms.restored(atoms.estimate(matrix, 4, how, Key(1, step, 0, "x")), False) for step in range(100)]
        errors[how] = sum(float((draw - matrix).square().sum()) for draw in draws) / len(draws)
    assert errors["randomized"] < 1.5 * errors["exact"]


def test_the_same_bits_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from nuq import native as cpu

    kept = atoms.estimate(heavy(70, 333), 5, "randomized", KEY)
    native = atoms.restored(kept, False), atoms.restored(kept, True)
    monkeypatch.setattr(cpu, "library", lambda: None)
    assert torch.equal(atoms.restored(kept, False), native[0]) and torch.equal(atoms.restored(kept, True), native[1])
    assert torch.equal(native[0].T, native[1])


@pytest.mark.parametrize(
    "shape, rows, pairs",
    [
        ((64, 32, 3, 3), (64, 288), (1024, 18)),
        ((5, 3, 3, 3), (5, 27), (15, 9)),
        ((64, 32, 1, 1), (64, 32), (64, 32)),
        ((10, 84), (10, 84), (10, 84)),
        ((16,), (4, 4), (4, 4)),
        ((17,), (4, 5), (4, 5)),
        ((512,), (16, 32), (16, 32)),
        ((2,), (1, 2), (1, 2)),
        ((), (1, 1), (1, 1)),
        ((0,), (1, 0), (1, 0)),
    ],
)
def test_matrices_of_parameters(shape: tuple[int, ...], rows: tuple[int, int], pairs: tuple[int, int]) -> None:
    assert atoms.matrix_shape(shape) == rows and atoms.matrix_shape(shape, "pairs") == pairs


@pytest.mark.parametrize(
    "given",
    [{}, {"matrix": "pairs"}, {"bits": 4}, {"svd": "randomized"}, {"atoms": "entries"}, {"svd_rank": 40}],
    ids=str,
)
@pytest.mark.parametrize("shape", [(64, 32, 3, 3), (100, 30), (30, 100), (2000,), (40,)], ids=str)
def test_messages_of_parameters(given: dict[str, Any], shape: tuple[int, ...]) -> None:
    x, method = heavy(*shape), make(**given)
    message = method.encode(x, KEY)
    back, total = through(make(), x) if not given else method.decode(message), heavy(x.numel(), seed=3)
    assert back.shape == (x.numel(),) and bool(back.any())
    expected = total + method.decode(message)
    method.add(message, total)
    assert torch.equal(total, expected)
    if len(shape) == 1:
        assert message.num_bytes <= method.message_bytes(x.numel())


def test_bytes_of_atoms() -> None:
    x, head = heavy(128, 64, 3, 3), HEADER_BYTES + 1 + 19
    assert make(svd="exact").encode(x, KEY).num_bytes == head + 3 * 4 * (128 + 576)
    assert make(svd="exact", bits=4).encode(x, KEY).num_bytes == head + 3 * 4 * (1 + 2) + 3 * (128 + 576) // 2
    assert make(svd="exact", matrix="pairs").encode(x, KEY).num_bytes == head + 3 * 4 * (4096 + 18)
    assert make(svd="randomized", svd_rank=1).encode(x, KEY).num_bytes <= head + 4 * (128 + 576)
    assert make().encode(heavy(100), KEY).num_bytes == make().message_bytes(100) == HEADER_BYTES + 1 + 400


@given(
    st.lists(st.integers(1, 40), min_size=0, max_size=4).map(tuple)
    | st.tuples(st.integers(1, 3), st.integers(1, 3000)),
    st.integers(1, 12),
    st.sampled_from([0, 0, 1, 2, 4, 8]),
    st.sampled_from(["exact", "randomized", "auto"]),
    st.sampled_from(["rows", "pairs"]),
    st.sampled_from(["model", "tensor"]),
)
def test_no_shape_takes_more_than_the_bound(
    shape: tuple[int, ...], rank: int, bits: int, svd: str, matrix: str, scope: str
) -> None:
    shape = shape if math.prod(shape) <= 6000 else shape[:2]
    method, x = make(svd_rank=rank, bits=bits, svd=svd, matrix=matrix, scope=scope), heavy(*shape)
    message = method.encode(x, KEY)
    assert message.num_bytes <= method.message_bytes(x.numel())
    assert (
        method.encode(x.reshape(-1), KEY).num_bytes <= method.usual_bytes(x.numel()) <= method.message_bytes(x.numel())
    )


@given(st.integers(0, 2000), st.floats(0.001, 1.0), st.integers(0, 2**31), st.integers(0, 2**31))
def test_no_coins_take_more_than_the_bound(size: int, ratio: float, seed: int, step: int) -> None:
    method, x = make(atoms="entries", ratio=ratio), heavy(size, seed=seed)
    assert method.encode(x, Key(1, step, 0, "x")).num_bytes <= method.message_bytes(size)


def test_whole_or_not_by_bytes() -> None:
    """Codes of a few bits make atoms worth it where as many float32 numbers would not be."""
    wide, whole = heavy(8, 2000), HEADER_BYTES + 1 + 4 * 16_000
    assert make(svd_rank=2).encode(wide, KEY).num_bytes == HEADER_BYTES + 1 + 19 + 4 * 2 * 2008
    assert make(svd_rank=4).encode(wide, KEY).num_bytes == whole == make(svd_rank=4).message_bytes(16_000)
    assert make(svd_rank=4, bits=1).encode(wide, KEY).num_bytes == HEADER_BYTES + 1 + 19 + 4 * (4 + 1) + 4 * (
        4 * 4 + 250
    )
    usual = make(svd_rank=4).usual_bytes(1 << 20)  # by which the collective is chosen: a square
    assert usual < 40_000 < make(svd_rank=4).message_bytes(1 << 20)


def test_small_matrices_and_vectors_travel_whole() -> None:
    for x in (heavy(64, 9), heavy(300), heavy(3, 1000), torch.tensor(2.0)):
        assert torch.equal(through(make(), x), x.reshape(-1))
    assert not torch.equal(through(make(svd_rank=1), heavy(300)), heavy(300))


def test_entries_cost_a_sign_or_a_value() -> None:
    x = torch.cat([torch.tensor([500.0, -400.0]), heavy(4000).clamp(-1, 1)])
    back = through(make(atoms="entries", ratio=0.01), x)
    assert torch.equal(back[:2], x[:2])
    rest = back[2:][back[2:] != 0]
    assert 10 < len(rest) < 80 and len(rest.abs().unique()) == 1
    assert torch.equal(rest.sign(), x[2:][back[2:] != 0].sign())


def test_no_entry_may_be_kept() -> None:
    """Decoded zero, where the original draws again."""
    x, method = torch.ones(50), make(atoms="entries", ratio=0.02)
    counts = [int((through(method, x, Key(1, step, 0, "x")) != 0).sum()) for step in range(200)]
    assert min(counts) == 0 and abs(sum(counts) / 200 - 1) < 0.3


def test_atoms_that_overflow_are_an_error() -> None:
    x = torch.full((40, 40), 3e38) * torch.sign(heavy(40, 40))
    with pytest.raises(NonFiniteError):
        for step in range(20):
            make(svd_rank=1).encode(x, Key(1, step, 0, "x"))
    with pytest.raises(NonFiniteError):
        make(atoms="entries").encode(torch.full((513,), 1e38), Key(1, 0, 0, "x"))


@pytest.mark.parametrize("at, value", [(0, 3), (1, 9), (2, 2), (4, 23), (8, 99), (12, 200), (16, 24)])
def test_damaged_heads(at: int, value: int) -> None:
    message = make().encode(heavy(500), KEY)
    body = message.body.clone()
    body[at] = value
    with pytest.raises(MessageError):
        make().decode(Message(message.tag, 500, body))


def test_other_damage() -> None:
    for settings in ({}, {"bits": 3}, {"atoms": "entries"}):
        message = make(**settings).encode(heavy(500), KEY)
        for size in range(0, message.body.numel(), 7):
            with pytest.raises(MessageError):
                make().decode(Message(message.tag, 500, message.body[:size]))
        body = message.body.clone()
        at = 9 if "atoms" in settings else 20  # the level, the first number
        body[at : at + 4] = torch.tensor([float("nan")]).view(torch.uint8)
        with pytest.raises(MessageError):
            make().decode(Message(message.tag, 500, body))
    with pytest.raises(MessageError):
        make().decode(
            Message(
                b"ATMO", 10, torch.frombuffer(bytearray(struct.pack("<BIIfI", 2, 11, 0, 1.0, 0)), dtype=torch.uint8)
            )
        )
