"""Levels fit the buckets that travel: those of vectors, and of pieces of vectors, that are shorter than a bucket."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import nuq
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.level_updates import fit_levels
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from tests.nuq.parts import tiled


def error(decoded: Tensor, exact: Tensor) -> float:
    return float((decoded - exact).square().sum() / exact.square().sum())


@pytest.mark.parametrize("norm", ["l2", "linf", "quantile"])
@pytest.mark.parametrize("name", ["alq", "amq", "optimal"])
def test_a_vector_shorter_than_a_bucket_starts_from_levels_for_its_length(name: str, norm: str) -> None:
    whole, short = (METHODS[name].load()(METHODS[name].settings(norm=norm, bucket_size=size)) for size in (8192, 100))
    x, key = torch.randn(100, generator=torch.Generator().manual_seed(4)), Key(1, 0, 0)
    assert torch.equal(whole.decode(whole.encode(x, key)), short.decode(short.encode(x, key)))
    longer = torch.randn(8192, generator=torch.Generator().manual_seed(4))
    assert not torch.equal(whole.decode(whole.encode(longer, key)), short.decode(short.encode(longer, key)))


def test_short_normal_vectors_err_as_little_as_long_ones() -> None:
    compressor, generator = METHODS["alq"].load()(METHODS["alq"].settings(norm="l2")), torch.Generator().manual_seed(5)
    for size, count in ((64, 200), (512, 30)):
        vectors = [torch.randn(size, generator=generator) for _ in range(count)]
        decoded = [compressor.decode(compressor.encode(x, Key(1, number, 0))) for number, x in enumerate(vectors)]
        assert error(torch.cat(decoded), torch.cat(vectors)) < 0.25


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_levels_of_one_tensor_are_those_of_the_pieces_that_travel(norm: str) -> None:
    """The pieces are those of ``all_reduce`` by two stages, and FSDP's shards, which are shorter than the tensor's
    buckets.
    """
    x, key = torch.randn(8192, generator=torch.Generator().manual_seed(6)), Key(1, 0, 0)
    fitted = []
    for shards in ([tiled({"all": 8192})], tiled({"all": 8192}).shards(32)):
        compressors = CompressorMap("alq", METHODS["alq"].settings(norm=norm), 4)
        fit_levels(compressors, x, [own for shard in shards for own in shard.segments], key)
        fitted.append(compressors.adaptive[0])
    pieces = x.split(256)
    errors = [error(torch.cat([one.decode(one.encode(piece, key)) for piece in pieces]), x) for one in fitted]
    assert errors[1] < (0.5 if norm == "l2" else 1.0) * errors[0]


def travels(group: dist.ProcessGroup) -> list[float]:
    """The error of ``all_reduce`` in two stages, and in one, of a tensor as long as one bucket."""
    x = torch.randn(8192, generator=torch.Generator().manual_seed(7))
    how: dict[str, Any] = {"step": 1, "norm": "l2", "timeout_s": 30.0}
    collectives: list[dict[str, Any]] = [{"collective": "gather"}, {"collective": "two_stage", "second_bits": 8}]
    return [error(nuq.all_reduce(x, "alq", group, **collective, **how), x) for collective in collectives]


def test_two_stages_of_a_short_tensor_err_as_gather_does(ranks: Any) -> None:
    for gather, two_stage in ranks.run(travels, world=4):
        assert two_stage < 1.5 * gather
