"""Lossless coding of codes (Huffman, rANS), of sorted indices, and of blocks of fixed-point words.

May import ``nuq.kernels``, ``nuq.native`` and ``nuq.errors``.
"""
