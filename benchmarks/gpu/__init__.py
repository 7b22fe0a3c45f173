"""What to measure where a GPU is at hand for half an hour, on a bare machine without a network.

Nothing of it needs ``make setup``.

1. Anywhere with a network: ``benchmarks/gpu/prepare`` collects the wheels that such a machine lacks into ``wheels/``
   (it says how large).
2. Take the checkout and ``wheels/`` there and call ``make gpu``, which is ``benchmarks/gpu/run``: its Python, torch
   and Triton are used as they are; ``PYTHON=... benchmarks/gpu/run`` takes another one. Results are in ``$OUT``, else
   in ``results/gpu``: ``STEP.json`` and ``STEP.log`` as soon as a step has ended, ``all.json`` with everything so
   far.
3. Less time, or a machine that stops commands: ``benchmarks/gpu/run bits quantize --minutes 9``; the steps are listed
   by ``--help``.
4. Few files may come back: ``--pack`` leaves two, ``all.json`` and ``logs.tar.gz``.
5. Without a GPU: ``benchmarks/gpu/run --rehearse`` runs every step in small, on the CPU and in Triton's interpreter
   (so does ``.ci/run``).

``steps`` is the table, ``run`` the program that goes through it, ``processes`` the limits that it holds its steps to;
``bits``, ``ranks``, ``gradients`` and ``paper`` are steps of their own, the others are ``benchmarks.quantize``,
``benchmarks.methods`` and ``benchmarks.train``.
"""
