"""The speed of the library, the trainer, the orchestrator and the analysis: ``python -m benchmarks.speed CASE``.

Every case prints a table, with medians and quartiles, and one JSON object in the last line.  ``--help`` lists the
cases, and after a case its options; a case's module says how it measures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option of a case: its default, whose type its values have, and its help; many: it takes several values."""

    default: Any
    help: str
    type: type | None = None
    choices: tuple[str, ...] | None = None
    many: bool = False


@dataclass(frozen=True)
class Case:
    """A module of ``benchmarks.speed_cases``, one of its functions, the question and the options."""

    module: str
    about: str
    options: dict[str, Option] = field(default_factory=dict)
    function: str = "figures"


_THREADS = Option(1, "CPU threads; of 1 its own time counts, else wall time")
_TRAINING = {
    "--model": Option(["resnet8", "resnet32", "gpt"], "models that take CIFAR's images, and gpt", many=True),
    "--workers": Option(4, "workers, all in this process"),
    "--batch": Option(128, "images per worker and step; fewer show more of what a step costs beside its passes"),
    "--threads": _THREADS,
    "--seconds": Option(20.0, "of pairs, for each model and method"),
    "--device": Option("cpu", "where the model is", choices=("cpu", "cuda")),
    "--data": Option(None, "in place of cifar10, or of text for gpt", type=str),
    "--settings": Option([], "more of the trainer's, such as compute.precision=bf16", many=True),
}
CASES = {
    "quantize": Case(
        "quantize",
        "encode, decode and rotation against Tensor.copy_",
        {
            "--size": Option(1 << 25, "coordinates"),
            "--repeats": Option(15, "timed calls of each operation"),
            "--device": Option(None, "fractions of its bandwidth alone", type=str, choices=("cuda", "cpu")),
        },
    ),
    "levels": Case("levels", "updates and optima of levels", {"--turns": Option(15, "repetitions")}),
    "sampling": Case(
        "training", "the statistics behind an update", {"--turns": Option(15, "repetitions")}, function="sampling"
    ),
    "rates": Case(
        "rates",
        "the rates behind the cost model",
        {
            "--out": Option(None, "write the profile here; a validation that it holds is dropped", type=Path),
            "--about": Option("one core a worker, gloo over TCP", "what was measured, in words"),
        },
    ),
    "train": Case("training", "the trainer's step beside a bare loop's", _TRAINING),
    "train_options": Case(
        "training",
        "settings of compute and threads beside the defaults",
        {name: option for name, option in _TRAINING.items() if name not in ("--device", "--data", "--settings")},
        function="options",
    ),
    "data": Case(
        "data",
        "the input beside torchvision's",
        {"--turns": Option(15, "repetitions"), "--images": Option(50_000, "small pictures")},
    ),
    "memory": Case(
        "memory",
        "memory of training with packed activations",
        {
            "--model": Option("cifar_resnet18", "one that takes CIFAR's images, or gpt"),
            "--batch": Option(256, "images of a step, or a GPT's windows of 64 characters"),
            "--rounds": Option(8, "timed steps of each variant, at least 2; one more warms up"),
            "--threads": Option(os.cpu_count() or 1, "CPU threads"),
            "--formats": Option(
                ["fp32", "smaq", "smaq zeros=coded", "bf16", "fp8"], "of activations; fp32 is among them", many=True
            ),
        },
    ),
    "grid": Case("grid", "the commands of the sweeps", {"--turns": Option(5, "repetitions of each timing")}),
    "analysis": Case(
        "analysis",
        "reading 2,000 runs against TensorBoard's reader",
        {
            "--runs": Option(2000, "runs in the sweep"),
            "--steps": Option(1000, "steps that a run logs"),
            "--turns": Option(3, "repetitions"),
            "--sample": Option(20, "runs that TensorBoard reads in each turn"),
            "--folder": Option(None, "where the sweep is made and deleted again", type=Path),
        },
    ),
}


def parser() -> argparse.ArgumentParser:
    """The command line, which imports nothing of what is measured."""
    whole = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=(__doc__ or "").splitlines()[0])
    cases = whole.add_subparsers(dest="case", metavar="CASE", required=True)
    for name, case in CASES.items():
        own = cases.add_parser(name, help=case.about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        for flag, option in case.options.items():
            one = option.default[0] if option.many and option.default else option.default
            kind = option.type or (str if option.many else type(one))
            more: dict[str, Any] = {"nargs": "*"} if option.many else {}
            own.add_argument(flag, type=kind, default=option.default, choices=option.choices, help=option.help, **more)
    return whole


def main(words: Sequence[str] | None = None) -> int:
    """Run a case; returns 2, after one sentence, where its options do not make one."""
    chosen = vars(parser().parse_args(words))
    case = CASES[chosen.pop("case")]
    module = importlib.import_module(f"benchmarks.speed_cases.{case.module}")
    try:
        figures = getattr(module, case.function)(**chosen)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(figures, default=float))
    return 0


if __name__ == "__main__":
    sys.exit(main())
