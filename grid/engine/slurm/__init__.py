"""SLURM, which nothing else knows: profiles of clusters, sbatch scripts and submission, questions to the scheduler.

This room may import ``grid.engine.scripts``, ``grid.engine.sweeps``, ``files`` and submitit.
"""
