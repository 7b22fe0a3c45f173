"""Wide, deep and small-image residual networks: published sizes, what a block computes, and blocks that start as their
shortcut.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from settings import resolving
from tests.tiers import few
from tests.train.models.test_models import build, size
from train import models
from train.models import cifar_stem_resnet, wide_resnet
from train.steps.trainer import Trainer


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


# --- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "widen", "published"),
    [(40, 1, "0.6M"), (40, 2, "2.2M"), (40, 4, "8.9M"), (28, 10, "36.5M"), (22, 8, "17.2M"), (16, 8, "11.0M")],
)
def test_wide_resnets_have_the_papers_number_of_parameters(depth: int, widen: int, published: str) -> None:
    with torch.device("meta"):
        model = build("wide_resnet", **{"model.depth": depth, "model.widen": widen})
    assert f"{size(model) / 1e6:.1f}M" == published  # Table 3 of the paper
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)]
    assert (
        len(layers) + 3 == depth
    )  # the paper counts the three convolutions of 1x1 in shortcuts, and not the linear layer


@pytest.mark.parametrize(
    ("depth", "published"), [(18, 11_173_962), (34, 21_282_122), (50, 23_520_842), (101, 42_512_970), (152, 58_156_618)]
)
def test_stems_for_small_images_leave_the_customary_number_of_parameters(depth: int, published: int) -> None:
    with torch.device("meta"):
        model = build(f"cifar_resnet{depth}")
    assert size(model) == published
    kind = cifar_stem_resnet.Block if depth < 50 else cifar_stem_resnet.Bottleneck
    assert isinstance(next(iter(model.blocks)), kind)  # type: ignore[arg-type]


@few(2, "depth", list(cifar_stem_resnet.BLOCKS))
def test_a_stem_resnet_has_as_many_layers_as_its_name_says(depth: int) -> None:
    with torch.device("meta"):
        model = build(f"cifar_resnet{depth}").eval()
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 10)
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in name
    ]
    assert len(names) == depth


@pytest.mark.slow
def test_the_deepest_resnet() -> None:
    with torch.device("meta"):
        model = build("resnet1202")
    n = 200
    convolutions = 9 * (3 * 16 + 2 * n * 16**2 + (16 * 32 + (2 * n - 1) * 32**2) + (32 * 64 + (2 * n - 1) * 64**2))
    assert size(model) == convolutions + 2 * (16 + 2 * n * (16 + 32 + 64)) + 650 == 19_421_274  # the paper: 19.4M
    assert model.eval()(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 10)


# --- what they compute ---------------------------------------------------------------------------------------------


def normalised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(8, 8, 1), (8, 12, 2), (8, 12, 1)])
def test_a_wide_block_is_its_formula(inputs: int, outputs: int, stride: int) -> None:
    block = wide_resnet.Block(inputs, outputs, stride, 0.0)
    x = torch.randn(4, inputs, 6, 6, generator=torch.Generator().manual_seed(0))
    h = normalised(x).relu()
    inner = normalised(F.conv2d(h, block.conv1.weight, padding=1, stride=stride)).relu()
    shortcut = x if block.shortcut is None else F.conv2d(h, block.shortcut.weight, stride=stride)
    assert (block.shortcut is None) == (inputs == outputs)
    torch.testing.assert_close(
        block(x), shortcut + F.conv2d(inner, block.conv2.weight, padding=1), rtol=1e-4, atol=1e-5
    )


def test_a_bottleneck_is_its_formula() -> None:
    block = cifar_stem_resnet.Bottleneck(8, 4, 2)
    x = torch.randn(4, 8, 6, 6, generator=torch.Generator().manual_seed(0))
    h = normalised(F.conv2d(x, block.conv1.weight)).relu()
    h = normalised(F.conv2d(h, block.conv2.weight, padding=1, stride=2)).relu()
    shortcut = normalised(F.conv2d(x, cast(nn.Conv2d, block.shortcut[0]).weight, stride=2))
    torch.testing.assert_close(
        block(x), (normalised(F.conv2d(h, block.conv3.weight)) + shortcut).relu(), rtol=1e-4, atol=1e-5
    )


def test_dropout_of_a_wide_resnet_lies_inside_its_blocks() -> None:
    model = build("wide_resnet", **{"model.depth": 10, "model.widen": 1, "model.dropout": 0.3})
    dropped = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert dropped == [0.3] * 3
    with torch.random.fork_rng(devices=[]):
        assert not torch.equal(model(images(2)), model(images(2)))


# --- blocks that start as their shortcut ---------------------------------------------------------------------------

RESIDUAL: dict[str, dict[str, Any]] = {
    "resnet20": {},
    "cifar_resnet18": {},
    "cifar_resnet50": {},
    "resnet18": {},
    "wide_resnet": {"model.depth": 16, "model.widen": 1},
    "torchvision": {"model.arch": "resnext50_32x4d"},
}


@few(3, "name", list(RESIDUAL))
def test_every_residual_block_can_start_as_its_shortcut(name: str) -> None:
    chosen, shapes = RESIDUAL[name], []
    usual, zeroed = (build(name, seed=3, **chosen, **{"model.zero_init": zero}) for zero in (False, True))
    kinds = {"Block", "Bottleneck", "BasicBlock"}
    blocks = [module for module in zeroed.modules() if type(module).__name__ in kinds]
    for block in blocks:
        block.register_forward_hook(lambda module, inputs, output: shapes.append((module, inputs[0], output)))
    zeroed.train()(images(2))
    same = [(x, y) for _, x, y in shapes if x.shape == y.shape]
    assert len(same) >= len(blocks) - 4  # all but those that change the shape
    assert all(torch.equal(y, x if name == "wide_resnet" else x.relu()) for x, y in same)
    moved = [key for key, value in usual.named_parameters() if not torch.equal(value, zeroed.get_parameter(key))]
    assert len(moved) == len(blocks) and not any(bool(zeroed.get_parameter(key).any()) for key in moved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "cifar_resnet18", "wide_resnet"])
def test_blocks_that_start_as_their_shortcut_learn_all_their_parameters(name: str) -> None:
    """A gain of zero in front of a rectifier would stay there for ever."""
    size = {"model.depth": 10, "model.widen": 1} if name == "wide_resnet" else {}
    chosen = {
        "data": "cifar10",
        "model": name,
        "model.zero_init": True,
        "stand_in": True,
        "method": "supersgd",
        "workers": 1,
        **size,
    }
    trainer = Trainer(resolving.resolve({**chosen, "batch_size": 2, "optim.lr": 0.01}), device=torch.device("cpu"))
    before = {key: parameter.detach().clone() for key, parameter in trainer.parameters.items()}
    for _ in range(3):
        trainer.train_step()
    assert not [key for key, parameter in trainer.parameters.items() if torch.equal(parameter, before[key])]


def test_where_zero_init_has_nothing_to_do() -> None:
    with pytest.raises(ValueError, match=r"model\.zero_init=True: has no effect with model\.batch_norm=False"):
        resolving.resolve({"model": "resnet8", "model.batch_norm": False, "model.zero_init": True})
    with pytest.raises(ValueError, match=r"model\.zero_init=True: squeezenet1_0 has no residual blocks"):
        build("torchvision", **{"model.arch": "squeezenet1_0", "model.zero_init": True})
    with pytest.raises(ValueError, match=r"model\.zero_init"):  # its blocks end with a rectifier
        resolving.resolve({"model": "resnet9", "model.zero_init": True})


def test_the_depth_of_a_wide_resnet_is_6n_plus_4() -> None:
    with pytest.raises(ValueError, match=r"model\.depth=18: must be one of 10, 16, 22, 28, "):
        resolving.resolve({"model": "wide_resnet", "model.depth": 18})
    assert "wide_resnet" in models.legal_models((3, 32, 32))
