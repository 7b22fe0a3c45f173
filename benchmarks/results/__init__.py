"""Results as files: what is measured under which name, the files of ``results/``, and the text that pages make of them.

``python -m benchmarks.record`` writes the files and ``python -m benchmarks.pages`` the pages.  This room may import
``files`` and ``benchmarks.gpu.machine``; torch and the kernels are asked in processes of their own, so that none of it
stays in memory while something is measured.
"""
