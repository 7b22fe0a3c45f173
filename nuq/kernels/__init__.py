"""What is computed on every coordinate: the operators and their dispatch, the reference in PyTorch, and the kernels
beside it.

``spec`` says what the bits are and imports none of the others.  May import ``nuq.levels``, ``nuq.native`` and
``nuq.errors``.
"""
