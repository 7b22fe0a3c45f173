"""The command ``predict``: questions to the cost model (``nuq.prediction``), its rates as a file, its errors.

May import ``analysis.plots``, the modules of ``analysis``, ``files``, ``nuq.prediction``, ``nuq.registry``, and
``nuq.settings``.
"""
