"""Lossless coding: codes by Huffman and rANS, sorted indices, blocks of fixed-point words, and planes of short floats.

Each coder is dispatched here (``entropy``), in C++ (``nuq/native/src``), and in NumPy or PyTorch (``*_reference``);
for a GPU's codes and indices there are ``entropy_device`` and ``index_coding_device``.

May import ``nuq.kernels``, ``nuq.native`` and ``nuq.errors``.
"""
