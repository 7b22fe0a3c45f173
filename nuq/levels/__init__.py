"""Level sets, the distributions that they are fitted to, the objective, solvers and update rules.

NumPy in float64.  May import ``nuq.settings`` and ``nuq.native``; imports no torch.
"""
