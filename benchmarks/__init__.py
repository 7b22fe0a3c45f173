"""Benchmarks of the claims: ``python -m benchmarks.NAME`` runs rivals too and ends with a line of one JSON object.

They may import everything; nothing but the tests imports them.
"""
