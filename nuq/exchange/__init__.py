"""The exchange of gradients between ranks: transport, flat layout, payloads, level updates, and collectives.

May import every room of ``nuq`` but ``quantized_training``.
"""
