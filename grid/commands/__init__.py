"""The subcommands of grid_run.py: each reads its words, calls ``grid.engine`` and prints."""
