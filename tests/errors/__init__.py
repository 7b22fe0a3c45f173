"""Every error that a user can see, made by the input that causes it; ``sentences.txt`` holds what they say.

A room's tables are modules named after it (``nuq_levels``, ``grid_plan``), each with ``ROWS``; ``INTERNAL`` names the
raises that no input of a user reaches, with the reason in a word, and ``HELD`` those that need ranks, real processes or
rare faults, with the test that makes them.  ``python -m tests.errors`` writes the file again; its diff is the review.
"""
