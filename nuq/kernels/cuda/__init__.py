"""The operators on a GPU, as Triton kernels: the bits of ``nuq.kernels.reference``, at memory speed.

``operators`` holds the operators (host side: shapes, launches, errors), ``encode``, ``decode`` and ``rotate`` their
device code; ``smaq_operators`` and ``smaq`` are the same of ``nuq.kernels.smaq``, ``rans_operators`` and ``rans`` of
``nuq.coding.entropy``.  ``pieces`` is device code that they
share, ``launch`` what every launch needs, ``tiles`` which part of a vector one program takes.  Triton is imported at
the first call, never by ``import nuq``; where it is missing, the reference runs on the GPU, after one warning.

The same bits need three things: every launch switches off the fusing of multiply-adds (``tiles.OPTIONS``), divisions
and roots are the correctly rounded ones, and sums follow the tree of the specification.
``tests/nuq/kernels/test_cuda*.py`` compare Triton's interpreter with the reference, and read the PTX for sm_80 and
sm_90; neither needs a GPU.

May import ``nuq.kernels`` (not its operators, which dispatch to this room) and Triton.
"""
