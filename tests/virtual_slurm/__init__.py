"""A SLURM in virtual time: scheduler, clock, files and processes in this process, driven by one seed.

``cluster`` is the controller and its nodes, ``answers`` what its commands print, ``processes`` the scripts of jobs as
generators, ``real`` the same scripts run by bash.  ``claims`` are what a real SLURM does too, and ``histories`` what
users and clusters do at random.
"""
