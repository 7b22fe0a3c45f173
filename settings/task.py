"""Settings of data, models, optimizers and schedules: one dataclass for each choice, and the tables of their names.  Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.registry import METHODS
from nuq.settings import setting
from nuq.settings.feedback import check_nesterov
from settings.text import BertSettings, Glue, Imdb, OnDisk

# --- data ---------------------------------------------------------------------------------------------------------

CUTOUT = "side in pixels of a square that is blanked at a random place of each training image (0: none; 8 in ResNet-9's recipe)"
VERIFY = "hold original archives, and SVHN's .mat files, against torchvision's checksums; false reads others of the same form"
DECODE = "full: as torchvision does; fast: a JPEG at least twice as large as needed is decoded at 1/2, 1/4 or 1/8, nearly the same picture"


@dataclass
class Embedded:
    """Data that every installation has: scikit-learn's digits."""


@dataclass
class Synthetic:
    """Points of a random linear model with label noise; drawn from its own seed, so every run sees the same task."""

    num_train: int = setting(10000, "training points", low=1)
    num_test: int = setting(2000, "test points", low=1)
    num_features: int = setting(100, "coordinates of a point", low=1)
    noise: float = setting(0.1, "share of labels drawn at random", low=0, high=1)
    data_seed: int = setting(0, "seed of the task itself, apart from the seed of the run", low=0)


@dataclass
class SourceText:
    """Characters of the standard library's own sources, each to be predicted from those before it in its window."""

    length: int = setting(64, "characters of a window, which is a model's context; two lines of code", low=1, high=100_000)
    num_train: int = setting(8192, "training windows, one after another; half a megabyte of text", low=1, high=10**9)
    num_test: int = setting(512, "test windows, from other files", low=1, high=10**9)


@dataclass
class Files(OnDisk):
    """Pictures read from ``data_dir``."""

    augment: bool = setting(True, "random crop and flip of training images, as in the paper")
    cutout: int = setting(0, CUTOUT, low=0, identity="unless default")


@dataclass
class Downloadable(Files):
    download: bool = setting(False, "fetch the original files where they are missing; never without being asked", identity=False)
    verify: bool = setting(True, VERIFY, identity=False)


@dataclass
class Mnist(Downloadable):
    augment: bool = setting(False, "MNIST is trained without augmentation, as in the paper; true crops, and never flips a digit")


@dataclass
class FashionMnist(Downloadable):
    augment: bool = setting(False, "as MNIST, whose place it takes; true crops and flips")


@dataclass
class Svhn(Downloadable):
    augment: bool = setting(False, "trained without augmentation by custom; true crops, and never flips a digit")


@dataclass
class Pictures(Files):
    """Pictures in one folder per class, in train/ and val/."""

    decode: str = setting("full", DECODE, choices=("full", "fast"), identity="unless default")


@dataclass
class Folder(Pictures):
    """Any pictures in one folder per class, in train/ and test/ (or val/)."""

    path: str = setting("", "the folder that holds train/ and test/ (or val/), seen from data_dir; empty: data_dir itself")
    size: int = setting(32, "side in pixels that pictures are brought to; up to 64 they live decoded in memory", low=8, high=4096)


DATA: dict[str, type] = {
    "digits": Embedded,
    **{f"logreg{classes}": Synthetic for classes in (2, 5, 10)},
    "text": SourceText,
    "mnist": Mnist,
    "fashion_mnist": FashionMnist,
    "cifar10": Downloadable,
    "cifar100": Downloadable,
    "svhn": Svhn,
    "imagenet": Pictures,
    "folder": Folder,
    "glue": Glue,
    "imdb": Imdb,
}

# --- models -------------------------------------------------------------------------------------------------------


WEIGHTS = "start from this state_dict or checkpoint.pt (a local file, which cannot run code); empty: from scratch"
ZERO_INIT = "the last batch-norm gain of every residual block starts at zero (Goyal et al. 2017)"
DROPOUT = "share of activations that are dropped in training"


@dataclass
class Model:
    """A model with the settings that all have."""

    weights_file: str = setting("", WEIGHTS, identity="unless default")


@dataclass
class ResidualModel(Model):
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default")


@dataclass
class BatchNormModel(Model):
    batch_norm: bool = setting(True, "false trains without batch normalisation, one of the paper's side experiments")
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default", read_if=("batch_norm", True))


@dataclass
class WideResNet(Model):
    """WRN-depth-widen."""

    depth: int = setting(28, "layers, 6n + 4; WRN-28-10 is the paper's best", choices=tuple(range(10, 101, 6)))
    widen: int = setting(10, "channels of the stages, in units of 16, 32 and 64", low=1, high=64)
    dropout: float = setting(0.0, f"{DROPOUT}, between the convolutions of a block (the original experiments: .3)", low=0, high=1)
    zero_init: bool = setting(False, "the last convolution of every residual block starts at zero", identity="unless default")


@dataclass
class TorchvisionModel:
    weights_file: str = setting("", WEIGHTS)


@dataclass
class TorchvisionResNet(TorchvisionModel):
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default")


@dataclass
class AnyTorchvisionModel(TorchvisionResNet):
    """Any of torchvision's models for classification."""

    arch: str = setting("mobilenet_v3_small", "its name there, such as resnext50_32x4d, vit_b_16 or inception_v3; a small one by default")


@dataclass
class Gpt(Model):
    """A character-level GPT; its context is the text's ``data.length``."""

    layers: int = setting(4, "blocks of attention and a two-layer network", low=1, high=1000)
    heads: int = setting(4, "heads of an attention; they divide the width", low=1, high=1000)
    width: int = setting(64, "size of an embedding; 64 learns within a minute on a laptop", low=1, high=100_000)
    dropout: float = setting(0.0, f"{DROPOUT}; a text that is read once needs none", low=0, high=1)
    tied: bool = setting(False, "the output layer shares the weights of the token embedding, as in GPT-2")


@dataclass
class Bert(BertSettings, Model):
    """BERT with a head for sentences (data=glue, data=imdb); its context is ``data.length``."""


MODELS: dict[str, type] = {
    "cnn": Model,
    "mlp": Model,
    "logreg": Model,
    **dict.fromkeys(("mnist_cnn", "mnist_convnet", "bigcnn", "mnist_mlp", "smlp", "ssmlp", "cifar_cnn", "cifar_mlp"), Model),
    "lenet": Model,
    **{f"resnet{depth}": BatchNormModel for depth in (8, 20, 32, 44, 56, 110, 1202)},
    "resnet9": Model,
    "wide_resnet": WideResNet,
    **{f"cifar_resnet{depth}": ResidualModel for depth in (18, 34, 50, 101, 110, 152)},
    "alexnet": TorchvisionModel,
    **{f"vgg{depth}": Model for depth in (11, 13, 16, 19)},
    **{f"vgg{depth}_bn": TorchvisionModel if depth == 16 else Model for depth in (11, 13, 16, 19)},
    "inception": Model,
    **dict.fromkeys(("resnet18", "resnet34", "resnet50"), TorchvisionResNet),
    "torchvision": AnyTorchvisionModel,
    "gpt": Gpt,
    "bert": Bert,
}


def check_model(model: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a model do not go with one another."""
    if model["name"] in ("gpt", "bert") and model["width"] % model["heads"]:
        raise ValueError(f"model.width={model['width']}: must be a multiple of model.heads={model['heads']}")


# --- optimisation -------------------------------------------------------------------------------------------------


DECAY_NORMS = "false: weight decay leaves out biases and the parameters of normalization layers; read with weight_decay above 0 only"
CLIP_NORM = "the mean gradient, as it comes out of the exchange, is shortened to this norm where it is longer (0: not)"
CLIP_VALUE = "each of its coordinates is first cut off at this size (0: not)"
SCALE_LR = "linear, sqrt: lr is of one worker, and is multiplied by the number of workers that a step averages, or by its root"


@dataclass
class Optimizer:
    """What all optimizers have."""

    lr: float = setting(0.1, "a rate", low=0, high=1e38)
    weight_decay: float = setting(0.0, "off unless asked for", low=0, high=1e38)
    decay_norms: bool = setting(True, DECAY_NORMS, identity="unless default")
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, identity="unless default")
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, identity="unless default")
    scale_lr: str = setting("none", SCALE_LR, choices=("none", "linear", "sqrt"), identity="unless default")


@dataclass
class SGDOptimizer(Optimizer):
    lr: float = setting(0.1, "the paper's rate for CIFAR-10", low=0, high=1e38)
    momentum: float = setting(0.9, "the paper's value", low=0, high=1)
    nesterov: bool = setting(False, "the paper uses plain momentum")
    weight_decay: float = setting(1e-4, "the paper's value", low=0, high=1e38)


@dataclass
class Adam(Optimizer):
    """Weight decay is added to the gradient, and so goes through both running means."""

    lr: float = setting(1e-3, "the customary rate", low=0, high=1e38)
    beta1: float = setting(0.9, "decay of the running mean", low=0, high=0.9999999)
    beta2: float = setting(0.999, "decay of the running mean square", low=0, high=0.9999999)


@dataclass
class AdamW(Adam):
    """Weight decay shrinks the parameters by lr * weight_decay, past the running means."""

    weight_decay: float = setting(0.01, "the customary value; a GPT has .1", low=0, high=1e38)


OPTIMIZERS: dict[str, type] = {"sgd": SGDOptimizer, "adam": Adam, "adamw": AdamW}


def check_optimizer(config: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a full configuration's optimizer do not go with one another, or with the method."""
    optim, method = config["optim"], config["method"]["name"]
    if optim["name"] == "sgd":
        check_nesterov(optim["nesterov"], optim["momentum"], "optim.")
    if not optim["decay_norms"] and optim["weight_decay"] == 0:
        raise ValueError("optim.decay_norms=False: has no effect with optim.weight_decay=0.0; it is read with weight_decay above 0 only")
    if optim["scale_lr"] != "none" and (config["trajectory"] == "sgd" or METHODS[method].single_worker):
        chosen = "trajectory='sgd'" if config["trajectory"] == "sgd" else f"method={method}"
        raise ValueError(f"optim.scale_lr={optim['scale_lr']!r}: {chosen} steps along one worker's gradient; legal here: none")


WARMUP_STEPS = "steps in which the rate first rises in a straight line to where the schedule starts (0: none)"
WARMUP_DEFAULT = 0.25
WARMUP_FACTOR = "the rise starts at this share of the rate, customarily 1 / workers; read with warmup_steps above 0 only"


@dataclass
class Constant:
    """The rate stays."""

    warmup_steps: int = setting(0, WARMUP_STEPS, low=0, identity="unless default")
    warmup_factor: float = setting(WARMUP_DEFAULT, WARMUP_FACTOR, low=0, high=1, identity="unless default")


@dataclass
class Step(Constant):
    """The rate drops."""

    at: list[int] = setting([40000, 60000], "steps at which the rate drops; the paper's", low=0)
    factor: float = setting(0.1, "the rate is multiplied by this at each drop", low=0)


@dataclass
class Exponential(Constant):
    """From the end of the warm-up."""

    factor: float = setting(0.95, "the rate is multiplied by this over every period, smoothly", low=0)
    period: int = setting(1000, "steps over which the factor is reached", low=1)


@dataclass
class Cosine:
    """After the warm-up half a cosine, down to zero at the last of ``steps``."""

    warmup_steps: int = setting(0, WARMUP_STEPS, low=0)
    warmup_factor: float = setting(WARMUP_DEFAULT, WARMUP_FACTOR, low=0, high=1)


@dataclass
class PiecewiseLinear:
    at: list[int] = setting([0, 485, 2328], "steps of the corners; the default is 0, 5 and 24 epochs of 97 steps, ResNet-9's recipe", low=0)
    factors: list[float] = setting([0.0, 1.0, 0.0], "the rate at each corner, as a share of optim.lr; straight lines between", low=0)


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "step": Step,
    "exponential": Exponential,
    "cosine": Cosine,
    "piecewise_linear": PiecewiseLinear,
}


def check_schedule(schedule: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a schedule do not go with one another."""
    if schedule.get("warmup_steps") == 0 and schedule["warmup_factor"] != WARMUP_DEFAULT:
        raise ValueError(f"schedule.warmup_factor={schedule['warmup_factor']}: has no effect with schedule.warmup_steps=0; legal above 0")
    if schedule["name"] != "piecewise_linear":
        return
    at, factors = schedule["at"], schedule["factors"]
    if not at or any(later <= earlier for earlier, later in itertools.pairwise(at)):
        raise ValueError(f"schedule.at={at}: must be at least one step, each after the one before")
    if len(factors) != len(at):
        raise ValueError(f"schedule.factors={factors}: must be as many as the {len(at)} steps of schedule.at={at}")
