"""The errors of methods: ``python -m benchmarks.errors CASE``.

A case measures contenders, which are methods with settings written as ``"alq bits=3"`` (``contenders``), on sources,
which are draws of distributions or recorded gradients (``gradients``). What it measures is the error of a message, of
the mean of several workers' messages, or of levels before and after a fit.

It may import all of ``nuq``, ``settings`` and ``train``.
"""
