"""The settings of an experiment behind ``args.py``: data, models, optimizers, sentences, passes, the exchange, and the
command line.

May import ``nuq.registry`` and ``nuq.settings``, omegaconf and hydra; imports no torch.
"""
