"""A small SLURM without root, daemons of the system or a network: see README.md beside this file."""
