"""Measured claims: ``python -m benchmarks.NAME``; rivals in the same run, the last line one JSON object."""
