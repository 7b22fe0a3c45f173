"""The resolution of a few settings into the full, checked configuration."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from args import DEFAULTS, GROUPS, SECTIONS, Config
from nuq.registry import METHODS
from nuq.settings import check, typed, unknown
from nuq.settings.feedback import Feedback, check_masking, check_memory
from settings.command_line import jobs, parse_overrides
from settings.models import check_model
from settings.optim import check_optimizer, check_schedule
from settings.run import Exchange, check_compute, check_tensors
from settings.run_identity import canonical, counting, digits, joined
from settings.sections import methods_of, momentum_acts_in_workers, named_feedback, named_layers
from settings.text import check_text


@functools.cache
def _fields(settings: type) -> dict[str, Any]:
    """The default of each field of a settings dataclass, by name."""
    return vars(settings())


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The full configuration as a nested dict of plain values, each group with its ``name`` first.

    ``settings`` maps dotted names to values, as in ``{"method": "alq", "method.bits": 3, "workers": 4}``.
    Raises ValueError for an unknown name or choice (with the legal ones and the nearest match), for a setting that the
    chosen method, data set or model does not read, and for a value of the wrong type or outside its range.
    """
    return Resolver().resolved(settings, [{}])[0][0]


class Resolver:
    """``resolve`` and ``identity`` for thousands of experiments.

    Equal sections are checked once, and shared by their configurations.
    """

    def __init__(self) -> None:
        self._parts: dict[
            tuple[type, str], tuple[dict[str, Any], dict[str, str]]
        ] = {}  # keyed by schema and what is given of it

    def resolved(
        self, settings: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]
    ) -> list[tuple[dict[str, Any], str]]:
        """The configuration and identity of ``settings`` with each of ``variants``.

        Nothing else depends on the settings in ``variants``: seeds.

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
        parts = {
            part: self._part(schema, given[part], f"{part}.", heads.get(part, {})) for part, schema in schemas.items()
        }
        shared = {part: values for part, (values, _) in parts.items()}
        texts = {part: joined(texts) for part, (_, texts) in parts.items() if texts}
        found = []
        for variant in variants:
            top, own = self._part(Config, {**given[""], **variant}, "", {})
            config = {**shared, **top}
            if not found:
                _check_together(config)
            found.append((config, digits(joined({**own, **texts}))))
        return found

    def _part(
        self, schema: type, given: Mapping[str, Any], where: str, head: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The checked values of a section after those of ``head``, and their canonical JSON.

        The canonical JSON of each value that counts makes the identity.
        """
        key = schema, repr((head, given))
        if key not in self._parts:
            values = {name: _copy(default) for name, default in _fields(schema).items() if name not in SECTIONS}
            values |= typed(schema, given, where)
            check(schema, values, where)
            counted = counting(schema, {**head, **values})
            self._parts[key] = {**head, **values}, {name: canonical(value) for name, value in counted.items()}
        return self._parts[key]


def _by_section(settings: Mapping[str, Any], schemas: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """The settings that are given in each section ("" for none); ValueError for what is no setting."""
    top = [name for name in _fields(Config) if name not in SECTIONS]
    given: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in schemas}}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if key in GROUPS:
            continue
        if not name:
            if key not in top:
                own = [part for part, schema in schemas.items() if key in _fields(schema)]
                # lr: the optimizer's, not untrain's
                meant = [f"{part}.{key}" for part in [part for part in own if part in GROUPS] or own]
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
    chosen = {key: f"feedback.{key}={value!r}" for key, value in counting(Feedback, config["feedback"]).items()}
    if chosen and config["trajectory"] == "sgd":
        raise ValueError(
            f"{next(iter(chosen.values()))}: has no effect with trajectory='sgd', on which no message is sent"
        )
    check_memory(named_feedback(config), methods_of(config), config["exchange"]["collective"])
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
    if "second_bits" in chosen and not any("bits" in _fields(schema) for schema in means):
        raise ValueError(f"{chosen['second_bits']}: has no effect with method={name}, whose means are not quantized")
    if exchange["num_aggregate"] > workers:
        raise ValueError(f"{chosen['num_aggregate']}: must be at most workers={workers} (0: all)")


def check_overrides(overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Raise ValueError, with the legal choices, where Hydra would refuse less clearly. Hydra's own settings pass.

    sweep: several values of a setting are as many runs, none of which begins before all are checked.
    """
    own = [text for text in overrides if not text.startswith("hydra")]
    settings = parse_overrides(own)
    if not sweep and len(settings) < len({text.partition("=")[0] for text in own}):
        raise ValueError(f"several values in {' '.join(own)}: a run has one of each; -m runs them one after another")
    for words in jobs(own) if sweep else [own]:
        resolve(parse_overrides(words))
