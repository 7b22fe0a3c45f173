"""The log of a run, and the event file that it is written to.

This room may import ``train.process``, ``settings`` and ``args``.
"""
