"""What a run logs, and the event file that it is written to.

May import ``train.process`` and ``args``.
"""
