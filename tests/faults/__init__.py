"""Real runs, killed at random moments: ``python -m tests.faults`` (``make fault-test``); no part of ``make test``."""
