"""The engine of the grid: from sweeps to experiments, to job scripts, to states of runs.

Its rooms stand on each other in this order: sweeps, scripts, slurm, states, then submission and local.
"""
