"""A SLURM in virtual time: scheduler, clock, files and processes in this process, driven by one seed.

``controller`` has the queue, the nodes and their files, ``answers`` what SLURM's commands print, ``processes`` and
``scripted`` the scripts of jobs as generators, ``real`` the same scripts run by bash; ``cluster`` is all of it, as
tests use it.  ``claims`` are what a real SLURM does too.  ``histories`` are what users and clusters do at random,
``promises`` what holds all the same, and ``faults`` what must break them.  Imports the product and ``tests.grid.fake``.
"""
