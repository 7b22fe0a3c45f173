"""The cost of the adaptive methods' statistics and level updates in a training step: ``python -m benchmarks.sampling``.

In the ten steps before an update every worker's gradient goes into a histogram (``fit=histogram``), or its buckets'
moments do (``mixture``).  They are timed with one thread, in turns with whole training steps of the same trainer:
medians over the turns, and the quartiles of their ratios.  The step is that of the in-process simulation of four
workers, on tensors of CIFAR-10's shape.
"""

from __future__ import annotations

import json
import statistics

import torch

from benchmarks.timing import in_turns, seconds, spread
from settings import resolving
from train.steps.trainer import Trainer

TURNS = 15
MODELS = {
    "resnet8, batch 16": ("resnet8", 16),
    "resnet8, batch 64": ("resnet8", 64),
    "resnet20, batch 32": ("resnet20", 32),
}


def trainer_of(model: str, batch_size: int, fit: str) -> Trainer:
    """A trainer of four workers of ALQ at the paper's bucket size, with no update of their own accord."""
    method = {"method": "alq", "method.fit": fit, "method.update_at": [], "method.update_every": 0}
    config = resolving.resolve(
        {
            **method,
            "data": "cifar10",
            "stand_in": True,
            "model": model,
            "batch_size": batch_size,
            "workers": 4,
            "seed": 1,
        }
    )
    return Trainer(config, device=torch.device("cpu"))


def measure(model: str, batch_size: int, fit: str) -> dict[str, float]:
    """The medians in ms, and the cost of one sampled step as a fraction of the step."""
    trainer = trainer_of(model, batch_size, fit)
    hosted = {worker: trainer.gradient(worker, 0, trainer.order, "train")[0] for worker in trainer.trained.hosted}
    measures = {
        "step_ms": lambda: seconds(trainer.train_step),
        "sample_ms": lambda: statistics.median(seconds(lambda: trainer.workers.observe(hosted, 0)) for _ in range(5)),
        "update_ms": lambda: seconds(trainer.workers.update_levels),
    }
    times = in_turns(measures, TURNS, warm_up=2)
    fraction, low, high = spread(times["sample_ms"], times["step_ms"])
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return {**medians, "fraction": fraction, "low": low, "high": high}


def main() -> None:
    """Print the table, then one JSON object."""
    torch.set_num_threads(1)
    figures: dict[str, dict[str, float]] = {}
    print(f"{'':20} {'fit':10} {'step ms':>9} {'sample ms':>10} {'of a step':>10} {'quartiles':>16} {'update ms':>10}")
    for title, (model, batch_size) in MODELS.items():
        for fit in ("histogram", "mixture"):
            row = figures[f"{title}, {fit}"] = measure(model, batch_size, fit)
            spread = f"{100 * row['low']:.2f} - {100 * row['high']:.2f} %"
            times = f"{row['step_ms']:9.1f} {row['sample_ms']:10.2f} {100 * row['fraction']:8.2f} %"
            print(f"{title:20} {fit:10} {times} {spread:>16} {row['update_ms']:10.1f}")
    worst = max(row["fraction"] for name, row in figures.items() if name.endswith("histogram"))
    print(json.dumps({"sampling_fraction_of_step": round(worst, 5), "figures": figures}))


if __name__ == "__main__":
    main()
