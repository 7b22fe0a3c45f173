"""Tables of results, and published ones beside them.

May import ``analysis.logs``, the modules of ``analysis``, ``files``, ``nuq.registry`` and ``nuq.settings``; no plots.
"""
