"""An experiment as words for main.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import args
from grid.engine.sweeps.experiments import Experiment
from settings import run_identity
from settings.overrides import to_override
from settings.sections import as_set


def pinned(experiment: Experiment, run_dir: str) -> list[str]:
    """Overrides that state every setting that can change a result, so that a default moved later changes nothing.

    Settings that cannot change a result appear only where the sweep sets them: ``NUQ_DATA`` and the like stay in force.
    """
    result = as_set(run_identity.result_settings(experiment.config))
    return _overrides({**experiment.settings, **result, "run_dir": run_dir})


def chosen(experiment: Experiment, run_dir: str) -> list[str]:
    """Overrides that state only what the sweep sets: shorter, and true as long as the defaults stay."""
    return _overrides({**experiment.settings, "run_dir": run_dir})


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    """The overrides with groups first and run_dir last."""
    groups = [name for name in args.GROUPS if name in settings]
    others = [name for name in settings if name not in args.GROUPS and name != "run_dir"]
    return [to_override(name, settings[name]) for name in [*groups, *others, "run_dir"]]
