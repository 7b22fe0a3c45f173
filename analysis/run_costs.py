"""The costs of a run's steps for one worker with a machine of its own, from the run's logs.

A process that hosts several workers (the simulation) takes turns with them, so that its seconds are theirs together.
The time over a link (``analysis.axes``, ``analysis.prediction``) starts from these costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.groups.tensor_formats import FULL_PRECISION
from analysis.logs.load import Logs
from nuq.registry import METHODS

RING, POWER, ALONE = "ring", "power", "alone"  # beside the collectives of exchange.collective
KNOWN = ("gather", "two_stage", "server")  # the collectives whose costs follow from a run's logs


@dataclass(frozen=True)
class RunCosts:
    """The costs of one run; workers asked of a method may be others than the run's.

    collective: one of KNOWN, ``ring`` for full precision and bf16 (as DDP sums them, whatever the run did), ``power``
    for PowerSGD's factors, ``alone`` for a method that exchanges nothing.  workers: M; hosted: how many of them a
    process of the run hosts; every: H, the steps of a round; fragments: of the model, sent apart in it.  compute_s: of
    one worker's step without its exchange.  encode_s, decode_s: of a round, in a process of the run.  means: the share
    of the bytes in ``comm/bytes`` that are means, encoded again.  updates: steps, and the seconds of all updates of
    levels up to them in a process of the run.
    """

    collective: str
    workers: int
    hosted: int
    every: int
    fragments: int
    compute_s: float
    encode_s: float
    decode_s: float
    means: float
    updates: tuple[np.ndarray, np.ndarray]

    def update_s(self, step: np.ndarray) -> np.ndarray:
        """Seconds of the updates of levels up to these steps."""
        return np.asarray(np.interp(step, *self.updates, left=0.0)) / self.hosted

    def codec_s(self, workers: int) -> float:
        """Seconds of encoding and decoding in an exchange of so many workers.

        Of M workers, h of them in a process, gather encodes h messages and decodes M there.  Two stages encode h
        messages and h / M of a mean, and decode h shards' messages and all means; one worker of w then encodes
        1 + 1 / w and decodes two vectors.  A server encodes and decodes one vector more than gather, its mean.
        """
        encode, decode = 1 / self.hosted, 1.0
        if self.collective == "gather":
            decode = workers / self.workers
        elif self.collective == "two_stage":
            encode = (1 + 1 / workers) / (self.hosted * (1 + 1 / self.workers))
            decode = 2 / (self.hosted + 1)
        elif self.collective == "server":
            encode, decode = 2 / (self.hosted + 1), (workers + 1) / (self.workers + 1)
        return encode * self.encode_s + decode * self.decode_s

    def copies(self, workers: int) -> float:
        """Bytes through the busiest link for each byte of ``comm/bytes``, with so many workers.

        Each message goes to every other worker; a ring sends 2 (w - 1) / w of the vector.  In two stages a worker sends
        (w - 1) / w of its message and of a vector of means, of which its own part, 1 / M, counts in ``comm/bytes``.
        """
        if self.collective == ALONE:
            return 0.0
        if self.collective in (RING, POWER):
            return 2 * (workers - 1) / workers
        if self.collective == "two_stage":
            return (1 - self.means + self.means * self.workers) * (workers - 1) / workers
        return workers - 1.0

    def rounds(self, workers: int) -> int:
        """Messages that wait for each other in an exchange of so many workers."""
        return {ALONE: 0, RING: 2 * (workers - 1), POWER: 4, "gather": 1}.get(self.collective, 2)


def costs(logs: Logs) -> dict[str, RunCosts]:
    """The costs of the runs that have logged times.

    compute_s is the same for all, the median over these runs, as they do the same passes: of a run, the median of
    ``time/step_s`` without encoding, wire, decoding and updates of levels, over the workers of a process.  Where these
    share one model, the step of the optimizer (``time/optimizer_s``) is not divided among them.  Runs on SGD's
    trajectory, whose steps have one worker's gradient, do not count in it; without others there are no costs.
    """
    runs = list(logs.settings.index)
    step = logs.of_tag("time/step_s").index.to_numpy(float)
    timed = [
        logs.of_tag(f"time/{what}_s").reindex(index=step, columns=runs).to_numpy(float)
        for what in ("step", "encode", "wire", "decode", "update", "optimizer")
    ]
    several = logs.of_tag("comm/network_bytes").columns
    means = _share_of_means(logs, runs)
    computed: list[float] = []
    found: dict[str, RunCosts] = {}
    for number, (run, settings) in enumerate(logs.settings.to_dict("index").items()):
        there = np.isfinite(timed[0][:, number])
        alone = settings["method.name"] in METHODS and METHODS[settings["method.name"]].single_worker
        workers = 1 if alone else settings.get("workers", np.nan)
        if not there.any() or not np.isfinite(workers):
            continue
        hosted = 1 if run in several else int(workers)
        total, encode, wire, decode, updated, optimizer = (np.nan_to_num(values[there, number]) for values in timed)
        update = np.diff(updated, prepend=0.0) / np.maximum(np.diff(step[there], prepend=0.0), 1.0)
        passes = (total - encode - wire - decode - update - optimizer) / hosted
        if settings.get("trajectory") != "sgd":
            computed.append(float(np.median(passes + optimizer)))
        every = _whole(settings.get("exchange.local_steps"), 1)
        found[run] = RunCosts(
            ALONE if alone else _collective(settings, has_means=means[run] > 0),
            int(workers),
            hosted,
            every,
            _whole(settings.get("exchange.fragments"), 1) if every > 1 else 1,
            np.nan,
            every * float(encode.mean()),
            every * float(decode.mean()),
            means[run],
            (step[there], updated),
        )
    return {run: replace(own, compute_s=float(np.median(computed))) for run, own in found.items() if computed}


def _whole(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int | float) and np.isfinite(value) else default


def _share_of_means(logs: Logs, runs: Sequence[str]) -> dict[str, float]:
    """The share of means in what each run's first worker encoded."""
    means, every = (
        logs.of_tag(f"comm/{name}bits_per_coordinate").reindex(columns=runs).mean() for name in ("means_", "")
    )
    return (means / every).fillna(0.0).to_dict()


def _collective(settings: Mapping[str, Any], *, has_means: bool) -> str:
    """The collective of a run's costs; what ``auto`` chose is told by the means."""
    method, asked = settings["method.name"], settings.get("exchange.collective", "gather")
    if method in FULL_PRECISION or (method == "bf16" and settings.get("method.coding") != "rans"):
        return RING
    if asked in ("auto", "two_stage") and method in METHODS and METHODS[method].collective == POWER:
        return POWER
    if asked == "auto":
        return "two_stage" if has_means else "gather"
    return asked if isinstance(asked, str) else "gather"  # runs of other systems
