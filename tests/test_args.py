"""Settings: our resolver against Hydra's own composition, and the error for every kind of bad input."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
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
from settings import command_line, resolving
from tests.experiments import CHOICES, SETTINGS, experiments
from tests.tiers import few

ROOT = Path(__file__).parent.parent
SERVER = {"exchange.collective": "server"}
TOPK = {"method": "topk"}
TWO_WAYS = {"exchange.collective": "two_stage", "feedback.both": True}
LINES = {"schedule": "piecewise_linear"}


def _with_name(pair: tuple[str, str]) -> str:
    return "=".join(pair)


@pytest.fixture(scope="module")
def hydra() -> Iterator[None]:
    """Hydra, holding our settings."""
    command_line.register()
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
    assert resolving.resolve({}) == _composed([])


@few(
    2,
    "pair",
    [pytest.param(pair, marks=[pytest.mark.slow] * (pair[0] == "model")) for pair in CHOICES],  # sixty of them
    ids=_with_name,
)
def test_every_choice_is_hydras(hydra: None, pair: tuple[str, str]) -> None:
    group, name = pair
    config = resolving.resolve({group: name})
    assert config == _composed([f"{group}={name}"])
    assert config[group]["name"] == name


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(experiment=experiments(), order=st.randoms(use_true_random=False))
def test_any_experiment_is_hydras(hydra: None, experiment: dict[str, Any], order: Any) -> None:
    overrides = [f"{key}={value if key in args.GROUPS else _text(value)}" for key, value in experiment.items()]
    order.shuffle(overrides)
    config = resolving.resolve(experiment)
    assert config == _composed(overrides)
    assert resolving.resolve(command_line.parse_overrides(overrides)) == config
    assert json.loads(json.dumps(config)) == config  # plain values only: YAML and JSON keep them


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        ({"method": "alq", "method.weights": "norm"}, "weights='norm': has no effect with method.fit='histogram'"),
        (
            {"method": "optimal", "method.num_levels": 7, "method.bits": 5},
            "bits=5: has no effect with method.num_levels=7",
        ),
    ],
)
def test_a_setting_without_effect_is_an_error(experiment: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        resolving.resolve(experiment)


def test_adaptive_levels_are_fitted_to_the_histogram_by_default() -> None:
    for name, entry in METHODS.items():
        if entry.adaptive and not name.endswith("n"):
            assert resolving.resolve({"method": name})["method"]["fit"] == "histogram"


def test_numbers_become_what_the_setting_is() -> None:
    config = resolving.resolve({"optim.lr": 1, "data_dir": 5})
    assert type(config["optim"]["lr"]) is float
    assert config["data_dir"] == "5"


@pytest.mark.parametrize(
    "experiment",
    [
        {"method": "qsgd", **TWO_WAYS, "layers": ["fc = topk"]},
        {"method": "topk", "feedback.masking": False, "layers": ["fc = dgc"]},
        {"method": "powersgd", "feedback.both": True, **SERVER},
    ],
)
def test_a_setting_counts_where_one_layers_memory_reads_it(experiment: dict[str, Any]) -> None:
    resolving.resolve(experiment)


def test_defaults_are_not_shared() -> None:
    resolving.resolve({})["method"]["update_at"].append(7)
    assert resolving.resolve({})["method"]["update_at"] == [0, 100, 2000]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"method": "alqn"}, ["unknown method 'alqn'", "did you mean 'alq_n'", "legal: ", "supersgd"]),
        ({"data": "cifar"}, ["unknown data 'cifar'", "did you mean 'cifar10'", "imagenet"]),
        ({"model": "resnet19"}, ["unknown model 'resnet19'", "resnet110"]),
        ({"optim": "adamx"}, ["unknown optim 'adamx'", "did you mean 'adam", "adam, adamw, muon, sgd, signsgd"]),
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
        (
            {"exchange.collective": "ring"},
            ["exchange.collective='ring'", "auto, gather, two_stage, server, hierarchical"],
        ),
        ({"exchange.num_aggregate": 2}, ["exchange.num_aggregate=2", "collective='server' only"]),
        ({**SERVER, "exchange.num_aggregate": 5}, ["exchange.num_aggregate=5", "at most workers=4"]),
        ({"exchange.second_bits": 5}, ["exchange.second_bits=5", "collective='gather'", "'two_stage' or 'server'"]),
        ({**SERVER, "method": "supersgd", "exchange.second_bits": 5}, ["exchange.second_bits=5", "method=supersgd"]),
        ({**SERVER, "method": "sgd"}, ["exchange.collective='server'", "method=sgd", "gather, auto"]),
        ({**SERVER, "trajectory": "sgd", "measure.every": 3}, ["exchange.collective='server'", "trajectory='sgd'"]),
        (
            {"method": "dgc", "optim.momentum": 0.0, "feedback.masking": False},
            ["feedback.masking=False", "no effect", "optim.momentum=0.0"],
        ),
        ({**TOPK, "feedback.masking": False}, ["feedback.masking=False", "no effect", "'error' for method=topk"]),
        ({**TOPK, "feedback.clip_norm": 1}, ["feedback.clip_norm=1.0", "no effect", "feedback.kind='auto'"]),
        (
            {**TOPK, "feedback.kind": "none", "feedback.clip_value": 1},
            ["feedback.clip_value=1.0", "feedback.kind='none'"],
        ),
        (
            {**TOPK, "feedback.both": True},
            ["feedback.both=True", "gather encodes no means", "exchange.collective=two_stage"],
        ),
        (
            {**TOPK, "feedback.kind": "ef21", "feedback.decay": 0.9},
            ["feedback.decay=0.9", "no effect", "feedback.kind='ef21'"],
        ),
        ({"method": "qsgd", "feedback.decay": 0.9}, ["feedback.decay=0.9", "'none'", "it is read with 'error' only"]),
        ({**TOPK, **TWO_WAYS, "feedback.kind": "none"}, ["feedback.both=True", "no effect", "feedback.kind='none'"]),
        (
            {"method": "supersgd", "feedback.kind": "error"},
            ["feedback.kind='error'", "no effect", "method=supersgd", "legal here: auto, none"],
        ),
        ({"method": "qsgd", **TWO_WAYS}, ["feedback.both=True", "no effect", "'none' for method=qsgd"]),
        (
            {"method": "qsgd", **TWO_WAYS, "layers": ["fc = trn"]},
            ["feedback.both=True", "'none' for method=qsgd, 'none' for method=trn"],
        ),
        ({"method": "powersgd", **TWO_WAYS}, ["feedback.both=True", "factors are exact", "exchange.collective=server"]),
        (
            {"method": "powersgd", **TWO_WAYS, "exchange.collective": "auto"},
            ["feedback.both=True", "factors are exact"],
        ),
        (
            {"method": "dgc", "method.warmup_every": 5, "method.warmup_ratios": []},
            ["method.warmup_ratios=[]", "at least 1 value"],
        ),
        (
            {"method": "casq", "method.cells": 9, "method.cells_ratio": 0.1},
            ["method.cells_ratio=0.1", "no effect with method.cells=9"],
        ),
        (
            {"method": "dgc", "optim.nesterov": True, "optim.momentum": 0},
            ["optim.nesterov=True", "no effect", "optim.momentum=0.0"],
        ),
        ({"exchange.timeout_s": 0}, ["exchange.timeout_s=0.0", "at least 1"]),
        ({"label_smoothing": 1.5}, ["label_smoothing=1.5", "at most 1"]),
        ({"data": "cifar10", "data.cutout": -1}, ["data.cutout=-1", "at least 0"]),
        ({"data": "digits", "data.cutout": 2}, ["data=digits", "'data.cutout'"]),
        (
            {"schedule": "step", "schedule.warmup_factor": 0.5},
            ["schedule.warmup_factor=0.5", "no effect", "warmup_steps=0"],
        ),
        ({"schedule": "cosine", "schedule.warmup_factor": 2}, ["schedule.warmup_factor=2.0", "at most 1"]),
        ({"schedule.warmup_factor": 0.5}, ["schedule.warmup_factor=0.5", "no effect", "warmup_steps=0"]),
        (
            {**LINES, "schedule.warmup_steps": 5},
            ["schedule=piecewise_linear", "'schedule.warmup_steps'", "schedule.at, schedule.factors"],
        ),
        (
            {"optim": "adam", "optim.decay_norms": False},
            ["optim.decay_norms=False", "no effect", "optim.weight_decay=0.0", "above 0"],
        ),
        ({"method": "sgd", "optim.scale_lr": "sqrt"}, ["optim.scale_lr='sqrt'", "method=sgd", "legal here: none"]),
        (
            {"trajectory": "sgd", "measure.every": 3, "optim.scale_lr": "linear"},
            ["optim.scale_lr='linear'", "trajectory='sgd'", "none"],
        ),
        ({"optim.scale_lr": "cubic"}, ["optim.scale_lr='cubic'", "none, linear, sqrt"]),
        ({"optim.clip_norm": -1}, ["optim.clip_norm=-1.0", "at least 0"]),
        ({"optim": "adamw", "optim.clip_value": "1"}, ["optim.clip_value='1'", "type float"]),
        ({"optim": "adamw", "optim.momentum": 0.9}, ["optim=adamw", "'optim.momentum'", "optim.beta1"]),
        ({**LINES, "schedule.at": [5, 5, 9]}, ["schedule.at=[5, 5, 9]", "each after the one before"]),
        ({**LINES, "schedule.at": []}, ["schedule.at=[]", "at least one step"]),
        (
            {**LINES, "schedule.at": [0, 9]},
            ["schedule.factors=[0.0, 1.0, 0.0]", "as many as the 2 steps of schedule.at=[0, 9]"],
        ),
        ({**LINES, "schedule.factors": [0, -1, 0]}, ["schedule.factors=[0.0, -1.0, 0.0]", "at least 0"]),
    ],
    ids=str,
)
def test_bad_settings_are_named(given_: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        resolving.resolve(given_)
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
        resolving.check_overrides([override])
    assert "\n" not in str(caught.value)


def test_hydras_own_overrides_pass() -> None:
    resolving.check_overrides(["hydra.verbose=true", "hydra/job_logging=none", "steps=3", "seed=1,2,3"], sweep=True)
    with pytest.raises(ValueError, match="-m runs them"):
        resolving.check_overrides(["seed=1,2,3"])


# --- help ---------------------------------------------------------------------------------------------------------


def test_help_names_every_setting_with_default_and_reason() -> None:
    text = command_line.help_text()
    entries: dict[str, list[str]] = {}
    for line, following in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        if found := re.match(r"  ([a-z0-9_.]+)=", line):
            entries.setdefault(found.group(1), []).append(f"{line}\n{following.strip()}")
    for choice, name, item in SETTINGS:
        config = resolving.resolve(choice)
        section, _, short = name.rpartition(".")
        value = item.default if name in choice else (config[section] if section else config)[short]
        shown = (
            value if isinstance(value, str) and value else repr(value) if isinstance(value, str) else json.dumps(value)
        )
        matching = [
            entry
            for entry in entries.get(name, [])
            if entry.startswith(f"  {name}={shown}") and item.metadata["reason"] in entry
        ]
        assert matching, f"{name}={shown} with its reason is not in the help"
    for group, name in CHOICES:
        assert re.search(rf"^ {group}=.*\b{name}\b", text, re.MULTILINE), f"{group}={name} is not in the help"


def test_every_reason_says_something() -> None:
    short = {name: item.metadata["reason"] for _, name, item in SETTINGS if len(item.metadata["reason"]) < 12}
    assert set(short) <= {"data.num_test"}, short  # "test points"


@pytest.mark.parametrize(
    ("chosen", "hint"),
    [
        ({"lr": 0.1}, "unknown setting 'lr'; did you mean 'optim.lr'? (legal:"),
        ({"bits": 3}, "unknown setting 'bits'; did you mean 'method.bits'?"),
        ({"stpes": 3}, "unknown setting 'stpes'; did you mean 'steps'?"),
        ({"method": "alg"}, "unknown method 'alg'; did you mean 'alq'?"),
        ({"method": "qsgq"}, "unknown method 'qsgq'; did you mean 'qsgd'?"),
        ({"optim.lrr": 0.1}, "did you mean 'optim.lr'?"),
    ],
)
def test_hints_name_what_was_meant(chosen: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError) as error:
        resolving.resolve(chosen)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--method", "alq"], "method=alq"),
        (["--methd=alq"], "method=alq"),
        (["steps=3", "--batch-size", "4"], "batch_size=4"),
        (["--lr=0.1"], "optim.lr=0.1"),
        (["--method.bits", "3", "--steps=2"], "method.bits=3"),
        (["--frobnicate", "seed=1"], "--help"),
    ],
)
def test_a_setting_given_as_an_option_gets_a_hint(words: list[str], meant: str) -> None:
    option = next(word for word in words if word.startswith("--"))
    said = str(command_line.unknown_option(option, words))
    assert repr(option) in said and meant in said


@pytest.mark.slow
def test_main_says_so_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "main.py", "--method", "alq"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("main.py: ") and "method=alq" in done.stderr and done.stderr.count("\n") == 1
