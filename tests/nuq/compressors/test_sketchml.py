"""SketchML: quantiles, min-max sketches that shrink and never grow, and indices where there are zeros."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from nuq import native as cpu
from nuq.compressors.message import parse
from nuq.compressors.sketchml import SketchML
from nuq.kernels.sketches import clusters
from nuq.kernels.sketches.minmax import Sketches
from nuq.kernels.spec import Key
from nuq.settings.sketches import SketchML as Settings

KEY = Key(1, 2, 3, "x")


def make(**given: Any) -> SketchML:
    return SketchML(Settings(**given))


def heavy(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp()


def through(method: SketchML, x: torch.Tensor, key: Key = KEY) -> torch.Tensor:
    return make().decode(parse(method.encode(x, key).to_bytes().clone()))


def test_quantiles_hold_as_many_values_each() -> None:
    values = heavy(12_345).numpy()
    for edges, side in zip(clusters.quantiles(values, 16), (values[values > 0], -values[values < 0]), strict=True):
        counts = np.histogram(side, np.concatenate([[0], edges, [np.inf]]))[0]
        assert counts.max() - counts.min() <= 2


def test_without_a_sketch_values_become_the_means_of_their_quantiles() -> None:
    x = heavy(1000)
    back = through(make(rows=0, buckets=8), x)
    assert len(back.unique()) == 16 and torch.equal(back.sign(), x.sign())
    for value in back.unique():
        assert float(value) == pytest.approx(float(x[back == value].double().mean()), rel=1e-6)
        assert 61 <= int((back == value).sum()) <= 65


def test_without_a_sketch_no_random_number_is_used() -> None:
    x, method = heavy(50_000), make(rows=0)
    assert torch.equal(method.encode(x, KEY).body, method.encode(x, Key(9, 9, 9, "y")).body)


@pytest.mark.parametrize("rows, ratio", [(1, 0.2), (2, 0.2), (3, 1.0)])
def test_the_sketch_shrinks_and_never_grows_or_flips(rows: int, ratio: float) -> None:
    x = heavy(20_000)
    exact, back = through(make(rows=0), x), through(make(rows=rows, columns_ratio=ratio), x)
    assert torch.equal(back.sign(), x.sign())
    assert bool((back.abs() <= exact.abs()).all()) and bool((back.abs() < exact.abs()).any())
    for groups in (2, 8):
        each = 128 // groups
        grouped = through(make(rows=rows, columns_ratio=ratio, groups=groups), x)
        values = exact[exact > 0].unique()  # of every bucket, rising
        off = torch.searchsorted(values, exact[exact > 0]) - torch.searchsorted(values, grouped[exact > 0])
        assert int(off.min()) >= 0 and 0 < int(off.max()) < each  # Section 3.3: groups bound the error


def test_more_columns_and_rows_and_groups_err_less() -> None:
    x = heavy(20_000)

    def error(**given: Any) -> float:
        return float((through(make(**given), x) - x).square().sum())

    assert error(columns_ratio=2.0) < error(columns_ratio=0.5) < error(columns_ratio=0.1)
    assert error(rows=4, columns_ratio=1.0) < error(rows=1, columns_ratio=1.0)
    assert error(groups=16) < error(groups=4) < error(groups=1)
    assert error(rows=0) < error(columns_ratio=4.0, rows=4)


def test_min_on_insertion_max_on_query() -> None:
    ids = torch.arange(200, dtype=torch.uint8) % 7
    numbers = np.arange(256, dtype=np.uint8)
    sketches = Sketches.of(np.array([64]), 2, (5, 6))
    cells, groups = sketches.insert(ids, np.zeros(256, dtype=np.uint8), numbers, 6)
    assert groups.shape == (200,) and not groups.any()
    indices = [sketches._indices(torch.zeros(200, dtype=torch.uint8), row) for row in (0, 1)]
    least = [torch.full((128,), 6, dtype=torch.uint8).scatter_reduce(0, at, ids, "amin") for at in indices]
    assert torch.equal(cells, torch.minimum(*least)) and int(indices[0].max()) < 64 <= int(indices[1].min())
    found = sketches.query(torch.zeros(200, dtype=torch.uint8), cells)
    assert torch.equal(found, torch.maximum(cells[indices[0]], cells[indices[1]]))
    assert bool((found <= ids).all())


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
@pytest.mark.parametrize("rows", [0, 2])
def test_zeros_do_not_travel(rows: int, share: float) -> None:
    n = 100_000
    x = torch.where(torch.rand(n, generator=torch.Generator().manual_seed(1)) < share, heavy(n), 0.0)
    method = make(rows=rows, buckets=32, columns_ratio=1.0) if rows else make(rows=0, buckets=32)
    back, k = through(method, x), int((x != 0).sum())
    assert torch.equal(back.sign(), x.sign())
    indices = min(1.6 + np.log2(1 / share), 1 / share)  # bits: Rice codes, or a bitmap
    assert 8 * method.encode(x, KEY).num_bytes < k * (indices + (6 if not rows else 3 + 2 * 3)) + 8 * 420
    assert method.encode(x, KEY).num_bytes <= method.message_bytes(n)


def test_bits_of_exact_quantiles() -> None:
    x = heavy(100_000)
    assert (
        make(rows=0).encode(x, KEY).num_bytes == 28 + 24 + 32 + 4 * 256 + 1 + 100_000
    )  # 8 bits each: quantiles leave nothing to code
    assert 8 * make().encode(x, KEY).num_bytes / 1e5 < 4.8 + 0.1


@pytest.mark.parametrize("n", [1, 17, 5000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_the_library_and_pytorch_give_the_same_bits(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [make(), make(rows=0, buckets=100), make(rows=3, buckets=10, groups=3, columns_ratio=1.0, coding="rans")]
    inputs = [heavy(n), torch.where(torch.arange(n) % 5 == 0, 0.0, heavy(n))]
    native = [(method, x, method.encode(x, KEY)) for method in methods for x in inputs]
    decoded = [method.decode(message) for method, _, message in native]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert all(torch.equal(method.encode(x, KEY).body, message.body) for method, x, message in native)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(cpu, "library", lambda: None)
    for (method, x, message), values in zip(native, decoded, strict=True):
        assert torch.equal(method.encode(x, KEY).body, message.body) and torch.equal(method.decode(message), values)


@pytest.mark.skipif(cpu.library() is None, reason="the C++ kernels are not built")
def test_every_instruction_set_gives_the_same_bits() -> None:
    x, found = heavy(5003), []
    for name in cpu.instruction_sets():
        with cpu.using(name):
            message = make().encode(x, KEY)
            found.append((message.body, make().decode(message)))
    assert all(torch.equal(a, b) for one, two in itertools.pairwise(found) for a, b in zip(one, two, strict=True))


def test_what_needs_a_sketch() -> None:
    with pytest.raises(ValueError, match=r"groups=3.*rows=0"):
        make(rows=0, groups=3)
    assert make(buckets=2, groups=4).groups == 2
