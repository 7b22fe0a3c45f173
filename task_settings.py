"""Settings of data, models, optimizers and schedules: one dataclass for each choice, and the tables of their names.  Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting

# --- data ---------------------------------------------------------------------------------------------------------


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
class Files:
    """Data read from ``data_dir``."""

    augment: bool = setting(True, "random crop and flip of training images, as in the paper")


@dataclass
class Downloadable(Files):
    download: bool = setting(False, "fetch the original files where they are missing; never without being asked", identity=False)


@dataclass
class Mnist(Downloadable):
    augment: bool = setting(False, "MNIST is trained without augmentation, as in the paper; true crops, and never flips a digit")


DATA: dict[str, type] = {
    "digits": Embedded,
    **{f"logreg{classes}": Synthetic for classes in (2, 5, 10)},
    "mnist": Mnist,
    "cifar10": Downloadable,
    "imagenet": Files,
}

# --- models -------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A model without settings of its own."""


@dataclass
class BatchNormModel:
    batch_norm: bool = setting(True, "false trains without batch normalisation, one of the paper's side experiments")


@dataclass
class TorchvisionModel:
    weights_file: str = setting("", "start from this state_dict (a local file); empty: from scratch")


MODELS: dict[str, type] = {
    "cnn": Model,
    "mlp": Model,
    "logreg": Model,
    "mnist_cnn": Model,
    "lenet": Model,
    **{f"resnet{depth}": BatchNormModel for depth in (8, 20, 32, 44, 56, 110)},
    "resnet9": Model,
    "cifar_resnet18": Model,
    "alexnet": TorchvisionModel,
    "vgg16_bn": TorchvisionModel,
    "resnet18": TorchvisionModel,
    "resnet34": TorchvisionModel,
    "resnet50": TorchvisionModel,
}

# --- optimisation -------------------------------------------------------------------------------------------------


@dataclass
class SGDOptimizer:
    lr: float = setting(0.1, "the paper's rate for CIFAR-10", low=0, high=1e38)
    momentum: float = setting(0.9, "the paper's value", low=0, high=1)
    nesterov: bool = setting(False, "the paper uses plain momentum")
    weight_decay: float = setting(1e-4, "the paper's value", low=0, high=1e38)


@dataclass
class Adam:
    lr: float = setting(1e-3, "the customary rate", low=0, high=1e38)
    beta1: float = setting(0.9, "decay of the running mean", low=0, high=0.9999999)
    beta2: float = setting(0.999, "decay of the running mean square", low=0, high=0.9999999)
    weight_decay: float = setting(0.0, "off unless asked for", low=0, high=1e38)


OPTIMIZERS: dict[str, type] = {"sgd": SGDOptimizer, "adam": Adam}


@dataclass
class Constant:
    """The rate stays."""


@dataclass
class Step:
    at: list[int] = setting([40000, 60000], "steps at which the rate drops; the paper's", low=0)
    factor: float = setting(0.1, "the rate is multiplied by this at each drop", low=0)


@dataclass
class Exponential:
    factor: float = setting(0.95, "the rate is multiplied by this over every period, smoothly", low=0)
    period: int = setting(1000, "steps over which the factor is reached", low=1)


SCHEDULES: dict[str, type] = {"constant": Constant, "step": Step, "exponential": Exponential}
