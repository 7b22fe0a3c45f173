"""LeNet, AlexNet, VGG, ResNet-9, GoogLeNet and the original's small networks: sizes by hand, what they compute, and two
real steps each.
"""

import itertools
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from settings import resolving
from tests.tiers import few
from tests.train.models.test_models import FOR_MNIST, build, size
from train import models
from train.models import classic, original, resnet9
from train.models.inception import CifarInception
from train.steps.trainer import Trainer

COLOUR = (3, 32, 32)
NEW = [
    *("lenet", "resnet9", "cifar_resnet18", "alexnet", "vgg16_bn", "vgg11", "inception", "cifar_cnn"),
    *(name for name in FOR_MNIST[1:] if name != "bigcnn"),
]


def images(count: int, shape: tuple[int, ...] = COLOUR) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


# --- sizes ---------------------------------------------------------------------------------------------------------


def test_sizes_of_lenet() -> None:
    assert (
        size(build("lenet", (1, 28, 28))) == 520 + 25_050 + (800 * 500 + 500) + 5010 == 431_080
    )  # Caffe's, and ATOMO's
    assert size(build("lenet", COLOUR)) == (75 * 20 + 20) + 25_050 + (1250 * 500 + 500) + 5010


def test_sizes_of_resnet9_and_the_small_resnet18() -> None:
    convolutions = 9 * (3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2)
    assert size(build("resnet9")) == convolutions + 2 * (64 + 3 * 128 + 256 + 3 * 512) + 512 * 10 == 6_573_120
    assert size(build("cifar_resnet18")) == 11_173_962  # published with the form
    stem, head = 7 * 7 * 3 * 64 - 3 * 3 * 3 * 64, 512 * 990 + 990  # what the ImageNet form has more
    assert size(build("cifar_resnet18")) == 11_689_512 - stem - head


def test_sizes_of_alexnet_and_vgg16() -> None:
    linear = (1024 * 4096 + 4096) + (4096 * 4096 + 4096) + (4096 * 10 + 10)
    weights = 9 * (3 * 64 + 64 * 192 + 192 * 384 + 384 * 256 + 256 * 256)
    assert size(build("alexnet")) == weights + (64 + 192 + 384 + 256 + 256) + linear == 23_272_266
    channels = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    convolutions = sum(9 * inputs * outputs for inputs, outputs in itertools.pairwise(channels))
    assert size(build("vgg16_bn")) == convolutions + 2 * sum(channels[1:]) + 512 * 10 + 10 == 14_724_042


def test_sizes_of_the_originals_networks() -> None:
    assert (
        size(build("mnist_convnet", (1, 28, 28)))
        == (25 * 64 + 64) + (25 * 64 * 128 + 128) + (2048 * 1000 + 1000) + 10_010
    )
    with torch.device("meta"):
        large = build("bigcnn", (1, 28, 28))
        assert size(large) == 26_000 + (25 * 1000 * 1000 + 1000) + (16_000 * 1000 + 1000) + 10_010
        assert large.eval()(torch.empty(2, 1, 28, 28)).shape == (2, 10)
    assert size(build("cifar_cnn")) == (75 * 64 + 64) + (25 * 64 * 128 + 128) + (3200 * 1000 + 1000) + 10_010
    assert size(build("cifar_mlp")) == (3072 * 1024 + 1024) + (1024 * 1024 + 1024) + (1024 * 10 + 10)
    for name, width in (("mnist_mlp", 1024), ("smlp", 50), ("ssmlp", 20)):
        assert size(build(name, (1, 28, 28))) == (784 * width + width) + (width * width + width) + (width * 10 + 10)


@pytest.mark.parametrize(("depth", "published"), [(11, 9_231_114), (13, 9_416_010), (16, 14_728_266), (19, 20_040_522)])
def test_sizes_of_vgg(depth: int, published: int) -> None:
    """The customary forms for CIFAR have both norms and biases before them; ours have either."""
    with torch.device("meta"):
        plain, normalised = build(f"vgg{depth}"), build(f"vgg{depth}_bn")
    channels = sum(module.out_channels for module in plain.modules() if isinstance(module, nn.Conv2d))
    assert size(plain) + 2 * channels == size(normalised) + channels == published
    weights = [module for module in plain.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(weights) == depth - 2  # of three linear layers one is left


def test_sizes_of_inception() -> None:
    with torch.device("meta"):
        model = build("inception")
    norms = [module.num_features for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 1 + 9 * 7
    assert size(model) + sum(norms) == 6_166_250  # published with biases in front of the norms


@pytest.mark.parametrize(
    ("name", "published"),
    [
        *(("alexnet", 61_100_840), ("resnet50", 25_557_032), ("inception", 6_624_904)),
        *(("vgg11", 132_863_336), ("vgg16", 138_357_544), ("vgg16_bn", 138_365_992), ("vgg19_bn", 143_678_248)),
    ],
)
def test_large_images_get_torchvisions_form(name: str, published: int) -> None:
    with torch.device("meta"):  # sizes alone: no weights are drawn
        assert size(build(name, (3, 224, 224), 1000)) == published
        small = build(name, (3, 63, 224))
    assert isinstance(small, classic.AlexNet | classic.VGG | CifarInception) == (name != "resnet50")


# --- what they compute ---------------------------------------------------------------------------------------------


@few(2, "name", ["resnet9", "cifar_resnet18", "alexnet", "vgg16_bn", "vgg11", "inception"])
def test_any_size_below_64_fits(name: str) -> None:
    for shape in ((3, 32, 63), (3, 33, 47)):
        model = build(name, shape, 5).eval()
        assert model(images(1, shape)).shape == (1, 5)


@pytest.mark.parametrize("side", [16, 17, 28, 32, 63])
def test_lenet_fits_from_16_to_63_pixels(side: int) -> None:
    assert build("lenet", (2, side, 16), 3)(images(2, (2, side, 16))).shape == (2, 3)


@pytest.mark.parametrize("shape", [(1, 15, 28), (1, 28, 64), (100,)])
def test_lenet_names_the_sizes_it_takes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="model=lenet needs images of 16x16 to 63x63 pixels"):
        models.build(resolving.resolve({"data": "mnist", "model": "lenet"}), shape, 10)


def test_resnet9_is_its_formula() -> None:
    model, x = cast(resnet9.ResNet9, build("resnet9")).eval(), images(2)
    weights = iter(module.weight for module in model.modules() if isinstance(module, nn.Conv2d))

    def block(h: torch.Tensor) -> torch.Tensor:  # at the start its normalisation only divides by sqrt(1 + eps)
        return (F.conv2d(h, next(weights), padding=1) / (1 + 1e-5) ** 0.5).relu()

    h = block(x)
    for residual in (True, False, True):
        h = F.max_pool2d(block(h), 2)
        h = h + block(block(h)) if residual else h
    assert h.shape == (2, 512, 4, 4)
    torch.testing.assert_close(model(x), 0.125 * h.amax(dim=(2, 3)) @ model.output.weight.T, rtol=1e-4, atol=1e-5)


def test_lenet_is_its_formula() -> None:
    model, x = cast(classic.LeNet, build("lenet", (1, 28, 28))), images(2, (1, 28, 28))
    h = F.max_pool2d(F.conv2d(x, model.conv1.weight, model.conv1.bias), 2).relu()
    h = F.max_pool2d(F.conv2d(h, model.conv2.weight, model.conv2.bias), 2).relu()
    assert h.shape == (2, 50, 4, 4)
    h = (h.flatten(1) @ model.hidden.weight.T + model.hidden.bias).relu()
    torch.testing.assert_close(model(x), h @ model.output.weight.T + model.output.bias, rtol=1e-4, atol=1e-5)


def test_the_small_resnet18_is_torchvisions_but_for_the_stem() -> None:
    ours, theirs = build("cifar_resnet18"), build("resnet18")
    for module in (ours, theirs):
        module.eval()
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    weights = list(ours.state_dict().values())
    assert [value.shape for value in weights] == [value.shape for value in theirs.state_dict().values()]
    theirs.load_state_dict(dict(zip(theirs.state_dict(), weights, strict=True)))
    torch.testing.assert_close(ours(images(2)), theirs(images(2)), rtol=1e-4, atol=1e-5)


def test_vgg16_halves_the_image_five_times() -> None:
    model, shapes = cast(classic.VGG, build("vgg16_bn")).eval(), []
    for module in model.features:
        if isinstance(module, nn.MaxPool2d):
            module.register_forward_hook(lambda *called: shapes.append(tuple(called[2].shape[1:])))
    model(images(1))
    assert shapes == [(64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2), (512, 1, 1)]


def test_inceptions_modules_have_the_papers_channels() -> None:
    model, shapes = cast(CifarInception, build("inception")).eval(), []
    for module in model.features:
        if hasattr(module, "three"):
            module.register_forward_hook(lambda *called: shapes.append(tuple(called[2].shape[1:])))
    model(images(1))
    published = [256, 480, 512, 512, 512, 528, 832, 832, 1024]  # the table's column of output sizes
    assert shapes == [
        (channels, side, side) for channels, side in zip(published, [32] * 2 + [16] * 5 + [8] * 2, strict=True)
    ]


def test_the_originals_networks_are_their_formulas_but_for_dropout() -> None:
    model, x = cast(original.CifarConvnet, build("cifar_cnn")).eval(), images(2)
    h = F.max_pool2d(F.conv2d(x, model.conv1.weight, model.conv1.bias), 2).relu()
    h = F.max_pool2d(F.conv2d(h, model.conv2.weight, model.conv2.bias), 2).relu().flatten(1)
    h = (h @ model.hidden.weight.T + model.hidden.bias).relu()
    torch.testing.assert_close(model(x), h @ model.output.weight.T + model.output.bias, rtol=1e-4, atol=1e-5)
    mlp, x = build("ssmlp", (1, 28, 28)), images(4, (1, 28, 28))
    first, second, third = (module for module in mlp.modules() if isinstance(module, nn.Linear))
    torch.testing.assert_close(mlp.eval()(x), third(second(first(x.flatten(1)).relu()).relu()))
    dropped = cast(nn.Sequential, mlp.train())[:2](torch.ones(100, 1, 28, 28))
    assert (dropped == 0).float().mean() == pytest.approx(0.2, abs=0.01) and dropped.max() == pytest.approx(1.25)


def test_alexnets_dropout_follows_the_global_generator_in_training_only() -> None:
    model, x = build("alexnet"), images(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first, second = model(x), model(x)
        torch.manual_seed(3)
        assert torch.equal(model(x), first) and not torch.equal(first, second)
    model.eval()
    assert torch.equal(model(x), model(x))


def test_the_small_forms_read_weights_from_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(build("vgg16_bn", seed=5).state_dict(), path)
    loaded = build("vgg16_bn", seed=6, **{"model.weights_file": str(path)})
    assert all(
        torch.equal(value, loaded.state_dict()[key]) for key, value in build("vgg16_bn", seed=5).state_dict().items()
    )
    with pytest.raises(ValueError, match="not the weights of alexnet"):
        build("alexnet", **{"model.weights_file": str(path)})


# --- training ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
def test_two_steps_move_every_parameter(name: str) -> None:
    data_name = "mnist" if name in ("lenet", *FOR_MNIST) else "cifar10"
    chosen: dict[str, Any] = {"data": data_name, "model": name, "stand_in": True, "method": "supersgd"}
    trainer = Trainer(
        resolving.resolve(chosen | {"workers": 1, "batch_size": 2, "optim.lr": 1e-3}), device=torch.device("cpu")
    )
    before = {key: parameter.detach().clone() for key, parameter in trainer.parameters.items()}
    for _ in range(2):
        trainer.train_step()
    assert not [key for key, parameter in trainer.parameters.items() if torch.equal(parameter, before[key])]
