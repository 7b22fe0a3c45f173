"""The subcommands of grid_run.py: each reads its words, calls ``grid.engine`` and prints.

This room may import every room of ``grid.engine``, ``files`` and PyYAML.
"""
