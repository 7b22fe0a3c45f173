"""The resolution of a few settings into the full, checked configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from args import DEFAULTS, GROUPS, SECTIONS, Config
from nuq.registry import METHODS
from nuq.settings import check, declared, plugins, unknown
from nuq.settings.feedback import Feedback, check_masking, check_memory
from nuq.settings.quantized_training import formats_of
from settings.command_line import jobs, parse_overrides
from settings.data import DATA, check_limit
from settings.fork import check_fork
from settings.models import MODELS, check_model
from settings.optim import check_optimizer, check_schedule
from settings.run import Exchange, check_compute, check_local_steps, check_tensors
from settings.run_identity import canonical, counting, digits, joined
from settings.sections import as_set, dotted, methods_of, momentum_acts_in_workers, named_layers
from settings.text import check_text


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The full configuration as a nested dict of plain values, each group with its ``name`` first.

    ``settings`` maps dotted names to values, as in ``{"method": "alq", "method.bits": 3, "workers": 4}``.
    Raises ValueError for an unknown name or choice (with the legal ones and the nearest match), for a setting that the
    chosen method, data set or model does not read, and for a value of the wrong type or outside its range.
    """
    return Resolver().resolved(settings)[0]


@functools.cache
def of_words(*words: str) -> dict[str, Any]:
    """The configuration of these words of a command line, made once per process: the same dict for all who ask.

    ValueError as ``resolve``, and for what is not of the form name=value.
    """
    return resolve(parse_overrides(words))


def of_composed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that Hydra composed whole, of which defaults count as not given.  ValueError as ``resolve``."""
    given = as_set(config)
    groups = {name: given[name] for name in GROUPS if name in given}
    usual = dotted(resolve(groups))
    return resolve(groups | {name: value for name, value in given.items() if value != usual.get(name)})


class Resolver:
    """``resolve`` and ``identity`` for thousands of experiments.

    Equal sections are checked once, and shared by their configurations.
    """

    def __init__(self) -> None:
        # keyed by schema and what is given of it
        self._sections: dict[tuple[type, str], tuple[dict[str, Any], dict[str, str]]] = {}

    def resolved(self, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The configuration, and the canonical JSON of each of its parts that make the identity.

        ValueError as ``resolve``.
        """
        given_plugins = {name: settings[name] for name in settings if name == "plugins"}
        asked = self._section(Config, {}, given_plugins)[0]["plugins"]
        for text in asked:
            plugins.load(text)
        names = {group: settings.get(group, default) for group, default in DEFAULTS.items()}
        for group, name in names.items():
            if not isinstance(name, str) or name not in GROUPS[group]:
                raise unknown(group, name, GROUPS[group])
        schemas = {group: GROUPS[group][name] for group, name in names.items()} | SECTIONS
        given = _by_section(settings, schemas)
        config: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for part, schema in schemas.items():
            head = {"name": names[part]} if part in names else {}
            config[part], counted = self._section(schema, head, given[part], f"{part}.")
            if counted:
                texts[part] = joined(counted)
        top, counted = self._section(Config, {}, given[""])
        config |= top
        _check_together(config)
        if used := _plugins(config, asked):
            top, counted = self._section(Config, {}, given[""] | {"plugins": used})
            config |= top
        return config, texts | counted

    def of_seeds(self, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[tuple[dict[str, Any], str]]:
        """The configuration and identity of the settings with each seed, on which nothing else depends.

        ValueError as ``resolve``.
        """
        each = [self._section(Config, {}, {"seed": seed}) for seed in seeds]
        config, texts = self.resolved(settings)
        before, after = joined({**texts, "seed": "\0"}).split("\0")
        return [({**config, "seed": own["seed"]}, digits(f"{before}{counted['seed']}{after}")) for own, counted in each]

    def _section(
        self, schema: type, head: Mapping[str, Any], given: Mapping[str, Any], where: str = ""
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The checked values of a section after those of ``head``, and the canonical JSON of those that count."""
        key = schema, repr((head, given))
        if key not in self._sections:
            values = {**head, **check(schema, given, where)}
            self._sections[key] = values, {name: canonical(one) for name, one in counting(schema, values).items()}
        return self._sections[key]


def _by_section(settings: Mapping[str, Any], schemas: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """The settings that are given in each section ("" for none); ValueError for what is no setting."""
    top = declared(Config)
    given: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in schemas}}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if key in GROUPS:
            continue
        if not name:
            if key not in top:
                own = [part for part, schema in schemas.items() if key in declared(schema)]
                # lr: the optimizer's, not untrain's
                meant = [f"{part}.{key}" for part in [part for part in own if part in GROUPS] or own]
                raise unknown("setting", key, [*top, *GROUPS, *(f"{part}.*" for part in SECTIONS)], meant)
            given[""][key] = value
            continue
        if section not in schemas:
            raise unknown("setting", key, [*top, *(f"{part}.*" for part in schemas)])
        if name not in declared(schemas[section]):
            chosen = f" of {section}={settings.get(section, DEFAULTS[section])}" if section in GROUPS else ""
            raise unknown(f"setting{chosen}", key, [f"{section}.{item}" for item in declared(schemas[section])])
        given[section][name] = value
    return given


def _check_together(config: Mapping[str, Any]) -> None:
    """Raise ValueError for values, each legal, that do not go together."""
    if config["trajectory"] == "sgd" and config["measure"]["every"] == 0 and config["method"]["name"] != "sgd":
        raise ValueError("trajectory='sgd' measures the method without training on it: measure.every must be above 0")
    check_limit(config)
    check_model(config["model"])
    check_text(config)
    check_schedule(config["schedule"])
    check_optimizer(config)
    named_layers(config)
    check_compute(config)
    _validate_exchange(config)
    _validate_feedback(config)
    check_tensors(config, momentum_in_workers=momentum_acts_in_workers(config) and not config["layers"])
    check_local_steps(config)
    check_fork(config)


def _plugins(config: Mapping[str, Any], asked: Sequence[str]) -> list[str]:
    """The plug-ins that the experiment's method, data set and model come from.  ValueError for others asked for."""
    names = [*methods_of(config), *(text.split()[0] for text in formats_of(config["tensors"]).values())]
    methods = [METHODS[name] for name in names if name in METHODS]
    means = [METHODS[entry.mean_compressor] for entry in methods if entry.mean_compressor]
    used = plugins.used([*methods, *means, DATA[config["data"]["name"]], MODELS[config["model"]["name"]]])
    for text in asked:
        if text.partition("==")[0] not in [each.partition("==")[0] for each in used]:
            raise ValueError(
                f"plugins={list(asked)!r}: {text} has no effect, as neither method, data set nor model is of it; leave "
                "it out"
            )
    return used


def _validate_feedback(config: Mapping[str, Any]) -> None:
    """Raise ValueError for a memory that does not go with the rest."""
    chosen = {key: f"feedback.{key}={value!r}" for key, value in counting(Feedback, config["feedback"]).items()}
    if chosen and config["trajectory"] == "sgd":
        raise ValueError(
            f"{next(iter(chosen.values()))}: has no effect with trajectory='sgd', on which no message is sent"
        )
    check_memory(Feedback(**config["feedback"]), methods_of(config), config["exchange"]["collective"])
    if momentum_acts_in_workers(config) and config["optim"]["name"] != "sgd":
        chosen = f"optim={config['optim']['name']}"
        raise ValueError(
            f"{chosen}: momentum correction moves SGD's momentum into the workers; legal here: sgd, or "
            f"feedback.kind=error"
        )
    if config["optim"]["name"] == "sgd":
        check_masking(config["feedback"]["masking"], config["optim"]["momentum"], "feedback.", "optim.")


def _validate_exchange(config: Mapping[str, Any]) -> None:
    """Raise ValueError for settings of the exchange that do not go with the rest."""
    exchange, name, workers = config["exchange"], config["method"]["name"], config["workers"]
    chosen = {key: f"exchange.{key}={value!r}" for key, value in counting(Exchange, exchange).items()}
    if chosen and config["trajectory"] == "sgd":
        raise ValueError(
            f"{next(iter(chosen.values()))}: has no effect with trajectory='sgd', which exchanges one worker's gradient"
        )
    if METHODS[name].single_worker and exchange["collective"] not in ("gather", "auto"):
        raise ValueError(
            f"{chosen['collective']}: method={name} sends one worker's gradient alone; legal here: gather, auto"
        )
    means = [METHODS[METHODS[one].mean_compressor or one].settings for one in methods_of(config)]
    if "second_bits" in chosen and not any("bits" in declared(schema) for schema in means):
        raise ValueError(f"{chosen['second_bits']}: has no effect with method={name}, whose means are not quantized")
    if exchange["num_aggregate"] > workers:
        raise ValueError(f"{chosen['num_aggregate']}: must be at most workers={workers} (0: all)")


def check_overrides(
    overrides: Sequence[str], complete: Callable[[Sequence[str]], Sequence[str]] = list, *, sweep: bool = False
) -> None:
    """Raise ValueError, with the legal choices, where Hydra would refuse less clearly. Hydra's own settings pass.

    complete: makes all words of a run of those that are given.  sweep: several values of a setting are as many runs,
    none of which begins before all are checked.
    """
    own = [text for text in overrides if not text.startswith("hydra")]
    for words in jobs(own) if sweep else [own]:
        of_words(*complete(words))
