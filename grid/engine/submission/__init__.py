"""Submission of a sweep to the queue: plans, checks before it, rehearsal, waves and retries.

This room may import ``grid.engine.states`` and the rooms below it.
"""
