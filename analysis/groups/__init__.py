"""Which runs belong together, by their settings and never by their names, and what a group says: means and intervals.

May import ``analysis.logs``, ``analysis.restyled``, ``nuq.registry`` and ``nuq.settings``; no plots.
"""
