"""Training with large tensors (weights, activations, moments, gradients) in a compressed format.

It works with any model and optimizer.

May import ``nuq.compressors`` and the rooms below it; knows nothing of ``nuq.exchange``.
"""
