"""The library in other environments: other versions of Python, torch and Triton, an installed wheel, no compiler.

``python -m tests.versions`` runs the matrix of ``rows.py`` (by hand: it downloads several GB a row);
``python -m tests.versions.wheel`` is the short check for every submission.  Both test the *installed* library: the
tests are copied to a folder that has no ``nuq`` of its own.
"""
