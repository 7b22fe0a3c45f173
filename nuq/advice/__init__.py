"""The command ``python -m nuq advise``: what compression would bring to a training script, measured and predicted.

May import everything of ``nuq``; nothing of ``nuq`` imports it.
"""
