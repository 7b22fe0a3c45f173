"""The process of a run: its folder, status, signals, checkpoints, memory and terminal, and the meeting of ranks.

May import ``files``, ``nuq`` and ``args``.
"""
