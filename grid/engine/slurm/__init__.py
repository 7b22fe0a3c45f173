"""SLURM: profiles of clusters, the sbatch text, and the questions asked of the scheduler.  Nothing else knows SLURM.

This room may import ``grid.engine.scripts``, ``grid.engine.sweeps``, ``files`` and submitit.
"""
