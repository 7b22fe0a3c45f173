"""What can be measured and kept, by name: the commands of benchmarks, and sweeps whose result tables are kept."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Benchmark:
    """A command whose last line is one JSON object, the figures.

    about: the question, in one sentence; minutes: a guess how long it takes on two cores; needs: what not every machine
    has; pictures: a page's picture, and the file that the command draws in its place.
    """

    command: str
    about: str
    minutes: float
    needs: tuple[str, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> tuple[str, ...]:
        """All commands, the last of which prints the figures."""
        return (self.command,)


@dataclass(frozen=True)
class Sweep:
    """A sweep that runs on this machine, or goes on where kept runs end; the figures are the rows of its table.

    seeds: a count or a list, as ``grid_run.py`` takes it; folder: its runs are below ``runs/FOLDER``, or below another
    one's, if they are kept there; the rest as of a benchmark.
    """

    family: str
    name: str
    seeds: int | str
    about: str
    minutes: float
    folder: str
    needs: tuple[str, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    runs: str = "runs"

    @property
    def num_seeds(self) -> int:
        """The runs of every experiment."""
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds.split(","))

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that run it, draw its figures where a page shows one, and print the table."""
        of = self.folder if self.runs == "runs" else f"{self.folder} --runs {self.runs}"
        only = " ".join(Path(drawn).stem for drawn in self.pictures.values())
        figures = (f"python -m analysis figures {of} --only {only} --width page",) if self.pictures else ()
        run = f"python grid_run.py run {self.family} {self.name} --seeds {self.seeds}"
        return (run, *figures, f"python -m analysis table {of} --json")


CIFAR10, ROOT_USER, TENSORBOARD = "CIFAR-10", "root", "tensorboard"
_IS_THERE: dict[str, Callable[[Path], bool]] = {
    # else some benchmarks measure a stand-in for the images
    CIFAR10: lambda root: any(
        (Path(place) / "cifar10").is_dir() for place in (root / "data", os.environ.get("NUQ_DATA", ""))
    ),
    ROOT_USER: lambda root: os.geteuid() == 0,  # for network namespaces
    TENSORBOARD: lambda root: importlib.util.find_spec("tensorboard") is not None,
}


def missing(measurement: Benchmark | Sweep, root: Path) -> list[str]:
    """What a measurement needs and this machine lacks."""
    return [need for need in measurement.needs if not _IS_THERE[need](root)]


MEASUREMENTS: dict[str, Benchmark | Sweep] = {
    # the orchestrator and the analysis
    "grid": Benchmark("python -m benchmarks.speed grid", "How fast are the commands of the sweeps?", 2),
    "analysis": Benchmark(
        "python -m benchmarks.speed analysis", "How fast are 2,000 runs read?", 2, needs=(TENSORBOARD,)
    ),
    # the library
    "methods": Benchmark(
        "python -m benchmarks.errors methods --threads 1 --quick --out figures/methods",
        "What are error, bits and speed of each method on one real gradient?",
        10,
        needs=(CIFAR10,),
        pictures={"docs/methods.png": "figures/methods/methods_error.png"},
    ),
    "lossless": Benchmark(
        'python -m benchmarks.errors methods --model gpt --threads 1 --methods bf16 "bf16 coding=rans"',
        "How many bits take the very numbers of bfloat16, and how long?",
        2,
    ),
    "quantize": Benchmark(
        "python -m benchmarks.speed quantize", "How fast are encoding and decoding on a processor?", 5
    ),
    "levels": Benchmark("python -m benchmarks.speed levels", "How long do updates of the levels take?", 5),
    "sampling": Benchmark("python -m benchmarks.speed sampling", "What do the statistics behind an update cost?", 5),
    "mean_error": Benchmark("python -m benchmarks.errors mean", "What is the error of the mean?", 30, needs=(CIFAR10,)),
    "mean_levels": Benchmark(
        "python -m benchmarks.errors mean_levels", "What are levels for the mean worth?", 60, needs=(CIFAR10,)
    ),
    "accuracy_per_bit": Benchmark(
        "python -m benchmarks.errors per_bit",
        "Which method has the least error within a given number of bits?",
        60,
        needs=(CIFAR10,),
        pictures={"docs/accuracy_per_bit.png": "figures/accuracy_per_bit/accuracy_per_bit.png"},
    ),
    "rates": Benchmark("python -m benchmarks.speed rates", "What rates does the cost model start from?", 10),
    # training
    "memory": Benchmark("python -m benchmarks.speed memory", "How much memory does quantized training save?", 5),
    "memory_gpt": Benchmark(
        "python -m benchmarks.speed memory --model gpt --batch 128", "How much memory does it save a GPT?", 3
    ),
    "train": Benchmark(
        "python -m benchmarks.speed train", "What does the trainer cost beside a bare loop?", 5, needs=(CIFAR10,)
    ),
    "train_32": Benchmark(
        "python -m benchmarks.speed train --batch 32", "What does it cost with small batches?", 5, needs=(CIFAR10,)
    ),
    "train_options": Benchmark(
        "python -m benchmarks.speed train_options --model resnet8",
        "What do settings of compute gain?",
        5,
        needs=(CIFAR10,),
    ),
    "data": Benchmark("python -m benchmarks.speed data", "How fast is the input?", 5, needs=(CIFAR10,)),
    "wire": Benchmark(
        "python -m benchmarks.links wire --out results/wire/rows.jsonl",
        "How much shorter is a step over a slow link?",
        120,
        needs=(ROOT_USER,),
    ),
    "fsdp": Benchmark(
        "python -m benchmarks.links fsdp --parity",
        "How much shorter is a step of FSDP2 over a slow link, and what does it cost in loss?",
        15,
        needs=(ROOT_USER,),
    ),
    "prediction": Benchmark("python -m benchmarks.links prediction", "How far is the cost model off?", 0.1),
    "advise": Benchmark(
        "python -m benchmarks.links advise", "Does advise find the quickest way?", 20, needs=(ROOT_USER,)
    ),
    "time_to_accuracy": Benchmark(
        "python -m benchmarks.links time_to_accuracy --folder figures/time_to_accuracy",
        "How much sooner is a training over a slow link done?",
        20,
        needs=(ROOT_USER,),
        pictures={"docs/time_to_accuracy.png": "figures/time_to_accuracy/time_to_accuracy.png"},
    ),
    "time_to_accuracy_text": Benchmark(
        "python -m benchmarks.links time_to_accuracy --data text --folder figures/time_to_accuracy",
        "The same for a GPT on text.",
        30,
        needs=(ROOT_USER,),
    ),
    "time_to_accuracy_cifar10": Benchmark(
        "python -m benchmarks.links time_to_accuracy --data cifar10 --seeds 2 --folder figures/time_to_accuracy",
        "The same on CIFAR-10.",
        60,
        needs=(ROOT_USER, CIFAR10),
    ),
    "outer": Benchmark(
        "python -m benchmarks.links outer",
        "Which local steps and which method reach DDP's loss the soonest over which link?",
        40,
        needs=(ROOT_USER,),
    ),
    "whatif": Benchmark(
        "python -m benchmarks.links whatif",
        "How far is a time over a link off that is predicted from one run?",
        12,
        needs=(ROOT_USER,),
    ),
    # sweeps
    "digits": Sweep("demo", "demo", 3, "Does the demo rank the methods as the paper does?", 3, folder="demo"),
    "cifar10_cpu": Sweep(
        "cifar10_cpu",
        "cifar10_cpu",
        3,
        "Are variance and levels the published ones?",
        90,
        "cifar10_cpu",
        needs=(CIFAR10,),
        pictures={"docs/cifar10_cpu.png": "figures/cifar10_cpu/overview.png"},
    ),
    "dgc": Sweep(
        "dgc",
        "cifar10_cpu",
        2,
        "Does DGC keep SuperSGD's accuracy?",
        120,
        "dgc_cifar10_cpu",
        needs=(CIFAR10,),
        runs="results",
    ),
    "atomo": Sweep(
        "atomo",
        "cifar10_cpu",
        2,
        "What is ATOMO worth at equal bytes?",
        90,
        "atomo_cifar10_cpu",
        needs=(CIFAR10,),
        runs="results",
        pictures={"docs/atomo_cifar10_cpu.png": "figures/results/atomo_cifar10_cpu/accuracy-bytes.png"},
    ),
    "layerwise": Sweep(
        "layerwise",
        "cifar10_cpu",
        2,
        "Layer-wise, or the entire model?",
        60,
        "layerwise_cifar10_cpu",
        needs=(CIFAR10,),
        runs="results",
    ),
    "outer_gpt_cpu": Sweep("outer", "gpt_cpu", 3, "How many local steps, by which method?", 60, "outer_gpt_cpu"),
    "smaq": Sweep(
        "smaq",
        "cifar10_cpu",
        2,
        "What does quantized training cost in accuracy?",
        60,
        "smaq_cifar10_cpu",
        needs=(CIFAR10,),
        pictures={"docs/tensor_histograms.png": "figures/smaq_cifar10_cpu/tensor_histograms.png"},
    ),
    "headline": Sweep(  # of ended runs in results/, so that only what is missing is trained
        "headline",
        "cifar10_cpu",
        "2,3,4,5,6",
        "Do the methods, ours and their rivals differ at 1, 2 and 3 bits?",
        400,
        "headline_cifar10_cpu",
        needs=(CIFAR10,),
        pictures={"docs/headline.png": "figures/results/headline_cifar10_cpu/variance_and_loss.png"},
        runs="results",
    ),
    "headline_variance": Benchmark(
        "python -m benchmarks.variance_and_loss", "Does variance predict how training ends?", 1
    ),
}

# Results that stay, by the last commit that has the program which measured them.
ENDED = {"allreduce_error": "e6a9e8ee", "exchange": "14445c50", "repeat": "404b24ad"}


def chosen(name: str) -> Benchmark | Sweep:
    """The measurement of a name; ValueError, with the legal names, where there is none."""
    if name not in MEASUREMENTS:
        raise ValueError(f"{name!r}: must be one of {', '.join(sorted(MEASUREMENTS))}")
    return MEASUREMENTS[name]
