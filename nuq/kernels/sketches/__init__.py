"""The parts of sketches of many values: clusters, cells, and min-max tables.

May import ``nuq.kernels`` and ``nuq.native``.
"""
