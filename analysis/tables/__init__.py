"""Tables of results, and published ones beside them.

May import ``analysis.logs`` and the modules of ``analysis``, no plots.
"""
