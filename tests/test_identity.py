"""Identity: what can change a result changes it, what cannot does not, and names that were given stay."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import args
from nuq.settings import Unless
from settings import command_line, resolving, run_identity, sections
from tests.experiments import CHOICES, FORMATS, ROUNDS, SETTINGS, experiments, needed_by

ROOT = Path(__file__).parent.parent
NAME = "qsgd-2b-mlp-digits-s1-0123456789abcd"


def _another(value: Any, item: dataclasses.Field[Any]) -> Any:
    """A legal value other than ``value``; None where there is none."""
    rule = item.metadata
    if rule["choices"]:
        return next((choice for choice in rule["choices"] if choice != value), None)
    if isinstance(value, bool):
        return not value
    if item.name in FORMATS:
        return "fp8"
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, list):
        return (
            [*value[:-1], _another(value[-1], item)]
            if value
            else [3 if item.name == "checkpoint_at" else "fc = supersgd"]
        )  # as long as before: another list may go with it
    larger = value + 1 if isinstance(value, int) else value + 0.0625
    if rule["high"] is None or larger <= rule["high"]:
        return larger
    return value - 1 if isinstance(value, int) else value / 2


def test_identity_changes_with_what_can_change_a_result() -> None:
    wrong = [f"{choice} {name}" for choice, name, item in SETTINGS if not _identity_is_right(choice, name, item)]
    assert not wrong and len(SETTINGS) > 500


def _identity_is_right(choice: dict[str, Any], name: str, item: dataclasses.Field[Any]) -> bool:
    """Whether the identity changes with another value of the setting just where that can change a result."""
    base = {"measure.every": 7, **choice}  # legal with either trajectory
    config = resolving.resolve(base)
    section, _, short = name.rpartition(".")
    if item.metadata["read_if"]:
        other, needed = needed_by(item)
        base[f"{section}.{other}"] = needed
        config = resolving.resolve(base)
    value = (config[section] if section else config)[short]
    other = _another(value, item)
    if other is None:
        return True  # a setting of one choice
    moved = resolving.resolve({**base, name: other})
    return (run_identity.identity(moved) != run_identity.identity(config)) == (item.metadata["identity"] is not False)


def test_only_these_settings_change_no_result() -> None:
    free = {name for _, name, item in SETTINGS if not item.metadata["identity"]}
    files = {"data_dir", "run_dir", "data.download", "data.verify"}
    assert free == {
        "log_every",
        "checkpoint_every",
        "checkpoint_at",
        "device",
        "exchange.timeout_s",
        "tensors.histogram_every",
        "log.csv",
        *files,
    }


@pytest.mark.slow
def test_experiments_that_are_named_already_keep_their_names() -> None:
    """Every line of pjobs/ ends with the identity that its settings had when it was written."""
    lines = [
        line
        for path in sorted(ROOT.glob("pjobs/*.sh"))
        for line in path.read_text().splitlines()
        if line.startswith("run ")
    ]
    assert len(lines) > 100
    for line in lines:
        config = resolving.resolve(command_line.parse_overrides(shlex.split(line)[1:]))
        assert config["run_dir"].endswith(f"-{run_identity.identity(config)}"), line


def test_a_setting_counts_unless_default_where_it_is_younger_than_names() -> None:
    younger = {name for _, name, item in SETTINGS if isinstance(item.metadata["identity"], Unless)}
    exchange = {"exchange.collective", "exchange.second_bits", "exchange.num_aggregate", *ROUNDS}
    task = {
        "layers",
        "method.scope",
        "method.scale",
        "data.cutout",
        "data.decode",
        "data.limit",
        "label_smoothing",
        "method.rounding",
        "method.objective",
        "fork.run",
        "fork.at",
    }
    task |= {"method.levels", "method.zeros", "method.coding", "schedule.warmup_steps", "schedule.warmup_factor"}
    optim = {f"optim.{name}" for name in ("decay_norms", "clip_norm", "clip_value", "scale_lr")}
    model = {"model.weights_file", "model.zero_init"}
    feedback = {f"feedback.{name}" for name in ("kind", "both", "decay", "masking", "clip_norm", "clip_value")}
    compute = {f"compute.{name}" for name in ("precision", "compile", "channels_last", "cuda_graphs", "accumulate")}
    tensors = {f"tensors.{name}" for name in (*FORMATS, "master", "inference", "min_size")}
    assert younger == compute | exchange | feedback | model | optim | task | tensors
    config = resolving.resolve({"exchange.timeout_s": 5.0})
    assert "exchange" not in run_identity.result_settings(config)
    older = {key: value for key, value in config.items() if key != "exchange"}
    assert run_identity.identity(older) == run_identity.identity(config) == run_identity.identity(resolving.resolve({}))
    chosen = run_identity.result_settings(
        resolving.resolve({"exchange.collective": "server", "exchange.second_bits": 4})
    )
    assert chosen["exchange"] == {"collective": "server"}
    with pytest.raises(KeyError):  # which every configuration has
        run_identity.identity({key: value for key, value in config.items() if key != "measure"})


def test_groups_change_the_identity() -> None:
    seen = {run_identity.identity(resolving.resolve({group: name})) for group, name in CHOICES}
    # Each group's default is the same experiment; choices that share a schema must still differ.
    assert len(seen) == len(CHOICES) - len(args.GROUPS) + 1


@given(experiment=experiments(), order=st.randoms(use_true_random=False))
def test_identity_is_of_the_resolved_experiment(experiment: dict[str, Any], order: Any) -> None:
    config = resolving.resolve(experiment)
    shuffled = list(experiment.items())
    order.shuffle(shuffled)
    assert run_identity.identity(resolving.resolve(dict(shuffled))) == run_identity.identity(config)
    # every default spelled out is the same experiment
    explicit = {group: config[group]["name"] for group in args.GROUPS}
    for key, value in config.items():
        if isinstance(value, dict):
            explicit |= {f"{key}.{name}": part for name, part in value.items() if name != "name"}
        else:
            explicit[key] = value
    assert run_identity.identity(resolving.resolve(explicit)) == run_identity.identity(config)
    assert re.fullmatch(r"[0-9a-f]{14}", run_identity.identity(config))  # 56 bits


def test_run_name_is_readable_and_safe() -> None:
    config = resolving.resolve({"method": "alq_n", "method.bits": 4, "model": "resnet8", "data": "cifar10", "seed": 12})
    assert run_identity.run_name(config) == f"alq_n-4b-resnet8-cifar10-s12-{run_identity.identity(config)}"
    assert run_identity.run_name(resolving.resolve({"method": "sgd"})).startswith("sgd-cnn-digits-s1-")


@pytest.mark.parametrize("method", ["alq", "qsgdinf", "trn", "natural"])
def test_a_default_that_moved_is_another_experiment_and_older_runs_keep_their_names(method: str) -> None:
    def named(**settings: Any) -> str:
        return run_identity.identity(resolving.resolve({"method": method, **settings}))

    today = resolving.resolve({"method": method})
    older = {**today, "method": {key: value for key, value in today["method"].items() if key != "rounding"}}
    assert today["method"]["rounding"] == "correlated"
    assert run_identity.identity(older) == named(**{"method.rounding": "stochastic"}) != named()
    assert resolving.resolve(sections.as_set(older))["method"]["rounding"] == "stochastic"


@pytest.mark.parametrize(
    ("folder", "same"),
    [
        (f"runs/main/{NAME}", [f"/home/a/b/runs/main/{NAME}", f"../runs/main/{NAME}", f"runs/b/../main/{NAME}/"]),
        ("runs/left", ["/runs/old/runs/left", "../../runs/left"]),
        (NAME, [f"/data/{NAME}", f"../{NAME}"]),
    ],
)
def test_a_fork_is_known_by_the_run_that_it_left_wherever_that_lies(folder: str, same: list[str]) -> None:
    def config(run: str) -> dict[str, Any]:
        return resolving.resolve({"fork.run": run, "fork.at": 3})

    assert run_identity.result_settings(config(folder))["fork"] == {"run": folder, "at": 3}
    assert {run_identity.identity(config(run)) for run in same} == {run_identity.identity(config(folder))}
    assert run_identity.identity(config("left")) != run_identity.identity(config("/data/left"))


def test_with_dither_workers_round_by_themselves_and_names_stay() -> None:
    dithered = {"method": "qsgdinf", "method.dither": "subtractive"}
    config = resolving.resolve(dithered)
    assert config["method"]["rounding"] == "stochastic"
    assert "rounding" not in run_identity.result_settings(config)["method"]
    with pytest.raises(ValueError, match=r"method.rounding='correlated': has no effect with method.dither"):
        resolving.resolve({**dithered, "method.rounding": "correlated"})


def test_a_composed_configuration_means_what_was_given() -> None:
    """Hydra fills a user's file with defaults, which are no choice: with dither workers round by themselves."""
    dithered = {"method": "qsgdinf", "method.dither": "subtractive", "workers": 2}
    config = resolving.resolve(dithered)
    composed = {**config, "method": {**config["method"], "rounding": "correlated"}}
    assert resolving.of_composed(composed) == resolving.of_composed(config) == config
