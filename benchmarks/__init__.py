"""Benchmarks of the claims: ``python -m benchmarks.NAME`` runs the baselines too, and ends with one JSON object.

They may import everything; nothing but the tests imports them.
"""
