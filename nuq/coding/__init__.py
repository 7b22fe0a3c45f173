"""Lossless coding of integers and numbers: Huffman and rANS, positions of coordinates, blocks of base and deltas,
finite floats.

May import ``nuq.kernels``, ``nuq.native`` and ``nuq.errors``.
"""
