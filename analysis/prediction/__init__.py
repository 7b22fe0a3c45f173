"""The command ``predict``: questions to the cost model (``nuq.prediction``) and to runs, rates as a file, errors.

May import ``analysis.plots``, the modules of ``analysis``, ``args``, ``files``, ``nuq.prediction``, ``nuq.registry``,
and ``nuq.settings``.
"""
