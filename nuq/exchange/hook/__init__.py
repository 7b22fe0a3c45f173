"""What the DDP hook (``nuq.ddp``) needs beside the driver: settings, buckets, their thread, the gate, saved states.

May import ``nuq.exchange`` and what it may import.
"""
