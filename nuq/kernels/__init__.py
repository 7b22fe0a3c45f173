"""The computations on every coordinate: the operators, their reference in PyTorch, and their kernels.

``spec`` says what the bits are and imports none of the others.  May import ``nuq.levels``, ``nuq.native`` and
``nuq.errors``.
"""
