"""Every setting of one experiment: dataclasses, each default with its reason.  Imports no torch.

Here are the settings of the experiment itself and the groups and sections that the others lie in, each in its file of
``settings/``.  ``settings.resolving`` turns a few settings into the full, checked configuration, for the orchestrator
as for ``main.py``; ``settings.command_line`` hands the same dataclasses to Hydra, for what ``--cfg`` shows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from nuq.registry import METHODS
from nuq.settings import setting
from nuq.settings.feedback import Feedback
from nuq.settings.plugins import NAMED, SettingsOf
from nuq.settings.quantized_training import QuantizedTraining
from settings.data import DATA
from settings.fork import Fork
from settings.models import MODELS
from settings.optim import OPTIMIZERS, SCHEDULES
from settings.run import Compute, Exchange, Logging, Measure, Untrain

GROUPS: dict[str, Mapping[str, type]] = {
    "method": SettingsOf(METHODS),
    "data": SettingsOf(DATA),
    "model": SettingsOf(MODELS),
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
        "method: train with the method's gradient; sgd: train with one worker's full-precision gradient and only "
        "measure the method",
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
        "layers with a method of their own, by the first match in a list: 'layers=[\"*conv1* = topk "
        'ratio=0.01","*norm* = supersgd"]\'; '
        "globs that are held against parameters' names and the modules that they lie in; the others take method",
        identity="unless default",
    )
    plugins: list[str] = setting(
        [],
        "packages of your own that method, data set and model come from, each with its version (my_package==1.2): "
        "filled in by itself, so that a run is of one version; those that are given, as in job scripts, are imported",
        identity="unless default",
        pattern=NAMED,
    )
    compute: Compute = field(default_factory=Compute)
    measure: Measure = field(default_factory=Measure)
    exchange: Exchange = field(default_factory=Exchange)
    feedback: Feedback = field(default_factory=Feedback)
    untrain: Untrain = field(default_factory=Untrain)
    fork: Fork = field(default_factory=Fork)
    tensors: QuantizedTraining = field(default_factory=QuantizedTraining)
    log: Logging = field(default_factory=Logging)
    eval_every: int = setting(
        200,
        "evaluate every so many steps, and at the end (the paper: 2000); 0: never, for mode=evaluate beside it",
        low=0,
    )
    eval_train: bool = setting(True, "evaluate on the training set too (the paper's training loss)")
    eval_batch_size: int = setting(1000, "samples per evaluation pass", low=1)
    log_every: int = setting(20, "write loss, rate and traffic every so many steps", low=1, identity=False)
    checkpoint_every: int = setting(500, "save everything every so many steps, and at the end", low=1, identity=False)
    checkpoint_at: list[int] = setting(
        [],
        "also save at these steps, each to a file that stays: checkpoint-STEP.pt, which forks go on from",
        low=1,
        identity=False,
    )
    threads: int = setting(
        1,
        "CPU threads of one process (and OMP_NUM_THREADS, if unset): 1 in slots side by side, never more than cores, "
        "which made a step 1.6 times as long; more than 1 gives other last bits, so results are compared at 1",
        low=1,
    )
    device: str = setting(
        "auto", "auto: CUDA where there is one, else CPU", choices=("auto", "cpu", "cuda"), identity=False
    )
    data_dir: str = setting(
        os.environ.get("NUQ_DATA", "data"), "folder of the data sets; NUQ_DATA changes the default", identity=False
    )
    run_dir: str = setting("", "where the run is kept; empty: runs/main/<name>-<identity>", identity=False)
    stand_in: bool = setting(False, "marked random tensors of the data set's shape in place of its files (dry runs)")


DEFAULTS = {"method": "alq", "data": "digits", "model": "cnn", "optim": "sgd", "schedule": "constant"}
SECTIONS: dict[str, type] = {
    "compute": Compute,
    "exchange": Exchange,
    "feedback": Feedback,
    "fork": Fork,
    "log": Logging,
    "measure": Measure,
    "untrain": Untrain,
    "tensors": QuantizedTraining,
}
