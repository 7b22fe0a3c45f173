"""Every setting of one experiment: dataclasses, each default with its reason.  Imports no torch.

``resolve`` turns a few settings into the full, checked configuration (what the orchestrator does thousands of times);
``register`` hands the same dataclasses to Hydra (what ``main.py`` does once); a test holds the two equal.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nuq.registry import METHODS, check, method, setting, unknown

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
    **{f"resnet{depth}": BatchNormModel for depth in (8, 20, 32, 44, 56, 110)},
    "resnet18": TorchvisionModel,
    "resnet34": TorchvisionModel,
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

GROUPS: dict[str, dict[str, type]] = {
    "method": {name: entry.settings for name, entry in METHODS.items()},
    "data": DATA,
    "model": MODELS,
    "optim": OPTIMIZERS,
    "schedule": SCHEDULES,
}

# --- the experiment -----------------------------------------------------------------------------------------------


@dataclass
class Measure:
    """The variance of the gradient estimator, measured beside training from extra minibatches."""

    every: int = setting(
        0, "measure at step 0 and every so many steps (0: never); one measurement costs num_samples * workers passes", low=0
    )
    num_samples: int = setting(10, "gradient estimates behind one measurement; the paper's value", low=2)


@dataclass
class Untrain:
    """Gradient ascent with noise before training: a bad start, to study the methods far from a minimum."""

    steps: int = setting(0, "steps of ascent (0: none)", low=0)
    lr: float = setting(0.001, "rate of ascent", low=0)
    std: float = setting(0.001, "standard deviation of the noise added to each parameter", low=0)


@dataclass
class Config:
    """One experiment."""

    workers: int = setting(4, "simulated or real data-parallel workers; the paper's M", low=1)
    seed: int = setting(1, "seed of everything random: weights, data order, rounding", low=0, high=2**63 - 1)
    steps: int = setting(1000, "optimizer steps; a minute of digits (the paper's CIFAR-10 runs: 80000)", low=1)
    batch_size: int = setting(128, "samples per worker and step", low=1)
    trajectory: str = setting(
        "method",
        "method: train with the method's gradient; sgd: train with one worker's full-precision gradient and only measure the method",
        choices=("method", "sgd"),
    )
    measure: Measure = field(default_factory=Measure)
    untrain: Untrain = field(default_factory=Untrain)
    eval_every: int = setting(200, "evaluate every so many steps, and at the end (the paper: 2000)", low=1)
    eval_train: bool = setting(True, "evaluate on the training set too (the paper's training loss)")
    eval_batch_size: int = setting(1000, "samples per evaluation pass", low=1)
    log_every: int = setting(20, "write loss, rate and traffic every so many steps", low=1, identity=False)
    checkpoint_every: int = setting(500, "save everything every so many steps, and at the end", low=1, identity=False)
    threads: int = setting(1, "CPU threads of one process; more than 1 gives other last bits, so results are compared at 1", low=1)
    device: str = setting("auto", "auto: CUDA where there is one, else CPU", choices=("auto", "cpu", "cuda"), identity=False)
    data_dir: str = setting(os.environ.get("NUQ_DATA", "data"), "folder of the data sets; NUQ_DATA changes the default", identity=False)
    run_dir: str = setting("", "where the run is kept; empty: runs/main/<name>-<identity>", identity=False)
    stand_in: bool = setting(False, "marked random tensors of the data set's shape in place of its files (dry runs)")


DEFAULTS = {"method": "alq", "data": "digits", "model": "cnn", "optim": "sgd", "schedule": "constant"}
SECTIONS: dict[str, type] = {"measure": Measure, "untrain": Untrain}


# --- resolving ----------------------------------------------------------------------------------------------------


@functools.cache
def _fields(settings: type) -> dict[str, tuple[Any, Any]]:
    """name -> (annotated type, default) of a settings dataclass."""
    hints = typing.get_type_hints(settings)
    instance = settings()
    return {item.name: (hints[item.name], getattr(instance, item.name)) for item in dataclasses.fields(settings)}


def _convert(value: Any, annotation: Any, where: str) -> Any:
    """The value as its annotated type; ValueError where it cannot be."""
    origin = typing.get_origin(annotation)
    if origin is list and isinstance(value, list | tuple):
        return [_convert(item, typing.get_args(annotation)[0], where) for item in value]
    if annotation is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if annotation is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if origin is None and type(value) is annotation:
        return value
    name = str(annotation) if isinstance(annotation, types.GenericAlias) else annotation.__name__
    raise ValueError(f"{where}={value!r}: must be of type {name}")


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The full configuration as a nested dict of plain values, each group with its ``name`` first.

    ``settings`` maps dotted names to values, as in ``{"method": "alq", "method.bits": 3, "workers": 4}``.
    Raises ValueError for an unknown name or choice (with the legal ones and the nearest match), for a setting that the
    chosen method, data set or model does not read, and for a value of the wrong type or outside its range.
    """
    schemas: dict[str, type] = dict(SECTIONS)
    config: dict[str, Any] = {}
    for group, options in GROUPS.items():
        name = settings.get(group, DEFAULTS[group])
        if not isinstance(name, str) or name not in options:
            raise unknown(group, name, options)
        schemas[group] = options[name]
        config[group] = {"name": name}
    for section, schema in schemas.items():
        config.setdefault(section, {}).update({key: _copy(default) for key, (_, default) in _fields(schema).items()})
    top = {key: value for key, value in _fields(Config).items() if key not in SECTIONS}
    config.update({key: _copy(default) for key, (_, default) in top.items()})

    for key, value in settings.items():
        section, _, name = key.partition(".")
        if key in GROUPS:
            continue
        if not name:
            if key not in top:
                raise unknown("setting", key, [*top, *GROUPS, *(f"{part}.*" for part in SECTIONS)])
            config[key] = _convert(value, top[key][0], key)
            continue
        if section not in schemas:
            raise unknown("setting", key, [*top, *(f"{part}.*" for part in schemas)])
        legal = _fields(schemas[section])
        if name not in legal:
            chosen = f" of {section}={config[section]['name']}" if section in GROUPS else ""
            raise unknown(f"setting{chosen}", key, [f"{section}.{item}" for item in legal])
        config[section][name] = _convert(value, legal[name][0], key)
    validate(config)
    return config


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def validate(config: Mapping[str, Any]) -> None:
    """Raise ValueError where a value of a full configuration lies outside its range or choices."""
    check(Config, config, "")
    for section, schema in SECTIONS.items():
        check(schema, config[section], f"{section}.")
    for group, options in GROUPS.items():
        check(options[config[group]["name"]], config[group], f"{group}.")
    if config["trajectory"] == "sgd" and config["measure"]["every"] == 0 and config["method"]["name"] != "sgd":
        raise ValueError("trajectory='sgd' measures the method without training on it: measure.every must be above 0")


# --- identity -----------------------------------------------------------------------------------------------------


def result_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration less the settings that cannot change a result: what the identity is made of."""

    def keep(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
        skipped = {item.name for item in dataclasses.fields(schema) if item.metadata.get("identity") is False}
        return {key: value for key, value in values.items() if key not in skipped}

    schemas = SECTIONS | {group: options[config[group]["name"]] for group, options in GROUPS.items()}
    return keep(Config, config) | {part: keep(schema, config[part]) for part, schema in schemas.items()}


def identity(config: Mapping[str, Any]) -> str:
    """14 hexadecimal digits (56 bits) of SHA-256 over the canonical JSON of ``result_settings``."""
    text = json.dumps(result_settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:14]


def run_name(config: Mapping[str, Any]) -> str:
    """The readable part of a run folder, then its identity: ``alq-3b-resnet8-cifar10-s1-0123456789abcd``."""
    bits = f"-{config['method']['bits']}b" if "bits" in config["method"] else ""
    parts = f"{config['method']['name']}{bits}-{config['model']['name']}-{config['data']['name']}-s{config['seed']}"
    return f"{parts}-{identity(config)}"


def default_run_dir(config: Mapping[str, Any]) -> str:
    """The folder of a run: ``run_dir``, or its name under ``runs/main``."""
    return config["run_dir"] or os.path.join("runs", "main", run_name(config))


# --- help and Hydra -----------------------------------------------------------------------------------------------


def _help_lines(schema: type, prefix: str) -> list[str]:
    lines = []
    for item in dataclasses.fields(schema):
        if not item.metadata:
            continue
        default = item.default if item.default is not dataclasses.MISSING else item.default_factory()  # type: ignore[misc]
        shown = json.dumps(default) if not isinstance(default, str) else default or "''"
        rule = [f"one of {'|'.join(map(str, item.metadata['choices']))}"] if item.metadata["choices"] else []
        rule += [f">= {item.metadata['low']}"] if item.metadata["low"] is not None else []
        rule += [f"<= {item.metadata['high']}"] if item.metadata["high"] is not None else []
        note = f"  [{', '.join(rule)}]" if rule else ""
        lines.append(f"  {prefix}{item.name}={shown}{note}\n      {item.metadata['reason']}")
    return lines


def help_text() -> str:
    """Every setting with its default and the reason for it."""
    lines = [
        "Train one experiment.",
        "",
        "  python main.py method=alq method.bits=3 data=cifar10 model=resnet8 workers=4 seed=1",
        "  torchrun --nproc-per-node=4 main.py method=alq workers=4     the same experiment in four real processes",
        "",
        "Settings (name=default, legal range, reason):",
        *_help_lines(Config, ""),
    ]
    for section, schema in SECTIONS.items():
        lines += ["", f"{section}: {schema.__doc__}", *_help_lines(schema, f"{section}.")]
    for group, options in GROUPS.items():
        lines += ["", f"{group}={DEFAULTS[group]}  [one of {', '.join(options)}]"]
        by_schema: dict[type, list[str]] = {}
        for name, schema in options.items():
            by_schema.setdefault(schema, []).append(name)
        for schema, names in by_schema.items():
            lines += [f" {group}={'|'.join(names)}", *(_help_lines(schema, f"{group}.") or ["      no settings"])]
    lines += ["", "Exit codes: 0 finished; 75 checkpointed on a signal, please requeue; 2 bad settings or data; 3 diverged; other: crash."]
    return "\n".join(lines)


def register() -> None:
    """Hand every settings dataclass to Hydra's ConfigStore, under the primary config ``experiment``."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, options in GROUPS.items():
        for name, schema in options.items():
            named = dataclasses.make_dataclass(f"{group}_{name}", [("name", str, field(default=name))], bases=(schema,))
            store.store(group=group, name=name, node=named)
    groups = [(group, Any, field(default=None)) for group in GROUPS]
    store.store(name="settings", node=dataclasses.make_dataclass("Settings", groups, bases=(Config,)))
    defaults = ["settings", *({group: name} for group, name in DEFAULTS.items()), "_self_"]
    quiet = [{"override hydra/job_logging": "none"}, {"override hydra/hydra_logging": "none"}]
    hydra_settings: dict[str, Any] = {"run": {"dir": "."}, "sweep": {"dir": ".", "subdir": "."}, "output_subdir": None}
    hydra_settings |= {"job": {"chdir": False}, "help": {"template": help_text().replace("$", "$$")}}
    store.store(name="experiment", node={"defaults": [*defaults, *quiet], "hydra": hydra_settings})


def named_method(config: Mapping[str, Any]) -> Any:
    """The settings dataclass instance of the configuration's method."""
    values = {key: value for key, value in config["method"].items() if key != "name"}
    return method(config["method"]["name"]).settings(**values)


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Hydra overrides (``method.bits=3``) as the dotted settings that ``resolve`` takes; ValueError for anything else."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    settings: dict[str, Any] = {}
    for text in overrides:
        try:
            (override,) = OverridesParser.create().parse_overrides([text])
        except OverrideParseException as error:
            raise ValueError(f"{text!r} is not of the form name=value: {str(error).splitlines()[0]}") from error
        if override.is_add() or override.is_force_add() or override.is_delete():
            raise ValueError(f"{text!r}: every setting exists already, so + and ~ are not used; write name=value")
        settings[override.key_or_group] = override
    return {key: override.value() for key, override in settings.items() if not override.is_sweep_override()}


def check_overrides(overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Raise ValueError, with the legal choices, where Hydra would refuse less clearly.  Hydra's own settings pass."""
    own = [text for text in overrides if not text.startswith("hydra")]
    settings = parse_overrides(own)
    if not sweep and len(settings) < len({text.partition("=")[0] for text in own}):
        raise ValueError(f"several values in {' '.join(own)}: a run has one of each; -m runs them one after another")
    resolve(settings)
