"""The way from settings to experiments: points and how they combine, sweeps, files and command lines that hold them.

This room may import ``args``, ``settings``, ``files``, ``nuq.registry``, ``nuq.settings`` and, for families, ``grid``.
"""
