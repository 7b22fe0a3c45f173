"""The way from settings to experiments: points and how they combine, sweeps, the families that hold them.

This room may import ``args``, ``settings``, ``nuq.registry``, ``nuq.settings`` and, to find families, ``grid``.
"""
