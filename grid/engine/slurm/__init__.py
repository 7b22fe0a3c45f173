"""All that knows SLURM: profiles of clusters, sbatch scripts, submission by sbatch, questions to the scheduler.

This room may import ``grid.engine.scripts``, ``grid.engine.sweeps``, ``files``, ``nuq.settings`` and submitit.
"""
