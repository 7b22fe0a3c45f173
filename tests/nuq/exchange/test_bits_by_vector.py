"""The bits a coordinate that a summary tells for each layer are those of the layer's messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nuq.exchange.summary import MOST_ROWS, bit_rows
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers

SHAPES = {"weight": torch.Size((40, 30)), "bias": torch.Size((30,))}
SIZES = {"weight": 1200, "bias": 30}


def _after(steps: int, name: str, collective: str, **settings: Any) -> tuple[Workers, list[torch.Tensor]]:
    """Two workers that have exchanged the same two gradients so many times, in vectors of one tensor each."""
    of = METHODS[name].settings(**settings)
    workers = Workers(name, of, 2, SHAPES, 0, torch.device("cpu"), exchange=Exchange(collective))
    vectors = [torch.randn(1230, generator=torch.Generator().manual_seed(worker)) for worker in range(2)]
    for step in range(steps):
        workers.exchange(dict(enumerate(vectors)), {0: 0.0, 1: 0.0}, step)
    return workers, vectors


@pytest.mark.parametrize("collective", ["gather", "two_stage"])
def test_known_lengths_count_headers(collective: str) -> None:
    workers, _ = _after(3, "qsgdinf", collective, bits=2, bucket_size=64, scope="tensor")
    found = workers.driver.bits_by_vector()  # it counts for as long as the workers hold their layouts
    method = METHODS["qsgdinf"]
    compressor = method.load()(method.settings(bits=2, bucket_size=64))
    for name, size in SIZES.items():
        alone = 8 * compressor.encode(torch.randn(size), Key(0, 0, 0)).to_bytes().numel() / size
        # in two stages a tensor is cut in two, each with a header of its own
        assert found[name] == pytest.approx(alone, rel=0 if collective == "gather" else 0.5, abs=1e-9)


def test_lengths_that_depend_on_the_values_are_added_up() -> None:
    workers, vectors = _after(3, "ecdq", "gather", scope="tensor")
    compressor = workers.compressor
    total = 0
    for step in range(3):
        for worker, vector in enumerate(vectors):
            key = Key(0, step, worker, "weight", workers=2)
            total += compressor.encode(vector[:1200], key).num_bytes
    assert workers.driver.bits_by_vector()["weight"] == pytest.approx(8 * total / (6 * 1200))


def test_factors_count_as_the_numbers_that_travel() -> None:
    workers, _ = _after(2, "powersgd", "gather", rank=2)
    assert workers.driver.bits_by_vector() == {"weight": 32 * 2 * (40 + 30) / 1200, "bias": 32}


def test_vectors_of_as_many_bits_are_told_together() -> None:
    assert bit_rows({"a": 3.0101, "b": 32.0, "c": 3.0099, "d": 3.0102}) == ["3.01 of a and 2 more", "32 of b"]
    many = bit_rows({str(number): float(number) for number in range(9)})
    assert len(many) == MOST_ROWS + 1 and many[-1] == f"{9 - MOST_ROWS} more"
