"""Training: one run of one experiment, from its settings to its exit code.

The modules here start runs; the rooms below are what a run is made of.  This room may import ``args``, ``settings``,
``files`` and ``nuq``.
"""
