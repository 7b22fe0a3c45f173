"""The process of a run: its folder, status, signals, checkpoints, memory and terminal, and the meeting of ranks.

This room may import ``files``, ``nuq`` and ``args``.
"""
