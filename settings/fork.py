"""Forks: runs that go on from a checkpoint of another run.  Imports no torch.

The random numbers and minibatches of a run are functions of seed and step, so a fork and the run that it left differ in
nothing but the settings that were changed: what comes of these is seen without the noise between two trainings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import setting
from settings.sections import dotted

# what the state and the minibatches of a run are made of; of optim and exchange one setting each
KEPT = ("data", "model", "seed", "workers", "batch_size", "trajectory", "compute", "tensors", "stand_in")
KEPT_OF = ("optim.name", "exchange.local_steps", "exchange.fragments", "exchange.overlap")
_OF_METHOD = ("method", "layers", "feedback", "exchange")  # what a method remembers is made of these
_NOT_OF_METHOD = ("outer_lr", "outer_momentum", "nesterov", "mixing", "timeout_s")  # settings of exchange


@dataclass
class Fork:
    """The checkpoint that a run goes on from.  ``main.py fork=FOLDER at=STEP`` takes all other settings of that run."""

    run: str = setting("", "folder of the run that this one leaves (empty: none)", identity="unless default")
    at: int = setting(
        0,
        "step of the checkpoint there: one of its checkpoint_at, its last, or the one before",
        low=0,
        identity="unless default",
    )


def check_fork(config: Mapping[str, Any]) -> None:
    """Raise ValueError where step and folder, or kept checkpoints and steps, do not go together."""
    run, at, steps = config["fork"]["run"], config["fork"]["at"], config["steps"]
    if at and not run:
        raise ValueError(f"fork.at={at}: is a step of the run in fork.run, which is empty")
    if run and not 1 <= at < steps:
        raise ValueError(f"fork.at={at}: must be from 1 to {steps - 1}, below steps={steps}")
    if late := [step for step in config["checkpoint_at"] if step > steps]:
        raise ValueError(f"checkpoint_at={list(config['checkpoint_at'])}: {late[0]} is above steps={steps}")


def check_alike(config: Mapping[str, Any], parent: Mapping[str, Any]) -> None:
    """Raise ValueError where a fork differs from the run that it leaves in what it must keep; both configurations."""
    theirs = _kept(parent)
    for name, value in _kept(config).items():
        if theirs.get(name) != value:
            raise ValueError(
                f"fork.run={config['fork']['run']}: {name}={value!r}, where that run has {theirs.get(name)!r}; a fork "
                f"keeps {', '.join((*KEPT, *KEPT_OF))}"
            )


def same_method(config: Mapping[str, Any], parent: Mapping[str, Any]) -> bool:
    """Whether what the parent's method remembers is a fork's, too."""
    return _of_method(config) == _of_method(parent)


def _kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of KEPT and KEPT_OF, by dotted names."""
    flat = dotted(config)
    return {name: value for name, value in flat.items() if name.split(".")[0] in KEPT or name in KEPT_OF}


def _of_method(config: Mapping[str, Any]) -> dict[str, Any]:
    parts = {name: config[name] for name in _OF_METHOD}
    return parts | {"exchange": {key: value for key, value in parts["exchange"].items() if key not in _NOT_OF_METHOD}}
