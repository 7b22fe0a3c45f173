"""The log of a run, and the event file that it is written to.

May import ``train.process`` and ``args``.
"""
