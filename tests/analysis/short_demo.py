"""``python -m tests.analysis.short_demo FOLDER``: a part of the sweep `demo`, shortened, really trained into
FOLDER/runs/demo.

In one process, one run after the other: starting Python and torch takes longer than such a run.
"""

import sys
from pathlib import Path

from grid.engine.states.runs import named
from train.launch import launch

METHODS = ("supersgd", "qsgd", "alq", "amq_n")
SEEDS = 2
STEPS = 48
SHORTER = [
    f"steps={STEPS}",
    "schedule.at=[36]",
    "eval_every=16",
    "measure.every=16",
    "measure.num_samples=3",
    "log_every=8",
]


def main(folder: Path) -> int:
    """The first exit code that is not 0."""
    _, experiments = named("demo", "demo", str(SEEDS), SHORTER)
    for experiment in experiments:
        if experiment.config["method"]["name"] in METHODS:
            place = folder / "runs" / experiment.folder / experiment.name
            if code := launch({**experiment.config, "run_dir": str(place)}):
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
