"""Careful reading, atomic writing and escaping of files that other people or processes may touch; words on a terminal.

This room imports the standard library, PyYAML and, when a shell asks, argcomplete alone.
"""
