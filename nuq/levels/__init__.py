"""Level sets, distributions, the objective, solvers (``solver_exact``: the default), update rules (ALQ, AMQ).

NumPy in float64.  May import ``nuq.settings`` and ``nuq.native``; imports no torch.
"""
