"""The machinery and the detailed groups of settings behind ``args.py``, which shows the tree of a whole experiment.

Groups: data, models, optimizers, text, runs, the resources of a job.  Machinery: resolving, identity, the command
line.  The settings of methods are ``nuq.settings``.

This room may import ``nuq.registry``, ``nuq.settings`` and hydra; it imports no torch.
"""
