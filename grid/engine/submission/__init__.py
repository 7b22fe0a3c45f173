"""Submission of a sweep to the queue: plans, checks before it, rehearsal, waves and retries.

May import ``grid.engine.states`` and the rooms below it.
"""
