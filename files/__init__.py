"""Files that others may have written, and words of theirs: read with care, written so that no reader sees half of one.

This room imports the standard library and PyYAML alone.
"""
