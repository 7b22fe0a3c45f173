"""Training with large tensors in a compressed format: weights, activations, moments and gradients of any model and
optimizer.

May import ``nuq.compressors`` and the rooms below it; knows nothing of ``nuq.exchange``.
"""
