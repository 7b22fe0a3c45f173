"""Measurements for half an hour with a GPU, on a bare machine without network or ``make setup``.

1. Anywhere with a network: ``benchmarks/gpu/prepare`` collects the wheels that such a machine lacks, and the pictures
   of CIFAR-10 where they are there, into ``wheels/`` (it says how large), which git ignores: take it along by hand.
2. Take the checkout and ``wheels/`` there and call ``make gpu``, which is ``benchmarks/gpu/run``: its Python, torch and
   Triton are used as they are, and its torchvision, without which the step ``train`` fails; ``PYTHON=...
   benchmarks/gpu/run`` takes another Python. A package that is there in a version outside the bounds of
   ``pyproject.toml`` is replaced for the steps, except torch, Triton and NumPy. Results are in ``$OUT``, else in
   ``results/gpu``: ``STEP.json`` after each command of a step, ``STEP.log`` as it goes, ``all.json`` with everything so
   far.
3. Less time, or a machine that stops commands: ``benchmarks/gpu/run bits quantize --minutes 9``; the steps are listed
   by ``--help``. ``all.json`` keeps the steps of earlier calls under ``earlier``.
4. Few files may come back: ``--pack`` leaves two, ``all.json`` and ``logs.tar.gz``.
5. Without a GPU: ``benchmarks/gpu/run --rehearse`` runs every step in small, on the CPU and in Triton's interpreter
   (so does ``.ci/run``).

``steps`` is the table, ``run`` the program that goes through it, ``one_step`` the record of a step, ``processes`` the
limits that its commands are held to, ``machine``, ``wheels`` and ``data`` what is there and what is brought;
``compile_kernels``, ``bits``, ``unit_tests``, ``ranks``, ``gradients``, ``paper`` and ``train_in_small`` are commands
of steps, the others are ``benchmarks.speed quantize``, ``benchmarks.methods`` and ``benchmarks.speed train``. ``run``
and what it imports need the standard library alone: they install the rest.
"""
