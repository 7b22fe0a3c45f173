"""What sketches of many values are made of: clusters, cells, and min-max tables.

May import ``nuq.kernels`` and ``nuq.native``.
"""
