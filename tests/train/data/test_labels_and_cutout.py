"""Cutout against a loop and its distribution, draws that must not move, labels of no class, smoothed labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from settings import resolving
from train import data
from train.data.augment import Cutout
from train.data.dataset import Arrays, InMemory
from train.steps.order import generator as keyed
from train.steps.trainer import Trainer

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trainer(**chosen: object) -> Trainer:
    small = {"data": "digits", "model": "mlp", "batch_size": 8, "method": "sgd"}
    return Trainer(
        resolving.resolve({**small, **{key.replace("__", "."): value for key, value in chosen.items()}}), device=CPU
    )


# --- cutout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "height", "width"), [(1, 4, 6), (3, 5, 7), (4, 9, 5), (8, 32, 32), (5, 5, 5)])
def test_cutout_blanks_a_square_about_a_centre(side: int, height: int, width: int) -> None:
    images = torch.randn(20, 3, height, width, generator=generator(1))
    found = Cutout(side)(images.clone(), generator(7))
    centres = torch.randint(height * width, (20, 1), generator=generator(7)).flatten().tolist()
    for image, before, centre in zip(found, images, centres, strict=True):
        top, left = centre // width - side // 2, centre % width - side // 2
        expected = before.clone()
        for row in range(max(top, 0), min(top + side, height)):
            for column in range(max(left, 0), min(left + side, width)):
                expected[:, row, column] = 0
        assert torch.equal(image, expected)


def test_every_pixel_is_a_centre_equally_often() -> None:
    blanked = (Cutout(1)(torch.ones(64_000, 1, 8, 8), generator()) == 0).sum(dim=(0, 1))
    assert blanked.sum() == 64_000
    assert (blanked - 1000).abs().max() < 5 * 1000**0.5
    inside = (Cutout(8)(torch.ones(20_000, 1, 32, 32), generator()) == 0).float().mean(dim=(0, 1))
    assert inside[3:28, 3:28].mean() == pytest.approx(
        64 / 1024, rel=0.01
    )  # less near the border: the square is clipped there
    assert inside[0, 0] == pytest.approx(
        25 / 1024, abs=5 * (25 / 1024 / 20_000) ** 0.5
    )  # centres in the first 5 rows and columns


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_cutout_is_the_mean_colour_and_comes_after_the_crop(name: str) -> None:
    chosen = {"data": name, "stand_in": True, "data.augment": True}
    plain, cut = (data.load(resolving.resolve(chosen | {"data.cutout": side}), CPU) for side in (0, 6))
    indices = torch.arange(50)
    (x, y), (x_cut, y_cut) = plain.train_batch(indices, generator(3)), cut.train_batch(indices, generator(3))
    blank = (x_cut == 0).all(dim=1, keepdim=True)
    assert blank.sum(dim=(1, 2, 3)).min() >= 9 and blank.sum(dim=(1, 2, 3)).max() == 36
    assert torch.equal(y, y_cut) and torch.equal(
        torch.where(blank, 0, x), x_cut
    )  # the crops are those of the run without
    assert torch.equal(
        next(cut.batches("train", 50))[0], next(plain.batches("train", 50))[0]
    )  # evaluation sees whole images


def test_without_cutout_the_draws_are_as_before() -> None:
    dataset = data.load(resolving.resolve({"data": "cifar10", "stand_in": True}), CPU)
    drawing, expected = generator(5), generator(5)
    dataset.train_batch(torch.arange(9), drawing)
    torch.randint(9 * 9 * 2, (9,), generator=expected)
    assert torch.equal(drawing.get_state(), expected.get_state())
    plain = data.load(resolving.resolve({"data": "cifar10", "stand_in": True, "data.augment": False}), CPU)
    plain.train_batch(torch.arange(9), drawing)
    assert torch.equal(drawing.get_state(), expected.get_state())


def test_cutout_depends_on_the_key_alone() -> None:
    dataset = data.load(resolving.resolve({"data": "cifar10", "stand_in": True, "data.cutout": 8}), CPU)
    state = torch.random.get_rng_state()
    first, again, other = (
        dataset.train_batch(torch.arange(8), keyed(1, 5, worker, "train"))[0] for worker in (2, 2, 3)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_pictures_are_cut_too(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / "imagenet" / split / "cat").mkdir(parents=True)
        Image.new("RGB", (256, 256), (200, 10, 10)).save(tmp_path / "imagenet" / split / "cat" / "1.png")
    chosen = {"data": "imagenet", "data_dir": str(tmp_path), "data.augment": False}
    plain, cut = (data.load(resolving.resolve(chosen | {"data.cutout": side}), CPU) for side in (0, 224))
    x, x_cut = plain.train_batch(torch.tensor([0]), generator())[0], cut.train_batch(torch.tensor([0]), generator())[0]
    blank = (x_cut == 0).all(dim=1, keepdim=True)
    assert blank.sum() >= 112 * 112 and torch.equal(torch.where(blank, 0, x), x_cut)


# --- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strange", "split"), [(10, "training"), (-1, "test")])
def test_a_label_that_is_no_class_is_named(strange: int, split: str) -> None:
    good, bad = np.array([0, 9, 3]), np.array([1, strange, 99])
    train, test = (
        Arrays(np.zeros((3, 1, 8, 8), np.uint8), bad if name == split else good) for name in ("training", "test")
    )
    with pytest.raises(
        ValueError, match=rf"data=svhn, {split} split: the label {strange} of example 1 is no class; the 10 .* 0 to 9"
    ):
        InMemory("svhn", train, test, 10, CPU)


def test_smoothed_labels_by_hand() -> None:
    logits, labels = torch.randn(8, 10, generator=generator()), torch.arange(8)
    targets = torch.full((8, 10), 0.2 / 10)
    targets[range(8), labels] += 0.8
    by_hand = -(targets * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(cross_entropy(logits, labels, label_smoothing=0.2), by_hand)


def gradient(ours: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    return ours.gradient(0, 0, ours.order, "train")


def test_training_is_smoothed_and_evaluation_is_not() -> None:
    plain, smoothed = trainer(), trainer(label_smoothing=0.3)
    (without, loss), (with_, smoothed_loss) = gradient(plain), gradient(smoothed)
    x, _ = plain.data.train_batch(plain.order.indices(0, 0), keyed(1, 0, 0, "train"))
    even = -plain.model(x).detach().log_softmax(1).mean()
    assert float(smoothed_loss) == pytest.approx(0.7 * float(loss) + 0.3 * float(even), rel=1e-5)
    assert not torch.equal(without, with_)
    for split in ("train", "test"):
        assert plain.evaluate(split) == smoothed.evaluate(split)


def test_without_smoothing_the_gradient_is_as_before() -> None:
    ours: Any = trainer()
    x, y = ours.data.train_batch(ours.order.indices(0, 0), keyed(1, 0, 0, "train"))
    expected = torch.autograd.grad(cross_entropy(ours.model(x), y), list(ours.model.parameters()))
    assert torch.equal(gradient(ours)[0], torch.cat([part.reshape(-1) for part in expected]))


# --- a recipe ------------------------------------------------------------------------------------------------------


def test_resnet9s_recipe_takes_a_step_of_rate_zero_and_then_moves() -> None:
    chosen = {
        "data__cutout": 8,
        "optim__lr": 0.4,
        "optim__nesterov": True,
        "optim__weight_decay": 5e-4,
        "schedule": "piecewise_linear",
    }
    ours = trainer(data="cifar10", model="resnet9", stand_in=True, batch_size=2, label_smoothing=0.1, **chosen)
    before = ours.model.output.weight.detach().clone()  # type: ignore[union-attr]
    ours.train_step()
    assert torch.equal(ours.model.output.weight, before)  # type: ignore[union-attr]
    ours.train_step()
    assert not torch.equal(ours.model.output.weight, before)  # type: ignore[union-attr]
    assert ours.optimizer.param_groups[0]["lr"] == 0.4 / 485
