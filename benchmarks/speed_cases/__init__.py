"""What ``benchmarks.speed`` measures: a module for each subject, whose ``figures`` takes the options of its cases.

A figure that has a baseline is measured in turns with it (``benchmarks.timing``) in one process or in processes that
wait for each other, and its ratio is taken turn by turn.  May import everything.
"""
