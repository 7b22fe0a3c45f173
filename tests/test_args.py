"""Settings: our resolver against Hydra's own composition, the error for every kind of bad input, and identity."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import args
from nuq.registry import METHODS
from nuq.settings.feedback import Feedback

ROOT = Path(__file__).parent.parent
SERVER = {"exchange.collective": "server"}
LINES = {"schedule": "piecewise_linear"}
CHOICES = [(group, name) for group, options in args.GROUPS.items() for name in options]


def _with_name(pair: tuple[str, str]) -> str:
    return "=".join(pair)


@pytest.fixture(scope="module")
def hydra() -> Iterator[None]:
    """Hydra, holding our settings."""
    args.register()
    with initialize(version_base="1.3", config_path=None):
        yield


def _composed(overrides: list[str]) -> Any:
    return OmegaConf.to_container(compose("experiment", overrides=overrides))


def _text(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", r"\'") + "'"
    return repr(value)


# --- against Hydra ------------------------------------------------------------------------------------------------


def test_defaults_are_hydras(hydra: None) -> None:
    assert args.resolve({}) == _composed([])


@pytest.mark.parametrize("pair", CHOICES, ids=_with_name)
def test_every_choice_is_hydras(hydra: None, pair: tuple[str, str]) -> None:
    group, name = pair
    config = args.resolve({group: name})
    assert config == _composed([f"{group}={name}"])
    assert config[group]["name"] == name


def _values(item: dataclasses.Field[Any], annotation: Any) -> st.SearchStrategy[Any]:
    """Legal values of one setting, from its own metadata."""
    rule = item.metadata
    if item.name == "layers":
        return st.lists(st.sampled_from(["*conv1* = topk ratio=0.01", "fc=supersgd", "* = amq bits=2 update_at=[3, 5]"]), max_size=3)
    low, high = rule["low"], rule["high"]
    if rule["choices"]:
        return st.sampled_from(rule["choices"])
    if annotation is bool:
        return st.booleans()
    if annotation is str:
        return st.text(st.sampled_from("abcXYZ019 _-/.,=:'+~[]{}()äλ"), max_size=12)
    if annotation is int:
        return st.integers(low if low is not None else -1000, high if high is not None else 10**12)
    if annotation is float:
        return st.floats(low if low is not None else -1e6, high, allow_nan=False, allow_infinity=False)
    (element,) = typing.get_args(annotation)
    return st.lists(_values(item, element), max_size=3)


def _settings_of(schema: type, prefix: str) -> dict[str, st.SearchStrategy[Any]]:
    hints = typing.get_type_hints(schema)
    return {f"{prefix}{item.name}": _values(item, hints[item.name]) for item in dataclasses.fields(schema) if item.metadata}


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    """Any legal experiment: a choice for every group, and a few settings that these choices read."""
    chosen: dict[str, Any] = {group: draw(st.sampled_from(sorted(options))) for group, options in args.GROUPS.items()}
    legal = _settings_of(args.Config, "")
    for section, schema in args.SECTIONS.items():
        legal |= _settings_of(schema, f"{section}.")
    for group, options in args.GROUPS.items():
        legal |= _settings_of(options[chosen[group]], f"{group}.")
    for name in draw(st.lists(st.sampled_from(sorted(legal)), unique=True, max_size=8)):
        chosen[name] = draw(legal[name])
    if chosen.get("trajectory") == "sgd":  # measuring is all that such a run does
        chosen["measure.every"] = draw(st.integers(1, 10**6))
    schemas = {"method": args.GROUPS["method"][chosen["method"]], "exchange": args.Exchange, "feedback": Feedback}
    for section, schema in schemas.items():  # what another setting leaves without effect
        for item in dataclasses.fields(schema):
            if f"{section}.{item.name}" in chosen and item.metadata["read_if"]:
                other, needed = _needed(item)
                chosen[f"{section}.{other}"] = needed
    if chosen.get("trajectory") == "sgd" or chosen["method"] in ("sgd", "supersgd"):
        chosen = {name: value for name, value in chosen.items() if not name.startswith(("exchange.", "feedback.", "layers"))}
    if chosen.get("feedback.both") and chosen.setdefault("exchange.collective", "two_stage") == "gather":
        del chosen["feedback.both"]
    kind = chosen.get("feedback.kind", "auto")
    if "momentum" in (kind, METHODS[chosen["method"]].feedback if kind == "auto" else ""):
        chosen = {name: value for name, value in chosen.items() if not name.startswith("optim")}
    entry = METHODS[chosen["method"]]
    if "bits" not in {item.name for item in dataclasses.fields(METHODS[entry.second or chosen["method"]].settings)}:
        chosen.pop("exchange.second_bits", None)
    if "schedule.warmup_factor" in chosen:
        chosen["schedule.warmup_steps"] = max(chosen.get("schedule.warmup_steps", 0), 1)
    if chosen["schedule"] == "piecewise_linear" and ("schedule.at" in chosen or "schedule.factors" in chosen):
        chosen["schedule.at"] = sorted({3, *chosen.get("schedule.at", [])})
        chosen["schedule.factors"] = (chosen.get("schedule.factors", []) + [0.5] * 4)[: len(chosen["schedule.at"])]
    if "exchange.num_aggregate" in chosen:
        chosen["workers"] = max(chosen.get("workers", 0), chosen["exchange.num_aggregate"], 1)
    return chosen


def _needed(item: dataclasses.Field[Any]) -> tuple[str, Any]:
    """The setting without which this one has no effect, and the value that all who need it can live with."""
    other, needed = item.metadata["read_if"]
    first = needed[0] if isinstance(needed, tuple | range) else needed
    return other, {"collective": "server", "kind": "momentum"}.get(other, first)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(experiment=experiments(), order=st.randoms(use_true_random=False))
def test_any_experiment_is_hydras(hydra: None, experiment: dict[str, Any], order: Any) -> None:
    overrides = [f"{key}={value if key in args.GROUPS else _text(value)}" for key, value in experiment.items()]
    order.shuffle(overrides)
    config = args.resolve(experiment)
    assert config == _composed(overrides)
    assert args.resolve(args.parse_overrides(overrides)) == config
    assert json.loads(json.dumps(config)) == config  # plain values only: YAML and JSON keep them


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        ({"method": "alq", "method.weights": "norm"}, "weights='norm': has no effect with method.fit='histogram'"),
        ({"method": "optimal", "method.num_levels": 7, "method.bits": 5}, "bits=5: has no effect with method.num_levels=7"),
    ],
)
def test_a_setting_without_effect_is_an_error(experiment: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        args.resolve(experiment)


def test_adaptive_levels_are_fitted_to_the_histogram_by_default() -> None:
    for name, entry in METHODS.items():
        if entry.adaptive and not name.endswith("n"):
            assert args.resolve({"method": name})["method"]["fit"] == "histogram"


def test_numbers_become_what_the_setting_is() -> None:
    config = args.resolve({"optim.lr": 1, "data_dir": 5})
    assert type(config["optim"]["lr"]) is float
    assert config["data_dir"] == "5"


def test_defaults_are_not_shared() -> None:
    args.resolve({})["method"]["update_at"].append(7)
    assert args.resolve({})["method"]["update_at"] == [100, 2000]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"method": "alqn"}, ["unknown method 'alqn'", "did you mean 'alq_n'", "legal: ", "supersgd"]),
        ({"data": "cifar"}, ["unknown data 'cifar'", "did you mean 'cifar10'", "imagenet"]),
        ({"model": "resnet19"}, ["unknown model 'resnet19'", "resnet110"]),
        ({"optim": "adamw"}, ["unknown optim 'adamw'", "did you mean 'adam'"]),
        ({"schedule": "cosinus"}, ["unknown schedule 'cosinus'", "exponential"]),
        ({"method": 3}, ["unknown method '3'"]),
        ({"method": None}, ["unknown method 'None'"]),
        ({"step": 3}, ["unknown setting 'step'", "did you mean 'steps'"]),
        ({"lr": 0.1}, ["unknown setting 'lr'", "optim"]),
        ({"optimizer.lr": 0.1}, ["unknown setting 'optimizer.lr'"]),
        ({"method.bit": 3}, ["of method=alq", "did you mean 'method.bits'"]),
        ({"method.name": "qsgd"}, ["method.name"]),
        ({"measure.evry": 3}, ["did you mean 'measure.every'"]),
        ({"method": "trn", "method.bits": 3}, ["method=trn", "'method.bits'", "method.clip_sigma"]),
        ({"method": "sgd", "method.bits": 3}, ["method=sgd", "'method.bits'"]),
        ({"method": "qsgd", "method.fit": "normal"}, ["method=qsgd", "'method.fit'"]),
        ({"data": "digits", "data.augment": True}, ["data=digits", "'data.augment'"]),
        ({"method": "alq_n", "method.fit": "mixture"}, ["method.fit='mixture'", "normal"]),
        ({"method.bits": 0}, ["method.bits=0", "at least 1"]),
        ({"method.bits": 9}, ["method.bits=9", "at most 8"]),
        ({"method.bits": True}, ["method.bits=True", "type int"]),
        ({"method.bits": "three"}, ["method.bits='three'", "type int"]),
        ({"method.bits": [3]}, ["method.bits=[3]", "type int"]),
        ({"method.bucket_size": 0}, ["method.bucket_size=0", "at least 1"]),
        ({"method.update_at": [100, -1]}, ["method.update_at=[100, -1]", "at least 0"]),
        ({"method.update_at": [1.5]}, ["method.update_at=1.5", "type int"]),
        ({"method.update_at": 100}, ["method.update_at=100", "list[int]"]),
        ({"method.symmetric": "False"}, ["method.symmetric='False'", "type bool"]),
        ({"method.norm": "l1"}, ["method.norm='l1'", "l2, linf"]),
        ({"method": "nuqsgd", "method.p": 1.0}, ["method.p=1.0", "at most 0.999999"]),
        ({"workers": 0}, ["workers=0", "at least 1"]),
        ({"steps": 10.0}, ["steps=10.0", "type int"]),
        ({"steps": math.nan}, ["steps=nan", "type int"]),
        ({"optim.lr": -0.1}, ["optim.lr=-0.1", "at least 0"]),
        ({"optim.lr": math.nan}, ["optim.lr=nan"]),
        ({"optim.lr": math.inf}, ["optim.lr=inf"]),
        ({"device": "tpu"}, ["device='tpu'", "auto, cpu, cuda"]),
        ({"run_dir": None}, ["run_dir=None", "type str"]),
        ({"trajectory": "sgd"}, ["trajectory", "measure.every"]),
        ({"exchange": "gather"}, ["unknown setting 'exchange'", "exchange.*"]),
        ({"exchange.collective": "ring"}, ["exchange.collective='ring'", "auto, gather, two_stage, server, hierarchical"]),
        ({"exchange.num_aggregate": 2}, ["exchange.num_aggregate=2", "collective='server' only"]),
        ({**SERVER, "exchange.num_aggregate": 5}, ["exchange.num_aggregate=5", "at most workers=4"]),
        ({"exchange.second_bits": 5}, ["exchange.second_bits=5", "collective='gather'", "'two_stage' or 'server'"]),
        ({**SERVER, "method": "supersgd", "exchange.second_bits": 5}, ["exchange.second_bits=5", "method=supersgd"]),
        ({**SERVER, "method": "sgd"}, ["exchange.collective='server'", "method=sgd", "gather, auto"]),
        ({**SERVER, "trajectory": "sgd", "measure.every": 3}, ["exchange.collective='server'", "trajectory='sgd'"]),
        ({"exchange.timeout_s": 0}, ["exchange.timeout_s=0.0", "at least 1"]),
        ({"label_smoothing": 1.5}, ["label_smoothing=1.5", "at most 1"]),
        ({"data": "cifar10", "data.cutout": -1}, ["data.cutout=-1", "at least 0"]),
        ({"data": "digits", "data.cutout": 2}, ["data=digits", "'data.cutout'"]),
        ({"schedule": "step", "schedule.warmup_factor": 0.5}, ["schedule.warmup_factor=0.5", "no effect", "warmup_steps=0"]),
        ({"schedule": "cosine", "schedule.warmup_factor": 2}, ["schedule.warmup_factor=2.0", "at most 1"]),
        ({**LINES, "schedule.at": [5, 5, 9]}, ["schedule.at=[5, 5, 9]", "each after the one before"]),
        ({**LINES, "schedule.at": []}, ["schedule.at=[]", "at least one step"]),
        ({**LINES, "schedule.at": [0, 9]}, ["schedule.factors=[0.0, 1.0, 0.0]", "as many as the 2 steps of schedule.at=[0, 9]"]),
        ({**LINES, "schedule.factors": [0, -1, 0]}, ["schedule.factors=[0.0, -1.0, 0.0]", "at least 0"]),
    ],
    ids=str,
)
def test_bad_settings_are_named(given_: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        args.resolve(given_)
    message = str(caught.value)
    assert not [word for word in words if word not in message], message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("steps", "name=value"),
        ("steps=[1", "name=value"),
        ("=3", "unknown setting ''"),
        ("+method.depth=3", "+ and ~"),
        ("++steps=3", "+ and ~"),
        ("~method", "+ and ~"),
        ("method=alqn", "did you mean 'alq_n'"),
        ("method=[alq,amq]", "unknown method"),
        ("method=null", "unknown method"),
        ("steps=", "steps=''"),
        ("steps=1e3", "steps=1000.0"),
    ],
)
def test_bad_overrides_are_named(override: str, word: str) -> None:
    with pytest.raises(ValueError, match=re.escape(word)) as caught:
        args.check_overrides([override])
    assert "\n" not in str(caught.value)


def test_hydras_own_overrides_pass() -> None:
    args.check_overrides(["hydra.verbose=true", "hydra/job_logging=none", "steps=3", "seed=1,2,3"], sweep=True)
    with pytest.raises(ValueError, match="-m runs them"):
        args.check_overrides(["seed=1,2,3"])


# --- identity -----------------------------------------------------------------------------------------------------


def _another(value: Any, item: dataclasses.Field[Any]) -> Any:
    """A legal value other than ``value``; None where there is none."""
    rule = item.metadata
    if rule["choices"]:
        return next((choice for choice in rule["choices"] if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, list):
        return [*value[:-1], _another(value[-1], item)] if value else ["fc = supersgd"]  # as long as before: another list may go with it
    larger = value + 1 if isinstance(value, int) else value + 0.0625
    if rule["high"] is None or larger <= rule["high"]:
        return larger
    return value - 1 if isinstance(value, int) else value / 2


def _every_setting() -> Iterator[tuple[dict[str, Any], str, dataclasses.Field[Any]]]:
    """(the choice that makes it legal, dotted name, field) of all settings."""
    for item in dataclasses.fields(args.Config):
        if item.metadata:
            yield {}, item.name, item
    for section, schema in args.SECTIONS.items():
        for item in dataclasses.fields(schema):
            yield {"exchange.collective": "two_stage"} if item.name == "both" else {}, f"{section}.{item.name}", item
    for group, name in CHOICES:
        for item in dataclasses.fields(args.GROUPS[group][name]):
            needed = {"schedule.warmup_steps": 3} if item.name == "warmup_factor" else {}
            yield {group: name, **needed}, f"{group}.{item.name}", item


SETTINGS = list(_every_setting())


@pytest.mark.parametrize(("choice", "name", "item"), SETTINGS, ids=[f"{list(c.values())}{n}" for c, n, _ in SETTINGS])
def test_identity_changes_with_what_can_change_a_result(choice: dict[str, Any], name: str, item: dataclasses.Field[Any]) -> None:
    base = {**choice, "measure.every": 7}  # legal with either trajectory
    config = args.resolve(base)
    section, _, short = name.rpartition(".")
    if item.metadata["read_if"]:
        other, needed = _needed(item)
        base[f"{section}.{other}"] = needed
        config = args.resolve(base)
    value = (config[section] if section else config)[short]
    other = _another(value, item)
    if other is None:
        return  # a setting of one choice
    moved = args.resolve({**base, name: other})
    assert (args.identity(moved) != args.identity(config)) == (item.metadata["identity"] is not False)


def test_only_these_settings_change_no_result() -> None:
    free = {name for _, name, item in SETTINGS if not item.metadata["identity"]}
    assert free == {"log_every", "checkpoint_every", "device", "data_dir", "run_dir", "data.download", "exchange.timeout_s"}


def test_experiments_that_are_named_already_keep_their_names() -> None:
    """Every line of pjobs/ ends with the identity that its settings had when it was written."""
    lines = [line for path in sorted(ROOT.glob("pjobs/*.sh")) for line in path.read_text().splitlines() if line.startswith("run ")]
    assert len(lines) > 100
    for line in lines:
        config = args.resolve(args.parse_overrides(shlex.split(line)[1:]))
        assert config["run_dir"].endswith(f"-{args.identity(config)}"), line


def test_a_setting_counts_unless_default_where_it_is_younger_than_names() -> None:
    younger = {name for _, name, item in SETTINGS if item.metadata["identity"] == "unless default"}
    exchange = {"exchange.collective", "exchange.second_bits", "exchange.num_aggregate"}
    task = {"layers", "method.scope", "data.cutout", "label_smoothing", "schedule.warmup_steps", "schedule.warmup_factor"}
    feedback = {f"feedback.{name}" for name in ("kind", "both", "masking", "clip_norm", "clip_value")}
    assert younger == exchange | feedback | task
    config = args.resolve({"exchange.timeout_s": 5.0})
    assert "exchange" not in args.result_settings(config)
    older = {key: value for key, value in config.items() if key != "exchange"}
    assert args.identity(older) == args.identity(config) == args.identity(args.resolve({}))
    chosen = args.result_settings(args.resolve({"exchange.collective": "server", "exchange.second_bits": 4}))
    assert chosen["exchange"] == {"collective": "server"}
    with pytest.raises(KeyError):  # which every configuration has
        args.identity({key: value for key, value in config.items() if key != "measure"})


def test_groups_change_the_identity() -> None:
    seen = {args.identity(args.resolve({group: name})) for group, name in CHOICES}
    # Each group's default is the same experiment; choices that share a schema must still differ.
    assert len(seen) == len(CHOICES) - len(args.GROUPS) + 1


@given(experiment=experiments(), order=st.randoms(use_true_random=False))
def test_identity_is_of_the_resolved_experiment(experiment: dict[str, Any], order: Any) -> None:
    config = args.resolve(experiment)
    shuffled = list(experiment.items())
    order.shuffle(shuffled)
    assert args.identity(args.resolve(dict(shuffled))) == args.identity(config)
    # every default spelled out is the same experiment
    explicit = {group: config[group]["name"] for group in args.GROUPS}
    for key, value in config.items():
        if isinstance(value, dict):
            explicit |= {f"{key}.{name}": part for name, part in value.items() if name != "name"}
        else:
            explicit[key] = value
    assert args.identity(args.resolve(explicit)) == args.identity(config)
    assert re.fullmatch(r"[0-9a-f]{14}", args.identity(config))  # 56 bits


def test_run_name_is_readable_and_safe() -> None:
    config = args.resolve({"method": "alq_n", "method.bits": 4, "model": "resnet8", "data": "cifar10", "seed": 12})
    assert args.run_name(config) == f"alq_n-4b-resnet8-cifar10-s12-{args.identity(config)}"
    assert args.run_name(args.resolve({"method": "sgd"})).startswith("sgd-cnn-digits-s1-")


# --- help ---------------------------------------------------------------------------------------------------------


def test_help_names_every_setting_with_default_and_reason() -> None:
    text = args.help_text()
    entries: dict[str, list[str]] = {}
    for line, following in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        if found := re.match(r"  ([a-z0-9_.]+)=", line):
            entries.setdefault(found.group(1), []).append(f"{line}\n{following.strip()}")
    for choice, name, item in SETTINGS:
        config = args.resolve(choice)
        section, _, short = name.rpartition(".")
        value = (config[section] if section else config)[short]
        shown = value if isinstance(value, str) and value else repr(value) if isinstance(value, str) else json.dumps(value)
        matching = [entry for entry in entries.get(name, []) if entry.startswith(f"  {name}={shown}") and item.metadata["reason"] in entry]
        assert matching, f"{name}={shown} with its reason is not in the help"
    for group, name in CHOICES:
        assert re.search(rf"^ {group}=.*\b{name}\b", text, re.MULTILINE), f"{group}={name} is not in the help"


def test_every_reason_says_something() -> None:
    short = {name: item.metadata["reason"] for _, name, item in SETTINGS if len(item.metadata["reason"]) < 12}
    assert set(short) <= {"data.num_test"}, short  # "test points"
