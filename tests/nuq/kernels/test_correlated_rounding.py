"""Correlated rounding: what the workers' random numbers have in common, to the bit, and what it does to their mean."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels import reference, spec
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.registry import METHODS
from tests.tiers import few

MASK = 0xFFFFFFFF
KEY = Key(seed=5, step=3, worker=0, parameter="model")
FAMILY = ("qsgd", "qsgdinf", "nuqsgd", "trn", "alq", "amq", "optimal")


def by_hand(c: int, k0: int, k1: int, own: int, workers: int) -> int:
    x = c ^ k0
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15 ^ k1) * 0x846CA68B & MASK
    even, odd = (workers + 1) // 2, workers // 2
    if own % 2:
        x = MASK - (x * (1, even)[workers % 2] + (own // 2 << 32) // odd & MASK)
    elif workers > 1:
        x = x * (1, odd)[workers % 2] + (own // 2 << 32) // even & MASK
    return x ^ x >> 16


def words(hashes: list[int]) -> Tensor:
    return torch.tensor([h - (1 << 32) if h >> 31 else h for h in hashes], dtype=torch.int32)


@given(
    st.lists(st.integers(0, MASK), min_size=1, max_size=20),
    st.integers(0, MASK),
    st.integers(0, MASK),
    st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 100, 1 << 16]) | st.integers(2, 1 << 16),
    st.integers(0, 1 << 16),
)
def test_hashes_equal_python_integers(indices: list[int], k0: int, k1: int, workers: int, own: int) -> None:
    among = (own % workers, workers)
    got = [h & MASK for h in reference.hashed(words(indices), (k0, k1), among).tolist()]
    assert got == [by_hand(c, k0, k1, *among) for c in indices]


@given(st.lists(st.integers(0, MASK), min_size=1, max_size=20), st.integers(2, 40))
def test_one_worker_in_every_interval_and_their_sum_as_good_as_fixed(indices: list[int], workers: int) -> None:
    every = torch.stack([reference.hashed(words(indices), (1, 2), (own, workers)) for own in range(workers)])
    every = every.long() & MASK
    # the last step of the hash changes the last 16 bits alone; rounding and it move a number across a border at most
    lowest = torch.arange(workers)[:, None] * 2**32 // workers
    above = every.sort(dim=0).values - lowest
    assert -(2**16) - workers <= int(above.min()) and int(above.max()) <= 2**32 // workers + 2**16 + workers
    assert int((every.sum(dim=0) - workers * 2**31).abs().max()) <= workers * (2**16 + workers)


def test_a_worker_by_itself_rounds_with_the_hash() -> None:
    assert KEY.together() == (KEY, spec.ALONE)
    assert replace(KEY, workers=1).together() == (replace(KEY, workers=1), spec.ALONE)
    shared = {replace(KEY, worker=worker, workers=3).together()[0].words() for worker in range(3)}
    assert len(shared) == 1 and shared.isdisjoint({replace(KEY, worker=worker).words() for worker in range(3)})
    assert replace(KEY, worker=2, workers=3).together(correlated=False)[1] == spec.ALONE


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(2, 70))
def test_places_are_ranks_of_hashes(seed: int, step: int, workers: int) -> None:
    k0, k1 = Key(seed, step, MASK)._salts
    start = int(reference.hashed(words([k0 ^ k1]), (0, 0))) & MASK
    drawn = [int(reference.hashed(words([start ^ worker]), (0, 0))) & MASK for worker in range(workers)]
    keys = [Key(seed, step, worker, "any", workers=workers) for worker in range(workers)]
    assert [key.together()[1] for key in keys] == [(sum(r < own for r in drawn), workers) for own in drawn]


@pytest.mark.slow
def test_no_two_workers_are_always_neighbours() -> None:
    """Where two of four have all there is, they err no more than by themselves, whichever two they are."""
    made, alone, n = method("qsgdinf", "correlated"), method("qsgdinf", "stochastic"), 4096
    for pair in ((0, 1), (0, 2), (0, 3), (2, 3)):
        x = torch.zeros(4, n)
        x[list(pair)] = gradients(2, n)
        of = {by: sum(_square(mean(by, x, step) - x.mean(dim=0)) for step in range(120)) for by in (made, alone)}
        assert of[made] < 1.02 * of[alone], pair


def _square(x: Tensor) -> float:
    return float(x.square().sum())


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 16])
def test_every_worker_by_itself_is_uniform(workers: int) -> None:
    n = 1 << 17
    for own in (0, workers // 2, workers - 1):
        u = reference.uniforms(n, KEY, among=(own, workers))
        counts = torch.histc(u, 64, 0, 1)
        assert float(((counts - n / 64) ** 2 / (n / 64)).sum()) < 120  # 63 degrees of freedom: p < 1e-5


def method(name: str, rounding: str, **settings: object) -> Compressor:
    made = METHODS[name].load()(METHODS[name].settings(rounding=rounding, bucket_size=512, **settings))
    if isinstance(made, AdaptiveQuantizer):
        seen = Statistics.empty(350)
        made.observe(torch.randn(4096, generator=torch.Generator().manual_seed(8)), KEY, seen)
        made.update(seen)
    return made


def mean(made: Compressor, vectors: Tensor, step: int) -> Tensor:
    keys = [replace(KEY, step=step, worker=worker, workers=len(vectors)) for worker in range(len(vectors))]
    return torch.stack([made.decode(made.encode(x, key)) for x, key in zip(vectors, keys, strict=True)]).mean(dim=0)


def gradients(workers: int, n: int = 4096) -> Tensor:
    """What workers have: something in common, and more of their own."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, generator=generator) + torch.randn(workers, n, generator=generator)


@few(1, "workers", [4, 2, 5])
@few(1, "rotation", ["none", "hadamard"])
@few(3, "name", FAMILY)
def test_the_mean_errs_less_and_nobody_is_biased(name: str, rotation: str, workers: int) -> None:
    x = gradients(workers)
    errors = {}
    for rounding in ("stochastic", "correlated"):
        made, repeats = method(name, rounding, rotation=rotation), 60
        found = torch.stack([mean(made, x, step) for step in range(repeats)]) - x.mean(dim=0)
        errors[rounding] = float(found.square().sum(dim=1).mean())
        # against the mean gradient, where a bias would add up
        along = found @ x.mean(dim=0)
        assert abs(float(along.mean())) < 4.5 * float(along.std()) / math.sqrt(repeats)
    assert errors["correlated"] < 0.97 * errors["stochastic"]
    if name == "qsgdinf":  # no level at zero: a prototype found .37, .2 and less with workers that agree more
        assert errors["correlated"] < {2: 0.60, 4: 0.55, 5: 0.55}[workers] * errors["stochastic"]


@pytest.mark.parametrize("name", FAMILY)
def test_a_worker_that_stays_away_leaves_the_others_unbiased(name: str) -> None:
    """Of 4 that round together two are decoded, as a server does that waits for the first two."""
    x, made = gradients(4), method(name, "correlated")
    here, repeats = (1, 2), 60
    keys = [[replace(KEY, step=step, worker=worker, workers=4) for worker in here] for step in range(repeats)]
    found = torch.stack(
        [
            torch.stack([made.decode(made.encode(x[key.worker], key)) for key in pair]).mean(dim=0) - x[1:3].mean(dim=0)
            for pair in keys
        ]
    )
    along = found @ x[1:3].mean(dim=0)
    assert abs(float(along.mean())) < 4.5 * float(along.std()) / math.sqrt(repeats)


def test_without_others_the_bytes_are_those_of_stochastic_rounding() -> None:
    x = gradients(1)[0]
    for name in FAMILY:
        both = [method(name, rounding).encode(x, KEY).to_bytes() for rounding in ("stochastic", "correlated")]
        assert torch.equal(*both), name


def test_short_vectors_before_the_first_levels() -> None:
    """They have a quantizer of their own, which rounds as the others do."""
    made = METHODS["alq"].load()(METHODS["alq"].settings(rounding="correlated", bucket_size=512))
    alone = METHODS["alq"].load()(METHODS["alq"].settings(rounding="stochastic", bucket_size=512))
    x = torch.randn(2, 100, generator=torch.Generator().manual_seed(2))
    totals = [
        sum(float((mean(m, x, step) - x.mean(dim=0)).square().sum()) for step in range(40)) for m in (made, alone)
    ]
    assert totals[0] < 0.95 * totals[1]
