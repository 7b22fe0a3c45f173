"""Training with large tensors (weights, activations, moments, gradients) in a compressed format, of any model.

May import ``nuq.compressors`` and the rooms below it; knows nothing of ``nuq.exchange``.
"""
