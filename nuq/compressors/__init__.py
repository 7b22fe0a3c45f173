"""The compression methods, one file per method (or family), over one interface: ``nuq.compressors.compressor``.

May import ``nuq.coding`` and the rooms below it.  Adaptive methods have more than the interface: see
``nuq.compressors.quantized.AdaptiveQuantizer``.
"""
