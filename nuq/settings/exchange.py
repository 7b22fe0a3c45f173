"""Settings of the exchange: collectives, and what the DDP hook does beside them."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting

SHARD = 1 << 19  # coordinates of a shard, at least, where a vector is long enough for several rounds of two stages


@dataclass
class Exchange:
    """The way in which the workers' messages become one mean."""

    collective: str = setting(
        "gather",
        "gather: every message to every process; two_stage: shards to their owners, whose means are encoded again, "
        "less to send from three workers on; server: to worker 0, who answers all; hierarchical: dense inside a "
        "machine, messages between machines; auto: the fewest bytes whose mean errs at most 1.5 times as much as "
        "gather's with rounding=stochastic.  PowerSGD averages factors by the first two, each of which then gives the "
        "same bits",
        choices=("auto", "gather", "two_stage", "server", "hierarchical"),
        identity="unless default",
    )
    second_bits: int = setting(
        4,
        "bits of the means that are encoded again; their error is not divided by the number of workers, so more than "
        "bits; auto takes more where its bound on the error asks for it",
        low=1,
        high=8,
        identity="unless default",
        read_if=("collective", ("two_stage", "server", "hierarchical", "auto")),
    )
    num_aggregate: int = setting(
        0,
        "the server averages the first so many messages of a step to arrive, as ATOMO's does (0: all)",
        low=0,
        high=2**16,
        identity="unless default",
        read_if=("collective", "server"),
    )


@dataclass
class HookExchange(Exchange):
    """Settings of the DDP hook's exchange, which may choose its collective by itself."""

    collective: str = setting(
        "auto",
        "auto: the fewest bytes whose mean errs at most 1.5 times as much as gather's with rounding=stochastic; "
        "gather, two_stage, server, hierarchical: as in main.py; dense: bfloat16 by the backend's own all-reduce",
        choices=("auto", "gather", "two_stage", "server", "hierarchical", "dense"),
    )


@dataclass
class Hook:
    """Settings of the DDP hook beside its method and its collective."""

    min_size: int = setting(
        1024,
        "tensors of fewer coordinates travel in full precision, for headers and norms eat the savings (not where "
        "momentum is corrected; bf16 and fp16 cast them, too, unless a memory is around them)",
        low=0,
    )
    skip_1d: bool = setting(
        False,
        "true: biases and norms' parameters travel in full precision, whatever their size (not where momentum is "
        "corrected, but by dgc)",
    )
    gate: bool = setting(
        False, "true: an early step measures whether compressing is faster here than bfloat16, which is used if not"
    )
    per_machine: int = setting(
        0, "hierarchical: ranks of one machine, in contiguous blocks (0: as torchrun says)", low=0
    )
    on_non_finite: str = setting(
        "raise",
        "raise: a gradient that is not finite ends the step on all ranks, by name; propagate: the mean becomes NaN, "
        "for a gradient scaler to skip the step",
        choices=("raise", "propagate"),
    )
    seed: int = setting(0, "seed of the roundings", low=0, high=2**63 - 1)
    timeout_s: float | None = setting(
        None,
        "seconds to wait for a rank before it counts as lost; None: the process group's own timeout",
        low=0.1,
        high=1e9,
    )
    debug: bool = setting(False, "true: every step compares the levels and the means of all ranks by checksum")
