"""Sweeps -> experiments -> job scripts -> states."""
