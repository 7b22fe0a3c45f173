"""The panels and figures themselves, and the style of how they look.

May import ``analysis.logs``, the modules of ``analysis`` and ``nuq.registry``.
"""
