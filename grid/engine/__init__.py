"""The engine of the grid: from sweeps to experiments, to job scripts, to states of runs."""
