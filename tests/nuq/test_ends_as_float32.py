"""A training by two ranks with the hook's defaults ends where one without compression ends, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import stats
from torch import nn

import nuq
from settings import resolving
from tests.nuq.small_training import wrapped
from train import data, models
from train.data.objective import loss_of

SEEDS = range(6)
MARGIN = 0.05  # of the loss in nats; named before the first run


def cnn(_: Mapping[str, Any], __: data.DataSet) -> nn.Module:
    """Two convolutions and a layer for the digits: parameters of 144 to 5,120 coordinates."""
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def gpt(config: Mapping[str, Any], dataset: data.DataSet) -> nn.Module:
    return models.build(config, dataset.input_shape, dataset.num_classes)


class Training(NamedTuple):
    model: Callable[[Mapping[str, Any], data.DataSet], nn.Module]
    optimizer: Callable[..., torch.optim.Optimizer]
    steps: int
    learned: float  # a loss that float32 must reach, lest nothing is compared
    settings: dict[str, Any]


TRAININGS = {
    "cnn, sgd": Training(cnn, partial(torch.optim.SGD, lr=0.05, momentum=0.9), 120, 0.5, {"data": "digits"}),
    "gpt, adamw": Training(
        gpt,
        partial(torch.optim.AdamW, lr=2e-3),
        300,
        2.8,
        {"data": "text", "data.length": 64, "data.num_train": 20_000, "data.num_test": 512, "model": "gpt"}
        | {"model.layers": 1, "model.width": 64},
    ),
}


def last_losses(group: dist.ProcessGroup, seed: int, name: str) -> list[float]:
    """The test losses at the end of the same training, in float32 and with the hook."""
    training = TRAININGS[name]
    config = resolving.resolve({"method": "supersgd", **training.settings})
    dataset = data.load(config, torch.device("cpu"))
    found = []
    for with_hook in (False, True):
        torch.manual_seed(seed)
        module = training.model(config, dataset)
        model = wrapped(group, module)
        if with_hook:
            model.register_comm_hook(nuq.CompressionState(model, seed=seed), nuq.compress_hook)
        optimizer = training.optimizer(model.parameters())
        draws = torch.Generator().manual_seed(1000 * seed + dist.get_rank(group))
        for _ in range(training.steps):
            x, y = dataset.train_batch(torch.randint(dataset.num_train, (16,), generator=draws), draws)
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            sums = [(float(loss_of(module(x), y, reduction="sum")), y.numel()) for x, y in dataset.batches("test", 64)]
        found.append(sum(loss for loss, _ in sums) / sum(count for _, count in sums))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_the_defaults_end_where_float32_ends(name: str, ranks: Any) -> None:
    """The 95 % interval of the mean difference, paired by seed, lies below the margin."""
    losses = np.array([ranks.run(last_losses, seed, name, world=2, timeout_s=300.0)[0] for seed in SEEDS])
    more = losses[:, 1] - losses[:, 0]
    half = stats.t.ppf(0.975, len(more) - 1) * more.std(ddof=1) / len(more) ** 0.5
    print(losses.round(4).tolist(), f"{more.mean():+.4f} +- {half:.4f}")
    assert losses[:, 0].max() < TRAININGS[name].learned, "float32 has learned too little"
    assert more.mean() + half < MARGIN, losses.tolist()
