"""Runs on this machine: its slots, its cores and GPUs, and what a person sees of them.

May import ``grid.engine.states`` and the rooms below it.
"""
