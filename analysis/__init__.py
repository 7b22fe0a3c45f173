"""Figures, tables and reports from the logs of runs.

May import ``args``, ``settings``, ``files``, ``grid`` and the part of ``nuq`` without torch.
"""
