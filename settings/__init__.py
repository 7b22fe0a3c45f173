"""The settings of an experiment behind ``args.py``.

They are those of data, models, optimizers, sentences, passes and the exchange; the command line is here, too.

This room may import ``nuq.registry`` and ``nuq.settings``, omegaconf and hydra; it imports no torch.
"""
