"""torchvision's models by name: any that exists, the nearest of one that does not,
and what a model itself cannot take.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from settings import resolving
from tests.tiers import few
from tests.train.models.test_models import build, size
from train.data.torchvision_import import torchvision
from train.models import weights
from train.steps.trainer import Trainer


def named(arch: str, shape: tuple[int, ...] = (3, 32, 32), num_classes: int = 10, /, **chosen: object) -> nn.Module:
    return build("torchvision", shape, num_classes, **{"model.arch": arch, **chosen})


@few(2, "arch", ["mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "googlenet", "regnet_y_400mf"])
def test_a_model_by_name_gives_logits(arch: str) -> None:
    model = named(arch, (3, 32, 32), 7)
    assert model.training
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_a_model_by_name_is_torchvisions() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        theirs = torchvision().models.mobilenet_v3_small(num_classes=10).state_dict()
    ours = named("mobilenet_v3_small", seed=3).state_dict()  # the try on shapes alone has drawn nothing
    assert list(ours) == list(theirs) and all(torch.equal(ours[key], value) for key, value in theirs.items())
    assert size(named("mobilenet_v3_small", (3, 64, 64), 1000)) == 2_542_856  # as torchvision documents it


@pytest.mark.slow
def test_models_of_one_size_are_made_for_the_datas() -> None:
    model = named("vit_b_32", (3, 64, 64))
    assert model.get_parameter("encoder.pos_embedding").shape[1] == 1 + (64 // 32) ** 2


@pytest.mark.parametrize(
    ("arch", "near"),
    [("resnet_50", "'resnet50'"), ("mobilenetv3small", "'mobilenet_v3_small'"), ("vit_b16", "'vit_b_16'")],
)
def test_an_unknown_name_names_the_nearest(arch: str, near: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"model.arch='{arch}': torchvision has no such model for classification; did you mean .*{near}",
    ):
        named(arch)


def test_a_name_near_to_none() -> None:
    with pytest.raises(ValueError, match=r"no such model for classification \(legal: one of its \d+ models\)"):
        named("qqqqqqqq")
    with pytest.raises(ValueError, match="no such model for classification"):  # a detector
        named("retinanet_resnet50_fpn")


@few(
    2,
    ("arch", "shape"),
    [("alexnet", (3, 32, 32)), ("inception_v3", (3, 64, 64)), ("vit_b_32", (3, 48, 48)), ("vit_b_32", (3, 64, 32))],
)
def test_pictures_that_a_model_cannot_take(arch: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"model.arch={arch}: cannot take images of 3x{shape[1]}x{shape[2]}: .+"):
        named(arch, shape)


def test_grey_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="model=torchvision needs images with 3 channels"):
        named("resnet18", (1, 32, 32))


@pytest.mark.slow
def test_files_with_auxiliary_classifiers_are_torchvisions_own(tmp_path: Path) -> None:
    """They know pictures that were scaled to [-1, 1], and say so themselves."""
    path = tmp_path / "googlenet.pt"
    own = named("googlenet", seed=5)
    torch.save(own.state_dict(), path)
    assert named("googlenet", seed=6, **{"model.weights_file": str(path)}).transform_input is False
    torch.save({**own.state_dict(), "aux1.fc2.weight": torch.zeros(10, 3), "aux2.fc2.bias": torch.zeros(10)}, path)
    loaded = build("inception", (3, 64, 64), seed=6, **{"model.weights_file": str(path)})
    assert loaded.transform_input is True
    assert torch.equal(loaded.state_dict()["fc.weight"], own.state_dict()["fc.weight"])
    small = tmp_path / "small.pt"
    torch.save({**build("cnn").state_dict(), "aux1.fc2.weight": torch.zeros(1)}, small)
    with pytest.raises(ValueError, match=r"1 unknown \(aux1"):
        weights.load_weights(build("cnn"), "cnn", small)


def test_two_steps_of_a_model_by_name() -> None:
    chosen = {
        "data": "cifar10",
        "model": "torchvision",
        "model.arch": "shufflenet_v2_x0_5",
        "stand_in": True,
        "method": "alq",
        "workers": 2,
    }
    trainer = Trainer(resolving.resolve({**chosen, "batch_size": 2, "optim.lr": 0.01}), device=torch.device("cpu"))
    losses = [trainer.train_step().losses for _ in range(2)]
    assert all(0 < loss < 20 for step in losses for loss in step)
