"""Runs on this machine: its slots, its cores and GPUs, and the progress that a person sees.

This room may import ``grid.engine.states`` and the rooms below it.
"""
