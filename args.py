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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nuq.registry import METHODS, method
from nuq.settings import check, converted, setting, types_of, unknown
from nuq.settings import layers as layer_list
from nuq.settings.feedback import Feedback, check_masking, check_memory, memory_kinds
from nuq.settings.quantized_training import Tensors
from settings import command_line
from settings.command_line import parse_overrides as parse_overrides
from settings.run import Compute, Exchange, Measure, Untrain, check_compute, check_tensors
from settings.task import DATA, MODELS, OPTIMIZERS, SCHEDULES, check_model, check_optimizer, check_schedule
from settings.text import check_text

GROUPS: dict[str, dict[str, type]] = {
    "method": {name: entry.settings for name, entry in METHODS.items()},
    "data": DATA,
    "model": MODELS,
    "optim": OPTIMIZERS,
    "schedule": SCHEDULES,
}

# --- the experiment -----------------------------------------------------------------------------------------------


@dataclass
class Config:
    """One experiment."""

    workers: int = setting(4, "simulated or real data-parallel workers; the paper's M", low=1, high=1 << 16)
    seed: int = setting(1, "seed of everything random: weights, data order, rounding", low=0, high=2**63 - 1)
    steps: int = setting(1000, "optimizer steps; a minute of digits (the paper's CIFAR-10 runs: 80000)", low=1)
    batch_size: int = setting(128, "samples per worker and step", low=1)
    trajectory: str = setting(
        "method",
        "method: train with the method's gradient; sgd: train with one worker's full-precision gradient and only measure the method",
        choices=("method", "sgd"),
    )
    label_smoothing: float = setting(
        0.0,
        "share of each target spread evenly over all classes, in training alone: the losses of evaluations are plain",
        low=0,
        high=1,
        identity="unless default",
    )
    layers: list[str] = setting(
        [],
        'layers with a method of their own, by the first match in a list: \'layers=["*conv1* = topk ratio=0.01","*norm* = supersgd"]\'; '
        "globs that are held against parameters' names and the modules that they lie in; the others take method",
        identity="unless default",
    )
    compute: Compute = field(default_factory=Compute)
    measure: Measure = field(default_factory=Measure)
    exchange: Exchange = field(default_factory=Exchange)
    feedback: Feedback = field(default_factory=Feedback)
    untrain: Untrain = field(default_factory=Untrain)
    tensors: Tensors = field(default_factory=Tensors)
    eval_every: int = setting(
        200, "evaluate every so many steps, and at the end (the paper: 2000); 0: never, for mode=evaluate beside it", low=0
    )
    eval_train: bool = setting(True, "evaluate on the training set too (the paper's training loss)")
    eval_batch_size: int = setting(1000, "samples per evaluation pass", low=1)
    log_every: int = setting(20, "write loss, rate and traffic every so many steps", low=1, identity=False)
    checkpoint_every: int = setting(500, "save everything every so many steps, and at the end", low=1, identity=False)
    threads: int = setting(
        1,
        "CPU threads of one process (and OMP_NUM_THREADS, if unset): 1 in slots side by side, never more than cores, which made a "
        "step 1.6 times as long; more than 1 gives other last bits, so results are compared at 1",
        low=1,
    )
    device: str = setting("auto", "auto: CUDA where there is one, else CPU", choices=("auto", "cpu", "cuda"), identity=False)
    data_dir: str = setting(os.environ.get("NUQ_DATA", "data"), "folder of the data sets; NUQ_DATA changes the default", identity=False)
    run_dir: str = setting("", "where the run is kept; empty: runs/main/<name>-<identity>", identity=False)
    stand_in: bool = setting(False, "marked random tensors of the data set's shape in place of its files (dry runs)")


DEFAULTS = {"method": "alq", "data": "digits", "model": "cnn", "optim": "sgd", "schedule": "constant"}
SECTIONS: dict[str, type] = {
    "compute": Compute,
    "exchange": Exchange,
    "feedback": Feedback,
    "measure": Measure,
    "untrain": Untrain,
    "tensors": Tensors,
}


# --- resolving ----------------------------------------------------------------------------------------------------


@functools.cache
def _fields(settings: type) -> dict[str, tuple[Any, Any]]:
    """name -> (annotated type, default) of a settings dataclass."""
    instance = settings()
    return {item.name: (types_of(settings)[item.name], getattr(instance, item.name)) for item in dataclasses.fields(settings)}


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The full configuration as a nested dict of plain values, each group with its ``name`` first.

    ``settings`` maps dotted names to values, as in ``{"method": "alq", "method.bits": 3, "workers": 4}``.
    Raises ValueError for an unknown name or choice (with the legal ones and the nearest match), for a setting that the
    chosen method, data set or model does not read, and for a value of the wrong type or outside its range.
    """
    return Resolver().resolved(settings, [{}])[0][0]


class Resolver:
    """``resolve`` and ``identity`` for thousands of experiments: equal sections are checked once, and shared by their configurations."""

    def __init__(self) -> None:
        self._parts: dict[tuple[type, str], tuple[dict[str, Any], dict[str, str]]] = {}  # by schema and what is given of it

    def resolved(self, settings: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """(configuration, identity) of ``settings`` with each of ``variants``, of which nothing else depends: seeds.

        ValueError as ``resolve``.
        """
        schemas: dict[str, type] = {}
        for group, options in GROUPS.items():
            name = settings.get(group, DEFAULTS[group])
            if not isinstance(name, str) or name not in options:
                raise unknown(group, name, options)
            schemas[group] = options[name]
        schemas |= SECTIONS
        given = _by_section(settings, schemas)
        heads = {group: {"name": settings.get(group, DEFAULTS[group])} for group in GROUPS}
        parts = {part: self._part(schema, given[part], f"{part}.", heads.get(part, {})) for part, schema in schemas.items()}
        shared = {part: values for part, (values, _) in parts.items()}
        texts = {part: _joined(texts) for part, (_, texts) in parts.items() if texts}
        found = []
        for variant in variants:
            top, own = self._part(Config, {**given[""], **variant}, "", {})
            config = {**shared, **top}
            if not found:
                _check_together(config)
            found.append((config, _digits(_joined({**own, **texts}))))
        return found

    def _part(self, schema: type, given: Mapping[str, Any], where: str, head: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The values of a section after those of ``head``, checked; and the canonical JSON of each that makes the identity."""
        key = schema, repr((head, given))
        if key not in self._parts:
            fields = {name: field for name, field in _fields(schema).items() if name not in SECTIONS}
            values = {name: _copy(default) for name, (_, default) in fields.items()}
            values |= {name: converted(value, fields[name][0], where + name) for name, value in given.items()}
            check(schema, values, where)
            counting = _counting(schema, {**head, **values})
            self._parts[key] = {**head, **values}, {name: _canonical(value) for name, value in counting.items()}
        return self._parts[key]


def _by_section(settings: Mapping[str, Any], schemas: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """Section ("" for none) -> what is set of it; ValueError for what is no setting."""
    top = [name for name in _fields(Config) if name not in SECTIONS]
    given: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in schemas}}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if key in GROUPS:
            continue
        if not name:
            if key not in top:
                own = [part for part, schema in schemas.items() if key in _fields(schema)]
                meant = [f"{part}.{key}" for part in [part for part in own if part in GROUPS] or own]  # lr: the optimizer's, not untrain's
                raise unknown("setting", key, [*top, *GROUPS, *(f"{part}.*" for part in SECTIONS)], meant)
            given[""][key] = value
            continue
        if section not in schemas:
            raise unknown("setting", key, [*top, *(f"{part}.*" for part in schemas)])
        if name not in _fields(schemas[section]):
            chosen = f" of {section}={settings.get(section, DEFAULTS[section])}" if section in GROUPS else ""
            raise unknown(f"setting{chosen}", key, [f"{section}.{item}" for item in _fields(schemas[section])])
        given[section][name] = value
    return given


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def validate(config: Mapping[str, Any]) -> None:
    """Raise ValueError where a value of a full configuration lies outside its range or choices."""
    check(Config, config, "")
    for section, schema in SECTIONS.items():
        check(schema, config[section], f"{section}.")
    for group, options in GROUPS.items():
        check(options[config[group]["name"]], config[group], f"{group}.")
    _check_together(config)


def _check_together(config: Mapping[str, Any]) -> None:
    """Raise ValueError for values, each legal, that do not go together."""
    if config["trajectory"] == "sgd" and config["measure"]["every"] == 0 and config["method"]["name"] != "sgd":
        raise ValueError("trajectory='sgd' measures the method without training on it: measure.every must be above 0")
    check_model(config["model"])
    check_text(config)
    check_schedule(config["schedule"])
    check_optimizer(config)
    named_layers(config)
    check_compute(config)
    _validate_exchange(config)
    _validate_feedback(config)
    check_tensors(config, momentum_in_workers=momentum_acts_in_workers(config) and not config["layers"])


def _validate_feedback(config: Mapping[str, Any]) -> None:
    """Raise ValueError for a memory that does not go with the rest."""
    chosen = {key: f"feedback.{key}={value!r}" for key, value in _counting(Feedback, config["feedback"]).items()}
    if chosen and config["trajectory"] == "sgd":
        raise ValueError(f"{next(iter(chosen.values()))}: has no effect with trajectory='sgd', on which no message is sent")
    check_memory(named_feedback(config), _methods(config), config["exchange"]["collective"])
    if momentum_acts_in_workers(config) and config["optim"]["name"] != "sgd":
        chosen = f"optim={config['optim']['name']}"
        raise ValueError(f"{chosen}: momentum correction moves SGD's momentum into the workers; legal here: sgd, or feedback.kind=error")
    if config["optim"]["name"] == "sgd":
        check_masking(config["feedback"]["masking"], config["optim"]["momentum"], "feedback.", "optim.")


def _validate_exchange(config: Mapping[str, Any]) -> None:
    """Raise ValueError for settings of the exchange that do not go with the rest."""
    exchange, name, workers = config["exchange"], config["method"]["name"], config["workers"]
    chosen = {key: f"exchange.{key}={value!r}" for key, value in _counting(Exchange, exchange).items()}
    if chosen and config["trajectory"] == "sgd":
        raise ValueError(f"{next(iter(chosen.values()))}: has no effect with trajectory='sgd', which exchanges one worker's gradient")
    if METHODS[name].single_worker and exchange["collective"] not in ("gather", "auto"):
        raise ValueError(f"{chosen['collective']}: method={name} sends one worker's gradient alone; legal here: gather, auto")
    means = [METHODS[METHODS[one].second or one].settings for one in _methods(config)]
    if "second_bits" in chosen and not any("bits" in _fields(schema) for schema in means):
        raise ValueError(f"{chosen['second_bits']}: has no effect with method={name}, whose means are not quantized")
    if exchange["num_aggregate"] > workers:
        raise ValueError(f"{chosen['num_aggregate']}: must be at most workers={workers} (0: all)")


# --- identity -----------------------------------------------------------------------------------------------------


@functools.cache
def _rules(schema: type) -> dict[str, tuple[Any, Any]]:
    """(whether it counts, default) of every field of a settings dataclass."""
    return {item.name: (item.metadata.get("identity", True), _default(item)) for item in dataclasses.fields(schema)}


def _counting(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that make the identity: not those that cannot change a result, nor defaults that count ``unless default``."""
    rules = _rules(schema)

    def counts(key: str, value: Any) -> bool:
        rule, default = rules.get(key, (True, None))
        return value != default if rule == "unless default" else rule

    return {key: value for key, value in values.items() if counts(key, value)}


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


@functools.cache
def _younger() -> dict[str, Mapping[str, Any]]:
    """The sections in which nothing counts by default: configurations older than one of them do without it."""
    return {part: {} for part, schema in SECTIONS.items() if not _counting(schema, vars(schema()))}


def result_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration less what cannot change a result: what the identity is made of.

    A section in which nothing counts is left out; it may be missing, as it is in configurations older than it.
    """
    schemas = SECTIONS | {group: options[config[group]["name"]] for group, options in GROUPS.items()}
    whole = {**_younger(), **config}
    parts = {part: _counting(schema, whole[part]) for part, schema in schemas.items()}
    return {key: value for key, value in {**_counting(Config, config), **parts}.items() if value != {}}


def identity(config: Mapping[str, Any]) -> str:
    """14 hexadecimal digits (56 bits) of SHA-256 over the canonical JSON of ``result_settings``."""
    return _digits(_canonical(result_settings(config)))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _joined(texts: Mapping[str, str]) -> str:
    """A canonical JSON object, of the texts of its values."""
    return "{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:14]


def run_name(config: Mapping[str, Any], known: str = "") -> str:
    """The readable part of a run folder, then its identity (``known`` where it is): ``alq-3b-resnet8-cifar10-s1-0123456789abcd``.

    With layers of other methods: ``alq-3b+topk+supersgd-resnet8-...``.
    """
    bits = f"-{config['method']['bits']}b" if "bits" in config["method"] else ""
    others = "".join(f"+{name}" for name in dict.fromkeys(_methods(config)[1:]))
    parts = f"{config['method']['name']}{bits}{others}-{config['model']['name']}-{config['data']['name']}-s{config['seed']}"
    return f"{parts}-{known or identity(config)}"


def default_run_dir(config: Mapping[str, Any]) -> str:
    """The folder of a run: ``run_dir``, or its name under ``runs/main``."""
    return config["run_dir"] or os.path.join("runs", "main", run_name(config))


# --- help and Hydra -----------------------------------------------------------------------------------------------


def lag_s(text: str | None) -> float:
    """The value of NUQ_LAG_S, how late files of other nodes may be seen and how far clocks differ: seconds; 120 where it is not set."""
    try:
        value = float(text or "120")
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise ValueError(f"NUQ_LAG_S={text!r}: must be a number of seconds from 0 to 3600")
    return value


def help_text() -> str:
    """Every setting with its default and the reason for it."""
    return command_line.help_text(Config, SECTIONS, GROUPS, DEFAULTS)


def register() -> None:
    """Hand every settings dataclass to Hydra's ConfigStore, under the primary config ``experiment``."""
    command_line.register(Config, GROUPS, DEFAULTS, help_text())


def named_method(config: Mapping[str, Any]) -> Any:
    """The settings dataclass instance of the configuration's method."""
    values = {key: value for key, value in config["method"].items() if key != "name"}
    return method(config["method"]["name"]).settings(**values)


def named_feedback(config: Mapping[str, Any]) -> Feedback:
    """The settings dataclass instance of the configuration's feedback."""
    return Feedback(**config["feedback"])


def momentum_acts_in_workers(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer's momentum is applied before the compression (momentum correction), in any layer."""
    return config["trajectory"] == "method" and "momentum" in memory_kinds(config["feedback"]["kind"], _methods(config))


def momentum_in_workers_of(config: Mapping[str, Any], names: Iterable[str]) -> list[bool]:
    """The same for every parameter, by its name; ValueError for a pattern of ``layers`` that matches none."""
    if not config["layers"] or not momentum_acts_in_workers(config) or config["feedback"]["kind"] != "auto":
        return [momentum_acts_in_workers(config) for _ in names]
    methods = _methods(config)
    return [method(methods[number]).feedback == "momentum" for number in layer_list.matched(named_layers(config), names).values()]


def named_layers(config: Mapping[str, Any]) -> list[layer_list.Layer]:
    """The layers of the configuration that have a method of their own."""
    return layer_list.parsed(config["layers"], beside=config["method"]["name"])


def _methods(config: Mapping[str, Any]) -> list[str]:
    """The method, then those of the layers that have one of their own."""
    return [config["method"]["name"], *(layer.method for layer in layer_list.parsed(config.get("layers", ())))]


def named_exchange(config: Mapping[str, Any]) -> Exchange:
    """The settings dataclass instance of the configuration's exchange."""
    return Exchange(**config["exchange"])


def check_overrides(overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Raise ValueError, with the legal choices, where Hydra would refuse less clearly.  Hydra's own settings pass."""
    own = [text for text in overrides if not text.startswith("hydra")]
    settings = parse_overrides(own)
    if not sweep and len(settings) < len({text.partition("=")[0] for text in own}):
        raise ValueError(f"several values in {' '.join(own)}: a run has one of each; -m runs them one after another")
    resolve(settings)
