"""The process of a run: its folder, status, signals, checkpoints, memory, terminal, and the rendezvous of ranks.

This room may import ``files``, ``nuq``, ``settings``, ``args`` and yaml.
"""
