"""Results as files: what is measured under which name, the files of ``results/``, and the text that pages make of them.

``python -m benchmarks.record`` writes the files and ``python -m benchmarks.pages`` the pages.  This room may import
``files``, ``nuq.native`` and ``benchmarks.gpu.machine``, so that it stands without torch.
"""
