"""The text of job scripts, and the snapshot of the code that they run.

This room may import ``grid.engine.sweeps`` and ``files``.
"""
