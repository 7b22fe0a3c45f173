"""The exchange of gradients: transport, agreement of the ranks, the flat layout, payloads, level updates, and the
collectives.

May import every room of ``nuq`` but ``quantized_training``.
"""
