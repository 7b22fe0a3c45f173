"""The error of a collective's mean is the errors of its encodings, which are independent: gather's of the workers'
messages alone, and two stages' of the means that are encoded again, too.

With n workers, m the mean of their vectors x and c the decoded messages, E|out - m|^2 is the sum of E|c - x|^2 over
n^2, and for two stages E|d - y|^2 more, where y is the mean of the messages and d that decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nuq.exchange.collectives.collective import Collective, WorkerPlacement
from nuq.exchange.collectives.gather import Gather
from nuq.exchange.collectives.two_stage import TwoStage
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.registry import METHODS

WORKERS, SIZE, DRAWS = 4, 1 << 13, 24
LAYOUT = FlatLayout((Segment("model", 0, SIZE),))
ALONE = {"rounding": "stochastic", "bits": 3}  # the workers err independently
CASES: dict[str, dict[str, Any]] = {
    "qsgdinf": {**ALONE, "bucket_size": 256},
    "alq": {**ALONE, "bucket_size": 256, "norm": "linf"},
}


def squared(vector: Tensor) -> float:
    return float(vector.double().square().sum())


def decoded(codec: PayloadCodec, vector: Tensor, parts: Sequence[FlatLayout], key: Key) -> Tensor:
    """A vector that was encoded part by part, each with random numbers of its own."""
    out = torch.zeros(SIZE)
    for number, part in enumerate(parts):
        codec.add(codec.encode(vector, part, key.of(str(number))), part, out)
    return out


@pytest.mark.parametrize("noise", [0.3, 3.0])  # how much the workers differ
@pytest.mark.parametrize("name", CASES)
def test_the_error_of_a_mean_is_that_of_its_encodings(name: str, noise: float) -> None:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(SIZE, generator=generator) + noise * torch.randn(WORKERS, SIZE, generator=generator)
    compressors = CompressorMap(name, METHODS[name].settings(**CASES[name]), second_bits=4)
    for compressor in compressors.adaptive:
        compressor.update(compressors.adaptive[0].observed((x, Key(1, 0, w)) for w, x in enumerate(vectors)))
    transport, placement = Transport(None), WorkerPlacement.of(WORKERS, 1)
    collectives: list[Collective] = [
        Gather(transport, placement, compressors.codec),
        TwoStage(transport, placement, compressors.codec, compressors.mean_codec),
    ]
    mean, first, second, found = vectors.double().mean(dim=0).float(), 0.0, 0.0, [0.0, 0.0]
    for draw in range(DRAWS):
        for number, collective in enumerate(collectives):
            collective.mean(dict(enumerate(vectors)), LAYOUT, Key(1, draw, 0), out := torch.empty(SIZE))
            found[number] += squared(out - mean) / DRAWS
        key = Key(2, draw, 0)  # other random numbers than the collectives'
        parts = LAYOUT.shards(WORKERS)
        messages = [decoded(compressors.codec, x, parts, replace(key, worker=w)) for w, x in enumerate(vectors)]
        first += sum(squared(c - x) for c, x in zip(messages, vectors, strict=True)) / WORKERS**2 / DRAWS
        of_messages = torch.stack(messages).mean(dim=0)
        second += squared(decoded(compressors.mean_codec, of_messages, parts, key.of("mean")) - of_messages) / DRAWS
    assert second > 0.1 * first > 0
    assert found == pytest.approx([first, first + second], rel=0.03)
