"""The named sweeps, one file per family and one function per run name; ``grid.engine`` turns them into job scripts.

A family may import ``grid.engine.sweep``, ``nuq.registry`` and other families.
"""
