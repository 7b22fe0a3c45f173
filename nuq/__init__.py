"""Gradient compression for data-parallel SGD: QSGD, NUQSGD, TernGrad, ALQ, AMQ, measured in bytes that travel.

``nuq.registry`` holds the table of methods and imports no torch; levels, distributions and adapt are NumPy; the rest is
PyTorch::

    from nuq.registry import METHODS
    from nuq.ops import Key
    from nuq.message import parse

    method = METHODS["alq"]
    compressor = method.load()(method.settings(bits=3, bucket_size=8192))
    data = compressor.encode(gradient, Key(seed=1, step=0, worker=0, parameter="model")).to_bytes()
    restored = compressor.decode(parse(data))
"""
