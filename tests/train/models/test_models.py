"""The models: sizes against counted formulas, shapes, initial distributions, shortcuts by hand, weights from files, and
mismatches.
"""

import importlib
import importlib.util
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from settings import resolving
from settings.data import DATA
from settings.models import MODELS
from tests.tiers import few
from train import data, models
from train.data import torchvision_import
from train.models import cifar_resnet, small

SHAPES = {name: record.input_shape or (100,) for name, record in DATA.items()} | {
    "text": (64,),
    "folder": (3, 32, 32),
}
SHAPES |= dict.fromkeys(("glue", "imdb"), (2, 128))
FOR_MNIST = ["mnist_cnn", "mnist_convnet", "bigcnn", "mnist_mlp", "smlp", "ssmlp"]
LARGE = {
    "bigcnn",
    "resnet1202",
    *(f"cifar_resnet{depth}" for depth in (101, 110, 152)),
}  # built without weights where they are counted
DEEPER = {"resnet44", "resnet56", "resnet110", "resnet34", "resnet50", "cifar_resnet34", "cifar_resnet50"} | {
    f"vgg{depth}{norm}" for depth in (13, 16, 19) for norm in ("", "_bn")
}  # than a model of the same kind, which `make test` runs
BUILT = [pytest.param(name, marks=[pytest.mark.slow] * (name in DEEPER)) for name in MODELS if name not in LARGE]
SHALLOW: dict[str, dict[str, object]] = {
    "wide_resnet": {"model.depth": 10, "model.widen": 1},
    "gpt": {"data": "text", "model.layers": 1, "model.width": 16},
    "bert": {"data": "imdb", "data.length": 24, "data.vocabulary": 200, "model.layers": 1, "model.width": 16},
}
OF_COLOUR = {
    *(f"resnet{depth}" for depth in (8, 9, 18, 20, 32, 34, 44, 50, 56, 110, 1202)),
    *(f"cifar_resnet{depth}" for depth in (18, 34, 50, 101, 110, 152)),
    *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    *("wide_resnet", "alexnet", "inception", "torchvision"),
}


def input_shape(name: str) -> tuple[int, ...]:
    """One that the model takes."""
    return {"logreg": (100,), "gpt": (20,), "bert": (2, 24), **dict.fromkeys(FOR_MNIST, (1, 28, 28))}.get(
        name, (3, 32, 32)
    )


def build(name: str, shape: tuple[int, ...] = (3, 32, 32), num_classes: int = 10, /, **chosen: object) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(str(chosen.pop("seed", 0))))
        return models.build(resolving.resolve({"data": "cifar10", "model": name, **chosen}), shape, num_classes)


def needs(name: str) -> None:
    """Skip where the model's package is missing."""
    if name == "bert":
        torchvision_import.torchvision()  # before transformers, which imports it
        pytest.importorskip("transformers", reason="pip install '.[nlp]'")


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "published"), [(8, "0.08M"), (20, "0.27M"), (32, "0.46M"), (44, "0.66M"), (56, "0.85M"), (110, "1.73M")]
)
@pytest.mark.parametrize("batch_norm", [True, False])
def test_cifar_resnets_have_the_papers_number_of_parameters(depth: int, published: str, batch_norm: bool) -> None:
    n = (depth - 2) // 6
    convolutions = 9 * (3 * 16 + 2 * n * 16**2 + (16 * 32 + (2 * n - 1) * 32**2) + (32 * 64 + (2 * n - 1) * 64**2))
    norms = 2 * (16 + 2 * n * (16 + 32 + 64))
    count = size(build(f"resnet{depth}", **{"model.batch_norm": batch_norm}))
    assert count == convolutions + norms * batch_norm + 64 * 10 + 10
    if batch_norm:
        assert f"{count / 1e6:.2f}M" == published  # Table 6 of the paper (1.7M), and counts published since
    if (depth, batch_norm) == (20, True):
        assert count == 269_722


def test_without_batch_norm_there_are_no_buffers() -> None:
    assert len(list(build("resnet20").buffers())) == 3 * 19
    plain = build("resnet20", **{"model.batch_norm": False})
    assert not list(plain.buffers()) and sum(isinstance(module, nn.Conv2d) for module in plain.modules()) == 19


def test_sizes_of_the_small_models() -> None:
    assert (
        size(build("cnn", (1, 8, 8))) == (9 * 16 + 16) + (9 * 16 * 32 + 32) + (512 * 64 + 64) + (64 * 10 + 10) == 38_282
    )
    assert size(build("mlp", (1, 8, 8))) == 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10
    assert size(build("logreg", (100,), 5)) == 505
    assert size(build("mnist_cnn", (1, 28, 28))) == 260 + 5020 + 16050 + 510 == 21_840
    assert size(build("resnet18", (3, 224, 224), 1000)) == 11_689_512  # as torchvision documents it


# --- what they compute ---------------------------------------------------------------------------------------------


@few(4, "name", BUILT)
def test_logits_and_a_gradient_for_every_parameter(name: str) -> None:
    needs(name)
    shape = input_shape(name)
    model = build(name, shape, 7, **SHALLOW.get(name, {}))
    draws = torch.Generator().manual_seed(0)
    if name == "bert":
        tokens = torch.randint(5, 200, (3, 24), generator=draws)
        logits = model(torch.stack([tokens, torch.tensor([1] * 10 + [2] * 14).expand(3, 24)], dim=1))
        assert logits.shape == (3, 7)
        F.cross_entropy(logits, torch.tensor([0, 3, 6])).backward()
    elif name == "gpt":
        logits = model(torch.randint(7, (3, *shape), generator=draws))
        assert logits.shape == (3, *shape, 7)
        F.cross_entropy(logits.flatten(0, 1), torch.arange(60) % 7).backward()
    else:
        logits = model(torch.randn(3, *shape, generator=draws))
        assert logits.shape == (3, 7)
        F.cross_entropy(logits, torch.tensor([0, 3, 6])).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 0, key


@few(3, "name", BUILT)
def test_weights_come_from_the_callers_seed(name: str) -> None:
    needs(name)
    first, again, other = (
        build(name, input_shape(name), seed=seed, **SHALLOW.get(name, {})).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(8, 70), st.integers(8, 70), st.integers(2, 12))
def test_cnn_and_mlp_fit_any_image(channels: int, height: int, width: int, num_classes: int) -> None:
    for name in ("cnn", "mlp"):
        model = build(name, (channels, height, width), num_classes)
        assert model(torch.zeros(2, channels, height, width)).shape == (2, num_classes)


def test_shortcuts_take_every_second_pixel_and_add_zeros() -> None:
    block = cifar_resnet.Block(4, 8, 2, batch_norm=False)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    expected = np.zeros((2, 8, 3, 3), dtype=np.float32)
    for channel in range(4):
        for row in range(3):
            for column in range(3):
                expected[:, channel + 2, row, column] = np.maximum(0, x[:, channel, 2 * row, 2 * column])
    np.testing.assert_array_equal(block(torch.from_numpy(x)).detach().numpy(), expected)


def test_a_block_is_its_formula() -> None:
    block = cifar_resnet.Block(8, 8, 1, batch_norm=True)
    x = torch.randn(4, 8, 5, 5, generator=torch.Generator().manual_seed(0))

    def normalised(h: torch.Tensor) -> torch.Tensor:
        return (h - h.mean((0, 2, 3), keepdim=True)) / (h.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()

    inner = normalised(F.conv2d(x, block.conv1.weight, padding=1)).clamp(min=0)
    outer = x + normalised(F.conv2d(inner, block.conv2.weight, padding=1))
    torch.testing.assert_close(block(x), outer.clamp(min=0), rtol=1e-4, atol=1e-5)


def test_resnets_start_from_hes_distribution() -> None:
    model = build("resnet110")
    weights = [
        module.weight * math.sqrt(module.weight[0].numel() / 2)
        for module in model.modules()
        if isinstance(module, nn.Conv2d)
    ]
    together = torch.cat([weight.flatten() for weight in weights])
    assert abs(together.std() - 1) < 0.005 and abs(together.mean()) < 0.005
    assert (together.abs() < 0.6745).float().mean() == pytest.approx(0.5, abs=0.005)  # a normal's quartiles


def test_stages_halve_the_image() -> None:
    model = build("resnet20")
    shapes = []
    for block in model.get_submodule("blocks"):  # type: ignore[union-attr]
        block.register_forward_hook(lambda *called: shapes.append(tuple(called[2].shape[1:])))
    model(torch.zeros(1, 3, 32, 32))
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_dropout_follows_the_global_generator_in_training_only() -> None:
    model, x = build("mnist_cnn", (1, 28, 28)), torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = model(x)
        second = model(x)
        torch.manual_seed(3)
        assert torch.equal(model(x), first) and not torch.equal(first, second)
        model.eval()
        state = torch.get_rng_state()
        assert torch.equal(model(x), model(x)) and torch.equal(torch.get_rng_state(), state)


def test_the_cnn_learns_the_digits() -> None:
    digits = data.load(resolving.resolve({"data": "digits"}), "cpu")
    model, generator = build("cnn", digits.input_shape), torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(60):
        x, y = digits.train_batch(torch.randint(digits.num_train, (128,), generator=generator), generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    x, y = next(digits.batches("test", 1000))
    assert (model(x).argmax(1) == y).float().mean() > 0.93


# --- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_name", list(DATA))
def test_a_model_takes_the_data_or_names_those_that_do(data_name: str) -> None:
    shape = SHAPES[data_name]
    tokens = {"text": {"gpt"}, "glue": {"bert"}, "imdb": {"bert"}}
    legal = tokens.get(data_name, {"mlp", "logreg"})
    legal |= {"cnn"} if len(shape) == 3 else set()
    legal |= set(FOR_MNIST) if shape == (1, 28, 28) else set()
    legal |= {"lenet"} if len(shape) == 3 and 28 <= shape[1] <= 32 else set()
    legal |= {"cifar_cnn", "cifar_mlp"} if shape == (3, 32, 32) else set()
    legal |= OF_COLOUR if shape[0] == 3 else set()
    assert set(models.legal_models(shape, tokens=data_name in tokens)) == legal
    for name in MODELS.keys() - legal:
        config = resolving.resolve({"data": data_name, "model": name})
        with pytest.raises(ValueError, match=f"model={name} needs .*data={data_name} has the shape") as error:
            models.build(config, shape, 10)
        assert set(str(error.value).split("legal: ")[1].rstrip(")").split(", ")) == legal


def test_an_unknown_model_names_the_nearest() -> None:
    config = resolving.resolve({"model": "resnet20", "data": "cifar10"})
    config["model"]["name"] = "resnet88"
    with pytest.raises(ValueError, match="unknown model 'resnet88'; did you mean 'resnet8'"):
        models.build(config, (3, 32, 32), 10)


# --- weights from a file -------------------------------------------------------------------------------------------


def test_weights_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(build("resnet18", seed=5).state_dict(), path)
    loaded = build("resnet18", seed=6, **{"model.weights_file": str(path)})
    assert all(
        torch.equal(value, loaded.state_dict()[key]) for key, value in build("resnet18", seed=5).state_dict().items()
    )
    torch.save(
        {key: value for key, value in build("resnet18", seed=5).state_dict().items() if "num_batches" not in key}, path
    )
    loaded = build("resnet18", seed=6, **{"model.weights_file": str(path)})
    assert torch.equal(loaded.state_dict()["fc.weight"], build("resnet18", seed=5).state_dict()["fc.weight"])
    with pytest.raises(ValueError, match=r"weights\.pt: fc\.(weight|bias) has shape \[10.*this resnet18 needs \[1000"):
        build("resnet18", (3, 224, 224), 1000, **{"model.weights_file": str(path)})
    with pytest.raises(
        ValueError, match=r"not the weights of resnet34: 80 missing \(layer1\.2\..*, \.\.\.\) of 218 entries"
    ):
        build("resnet34", **{"model.weights_file": str(path)})


@pytest.mark.parametrize("name", ["cnn", "smlp", "resnet8", "wide_resnet", "inception", "gpt"])
def test_any_model_starts_from_a_runs_checkpoint(name: str, tmp_path: Path) -> None:
    path, shape, chosen = tmp_path / "checkpoint.pt", input_shape(name), SHALLOW.get(name, {})
    trained = build(name, shape, seed=5, **chosen).state_dict()
    torch.save({"identity": "0123456789abcd", "step": 7, "model": trained}, path)
    loaded = build(name, shape, seed=6, **chosen, **{"model.weights_file": str(path)}).state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in trained.items())
    with pytest.raises(ValueError, match=rf"checkpoint\.pt: .* has shape .* but this {name} needs"):
        build(name, shape, 13, **chosen, **{"model.weights_file": str(path)})


class Attack:
    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __reduce__(self):
        return os.mkdir, (self.victim,)


@pytest.mark.slow
def test_a_file_that_is_no_state_dict_is_named_and_runs_no_code(tmp_path: Path) -> None:
    path, victim = tmp_path / "weights.pt", tmp_path / "made-by-the-file"
    chosen = {"model.weights_file": str(path)}
    with pytest.raises(ValueError, match=r"weights\.pt: no such file"):
        build("resnet18", **chosen)
    torch.save({"fc.weight": Attack(str(victim))}, path)
    with pytest.raises(ValueError, match="cannot be read as a state_dict"):
        build("resnet18", **chosen)
    assert not victim.exists()
    torch.save({"state_dict": {}, "epoch": 3}, path)
    with pytest.raises(ValueError, match="found a mapping with state_dict, epoch"):
        build("resnet18", **chosen)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="found a list"):
        build("resnet18", **chosen)
    torch.save(build("resnet18").state_dict(), path)
    whole = path.read_bytes()
    for cut in (whole[:1000], whole[:-2000], b"", b"no weights"):
        path.write_bytes(cut)
        with pytest.raises(
            ValueError, match=f"cannot be read as a state_dict|no file of torch.save, for it begins with {cut[:10]!r}"
        ):
            build("resnet18", **chosen)


# --- torchvision ---------------------------------------------------------------------------------------------------


def test_nothing_is_declared_where_torchvisions_own_operators_load(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, imported = [], []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torchvision_import, "_declare_operators", lambda: pytest.fail("declared"))
    monkeypatch.setattr(importlib, "import_module", imported.append)
    torchvision_import.torchvision.__wrapped__()
    assert imported == ["torchvision"] and len(loaded) == 1 and Path(loaded[0]).stem.startswith("_C")


def test_torchvision_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="torchvision, which is not installed"):
        torchvision_import.torchvision.__wrapped__()


def test_small_models_need_no_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_import, "torchvision", lambda: pytest.fail("imported"))
    assert isinstance(build("cnn"), small.CNN) and isinstance(build("resnet8"), cifar_resnet.CifarResNet)
