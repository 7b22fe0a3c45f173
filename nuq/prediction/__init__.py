"""The cost model: step times on more workers and other links than were measured.

Imports no torch.  May import ``nuq.registry`` and ``nuq.settings``.
"""
