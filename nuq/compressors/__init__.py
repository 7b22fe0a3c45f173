"""The compression methods, one file per method or family, over the interface of ``nuq.compressors.compressor``.

Families: ``quantized`` (QSGD, NUQSGD, TernGrad, ALQ, AMQ; they round by ``quantizer``), ``sparse`` (top-k, random-k,
thresholds, DGC), ``signs``, ``casts``, ``blockwise``.  The table ``nuq.registry.METHODS`` has the file of each method.
``message`` and ``frame`` are the bytes that travel.

May import ``nuq.coding`` and the rooms below it.  Adaptive methods have more than the interface: see
``nuq.compressors.quantized.AdaptiveQuantizer``.
"""
