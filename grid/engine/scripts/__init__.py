"""The text of job scripts, and the snapshot of the code that they run.

May import ``grid.engine.sweeps`` and ``files``.
"""
