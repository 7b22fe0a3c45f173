"""The steps of a run: gradients, the exchange, the optimizer, measurements beside them, and the loop around it all.

This room may import ``train.process``, ``train.logs``, ``train.data``, ``train.models``, ``args`` and ``nuq``.
"""
