"""The operators on every coordinate (encode, decode, rotate, select, sum), as PyTorch reference, C++ and Triton.

``spec`` says what the bits are and imports none of the others.  May import ``nuq.levels``, ``nuq.native`` and
``nuq.errors``.
"""
