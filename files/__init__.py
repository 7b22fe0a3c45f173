"""Careful reading, atomic writing and escaping of files that other people or processes may touch.

This room imports the standard library and PyYAML alone.
"""
