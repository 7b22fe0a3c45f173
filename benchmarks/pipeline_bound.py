"""The least time of a step whose gradients travel while the backward pass goes on, whatever compresses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Buckets = Sequence[tuple[float, int]]  # when a bucket's gradients are all there (seconds of the step), its coordinates


def of_all_ranks(buckets: Iterable[Buckets]) -> list[tuple[float, int]]:
    """The buckets as they can be exchanged: when the last rank has the gradients of each."""
    return [(max(there for there, _ in ranks), ranks[0][1]) for ranks in zip(*buckets, strict=True)]


def bound_s(buckets: Buckets, compute_s: float, num_bytes: float, mbit: float) -> float:
    """The seconds of a step that sends each bucket once its gradients are there and the bucket before is sent.

    What follows the last gradient, the optimizer's update above all, also follows the last bucket.  compute_s: of a
    step that sends nothing; num_bytes: that a rank sends in a step, of which each bucket has the share of its
    coordinates; mbit: bandwidth in Mbit/s.  Encoding, decoding and latency take no time.
    """
    total_s, total = num_bytes * 8 / (mbit * 1e6), sum(size for _, size in buckets)
    sent = 0.0
    for there, size in buckets:
        sent = max(sent, there) + total_s * size / total
    return sent + compute_s - buckets[-1][0]
