"""The compressed all-reduces, one file each: how messages become the mean, with the same bits on all ranks::

    gather      every worker's message to every rank, decoded in worker order
                one rank sends (M - 1) b
    two_stage   shard c of every message to worker c, who decodes, averages and encodes it again for all
                one rank sends (M - 1) / M (b + b2)
    server      every message to rank 0, who averages the first K to arrive and answers in b2 bits
                one rank sends b; rank 0 sends (M - 1) b2
                (``parameter_server`` takes them as they arrive)
    hierarchical  the ranks of a machine add in full precision, one of the above works between machines

with M workers, one per rank, b and b2 the bytes of a whole message in the first and the second encoding.  The error of
two stages is (w1 / M) R + w2 (1 + (w1 / M) R) of the mean's squared norm, with w1, w2 the two encodings' relative
variances and R = mean |x_i|^2 / |mean x|^2: the second one is not divided by M, so it deserves more bits.

A method may bring a collective of its own: PowerSGD's averages factors instead of messages
(``nuq.exchange.collectives.powersgd``).

A process may host several workers (``WorkerPlacement``), all of them in a simulation: the bits of ``gather`` and
``two_stage``, and of ``server`` with K = M, do not depend on the split.

May import ``nuq.exchange`` but for what chooses and drives a collective, and the rooms below it.
"""
