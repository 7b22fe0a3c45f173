"""The logs of a sweep as tables of pandas, after `make demo` or any run of a sweep.

python examples/read_results.py [SWEEP]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the analysis is a folder of the checkout
from analysis.logs.load import load, sweeps

RUNS = Path("runs")

if len(sys.argv) < 2:
    sys.exit(f"which sweep? There are {', '.join(sweeps(RUNS)) or 'none yet: make demo'}")
logs = load(RUNS, sys.argv[1])
# status, settings: a row a run; scalars: a row a run, tag and step
print(logs.status[["state", "step", "seconds"]].head())
losses = logs.of_tag("Vloss")  # steps down, runs across
final = logs.settings[["method.name", "method.bits"]].assign(loss=losses.ffill().iloc[-1])
print(final.groupby(["method.name", "method.bits"], dropna=False)["loss"].agg(["mean", "std", "count"]))
for note in logs.notes:
    print(note)
