"""The parts of the sketching methods: clusters and cells (CASQ), min-max tables (SketchML).

May import ``nuq.kernels`` and ``nuq.native``.
"""
