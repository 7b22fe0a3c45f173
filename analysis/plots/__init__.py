"""The figures and their style: ``curves`` (variance, loss, accuracy), levels, histograms, accuracy against bits.

May import ``analysis.logs``, the modules of ``analysis`` and ``nuq.registry``.
"""
