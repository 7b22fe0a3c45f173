"""Derivation of states from evidence: a run's files, what was submitted, what the scheduler says, and the verdict.

This room may import ``grid.engine.slurm`` and the rooms below it.
"""
