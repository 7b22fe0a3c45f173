"""Readers that turn event files into tables: reading, merging, caching, and the runs of other systems.

May import ``args``, ``settings`` and ``files``.
"""
