"""The steps of a run: gradients, optimizer and learning rate (``optim``), measurements, and the loop around them.

This room may import ``train.process``, ``train.logs``, ``train.data``, ``train.models``, ``args`` and ``nuq``.
"""
