"""Derivation of the states of runs from evidence: files and scheduler in, the ledger of what was submitted, ``judge``.

This room may import ``grid.engine.slurm`` and the rooms below it.
"""
