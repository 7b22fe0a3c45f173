"""Level sets and what they are fitted to: distributions, histograms, the objective, solvers and update rules.

NumPy in float64.  May import ``nuq.settings`` and ``nuq.native``; imports no torch.
"""
