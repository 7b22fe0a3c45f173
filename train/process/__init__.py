"""The process of a run: its folder, status, signals, checkpoints, memory and terminal, and how ranks meet.

May import ``files``, ``nuq`` and ``args``.
"""
