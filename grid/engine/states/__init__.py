"""Derivation of states from evidence: a run's files, what was submitted, what the scheduler says, and the verdict.

May import ``grid.engine.slurm`` and the rooms below it.
"""
