"""The cost model: step times on more workers and other links than were measured.

May import ``analysis.plots``, the modules of ``analysis``, ``files``, ``nuq.registry`` and ``nuq.settings``.
"""
