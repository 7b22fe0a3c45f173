"""What is drawn at random in a training follows from the seed alone; an evaluation draws nothing and moves nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from settings import resolving
from train.data.dataset import Split
from train.steps.order import Order
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
# augmented pictures, batch-norm buffers and dropout
BASE: dict[str, Any] = {
    "data": "cifar10",
    "stand_in": True,
    "data.augment": True,
    "method": "qsgdinf",
    "model": "wide_resnet",
    "model.depth": 10,
    "model.widen": 1,
    "model.dropout": 0.5,
    "batch_size": 4,
    "workers": 2,
    "method.bucket_size": 512,
    "eval_batch_size": 50,
}


def trainer(**settings: Any) -> Trainer:
    return Trainer(
        resolving.resolve(BASE | {key.replace("__", "."): value for key, value in settings.items()}), device=CPU
    )


def buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def whole(made: Trainer) -> Tensor:
    return torch.cat([value.reshape(-1).double() for value in made.model.state_dict().values()])


# --- evaluation ---------------------------------------------------------------------------------------------------


def test_an_evaluation_is_in_eval_mode_without_augmentation_and_moves_nothing() -> None:
    """Its numbers are those of a copy in eval mode on pictures that were loaded without augmentation."""
    ours, plain = trainer(), trainer(data__augment=False).data
    for _ in range(2):
        ours.train_step()
    assert ours.model.training
    before, buffers_before = whole(ours), buffers(ours.model)
    assert any(name.endswith("running_mean") for name in buffers_before)
    still = copy.deepcopy(ours.model).eval()
    splits: list[tuple[Split, str]] = [("test", "V"), ("train", "T")]
    for split, prefix in splits:
        found = ours.evaluate(split)
        x, y = (torch.cat(parts) for parts in zip(*plain.batches(split, 100), strict=True))
        with torch.no_grad():
            logits = still(x)
        assert found[f"{prefix}loss"] == pytest.approx(float(cross_entropy(logits, y)), rel=1e-5)
        assert found[f"{prefix}acc"] == pytest.approx(100 * float((logits.argmax(1) == y).double().mean()))
    assert torch.equal(whole(ours), before)
    assert all(torch.equal(buffer, buffers_before[name]) for name, buffer in ours.model.named_buffers())


def test_a_training_with_evaluations_is_the_one_without() -> None:
    """Bit by bit, buffers too, which steps move; a step after an evaluation is in training mode again."""
    with_them, without = trainer(), trainer()
    for _ in range(2):
        with_them.evaluate("test")
        with_them.measure()
        state = buffers(with_them.model)
        with_them.train_step()
        without.train_step()
        assert not torch.equal(with_them.model.state_dict()["norm.running_mean"], state["norm.running_mean"])
    assert torch.equal(whole(with_them), whole(without))


# --- seeds --------------------------------------------------------------------------------------------------------


def _order(made: Trainer) -> list[Tensor]:
    return [made.order.indices(step, worker) for step in (0, 1, 9) for worker in (0, 1)]


def _orders_beside(made: Trainer) -> list[Tensor]:
    return [order.indices(0, worker) for order in (made.measure_order, made.update_order) for worker in (0, 1)]


def _augmentation(made: Trainer) -> list[Tensor]:
    """Of the same pictures."""
    fixed = Order(made.data.num_train, 4, 2, 0)
    return [
        made.gradients._batch(fixed.indices(0, 0), worker, step, "train")[0] for step in (0, 1) for worker in (0, 1)
    ]


def _dropout(made: Trainer) -> list[Tensor]:
    """The gradients of one model on the same pictures, which are not augmented."""
    still = trainer(data__augment=False)
    made.gradients.data = still.data
    made.model.load_state_dict(still.model.state_dict())
    fixed = Order(made.data.num_train, 4, 2, 0)
    made.model.train()
    return [
        made.gradients._of_minibatch(fixed.indices(0, 0), worker, step, "train")[0]
        for step in (0, 1)
        for worker in (0, 1)
    ]


def _weights(made: Trainer) -> list[Tensor]:
    return [torch.cat([p.detach().reshape(-1) for p in made.parameters.values() if p.dim() > 1])]


def _rounding(made: Trainer) -> list[Tensor]:
    """The mean of the same two gradients."""
    given = torch.linspace(-1, 1, made.workers.num_coordinates).square()
    every = {worker: given * (1 + worker) for worker in made.workers.hosted}
    return [made.workers.exchange(every, dict.fromkeys(every, 0.0), step).mean.clone() for step in (0, 1)]


STREAMS: dict[str, tuple[Callable[[Trainer], list[Tensor]], dict[str, Any]]] = {
    "order of the samples": (_order, {}),
    "order of the samples that measure and update": (_orders_beside, {}),
    "augmentation": (_augmentation, {}),
    "dropout": (_dropout, {}),
    "initial weights": (_weights, {}),
    "rounding": (_rounding, {}),
    "rotations": (_rounding, {"method": "eden", "method.bucket_size": 128}),
    "random indices": (_rounding, {"method": "randomk", "method.bucket_size": 0}),
}


@pytest.mark.parametrize(("draws", "settings"), STREAMS.values(), ids=STREAMS.keys())
def test_two_seeds_differ_in_every_stream_and_one_in_none(
    draws: Callable[[Trainer], list[Tensor]], settings: dict[str, Any]
) -> None:
    """The streams of a seed are the same whatever was drawn before, and differ between steps and between workers.

    Neither a trainer nor what it draws touches the global generator.
    """
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(found))
        state = torch.get_rng_state()
        made = trainer(seed=seed, **settings)
        found.append(draws(made))
        assert torch.equal(torch.get_rng_state(), state)
    one, again, other = found
    assert all(torch.equal(x, y) for x, y in zip(one, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    assert not any(torch.equal(x, y) for place, x in enumerate(one) for y in one[:place])


@pytest.mark.parametrize("number", range(2))
def test_every_test_begins_at_one_thread(number: int) -> None:
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2 + number)  # as a training does in this process, whose last bits differ then
