"""A training by two ranks with the hook's defaults ends where one without compression ends, over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy

import nuq
from settings import resolving
from tests.nuq.small_training import wrapped
from train import data

SEEDS, STEPS = range(5), 120
MARGIN = 0.05  # of the loss; named before the first run


def cnn() -> nn.Sequential:
    """Two convolutions and a layer for the digits: parameters of 144 to 5,120 coordinates."""
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def last_losses(group: dist.ProcessGroup, seed: int) -> list[float]:
    """The test losses at the end of the same training by SGD, in float32 and with the hook."""
    dataset = data.load(resolving.resolve({"method": "supersgd", "data": "digits"}), torch.device("cpu"))
    found = []
    for with_hook in (False, True):
        torch.manual_seed(seed)
        module = cnn()
        model = wrapped(group, module)
        if with_hook:
            model.register_comm_hook(nuq.CompressionState(model, seed=seed), nuq.compress_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        draws = torch.Generator().manual_seed(1000 * seed + dist.get_rank(group))
        for _ in range(STEPS):
            x, y = dataset.train_batch(torch.randint(dataset.num_train, (16,), generator=draws), draws)
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            sums = [
                (float(cross_entropy(module(x), y, reduction="sum")), len(y)) for x, y in dataset.batches("test", 64)
            ]
        found.append(sum(loss for loss, _ in sums) / sum(count for _, count in sums))
    return found


@pytest.mark.slow
def test_the_defaults_end_where_float32_ends(ranks: Any) -> None:
    """The 95 % interval of the mean difference, paired by seed, lies below the margin."""
    losses = np.array([ranks.run(last_losses, seed, world=2, timeout_s=300.0)[0] for seed in SEEDS])
    more = losses[:, 1] - losses[:, 0]
    upper = more.mean() + stats.t.ppf(0.975, len(more) - 1) * more.std(ddof=1) / len(more) ** 0.5
    assert losses[:, 0].max() < 0.5, "float32 has learned nothing"
    assert upper < MARGIN, (losses.tolist(), more.mean(), upper)
