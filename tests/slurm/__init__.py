"""A real SLURM, started for the tests alone and taken down after them: see cluster.py."""
