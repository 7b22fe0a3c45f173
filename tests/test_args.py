"""Settings: our resolver against Hydra's own composition, and the error for every kind of bad input."""

from __future__ import annotations

import json
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
TWO_WAYS = {"exchange.collective": "two_stage", "feedback.both": True}


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


@pytest.mark.slow
def test_main_says_so_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "main.py", "--method", "alq"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("main.py: ") and "method=alq" in done.stderr and done.stderr.count("\n") == 1
