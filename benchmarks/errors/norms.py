"""The errors of adaptive methods under different norms of their buckets.

Gradients of four workers are recorded early, in the middle and late in runs without compression.  Levels are fitted to
two workers' gradients, and the error ``|x - C(x)|^2 / |x|^2`` is that of the two others', through the bytes:

- fresh: at the same step, which is what an update is worth at once;
- later: at the next moment's, which is what it is worth until the next update;
- unfitted: of the levels that a method has before any update.

Buckets of so many coordinates cut the whole gradient (scope=model); ``tensor`` is one vector per parameter in buckets
of 8192, as in the DDP hook. ``mean`` is the geometric mean over cases, runs and moments; ``worst`` is the largest
ratio to the best norm of the same case, and ``best`` the share of cases in which the norm is best.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.errors import gradients
from benchmarks.errors.contenders import built, relative_error
from benchmarks.errors.gradients import Gradients
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.registry import METHODS

NORMS = ("l2", "linf", "quantile")
BITS = (2, 3, 4, 5, 6, 7, 8)
BUCKETS = (256, 1024, 4096, 16384, "tensor")
ADAPTIVE = [name for name, entry in METHODS.items() if entry.adaptive]
KINDS: tuple[str, ...] = ("fresh", "later", "unfitted")
Errors = dict[str, list[float]]  # by kind, of all runs and moments


def errors_of(text: str, by_tensor: bool, source: Gradients) -> Errors:
    """The errors of a contender by kind, over the moments of a run."""

    def vectors(gradient: Tensor) -> list[Tensor]:
        parts = source.parts(gradient).values()
        return [part.reshape(-1) for part in parts] if by_tensor else [gradient]

    made: AdaptiveQuantizer = built(text)
    half = len(source.moments[0]) // 2

    def error(moment: Sequence[Tensor]) -> float:
        of_workers = []
        for worker, gradient in enumerate(moment[half:]):
            messages = [
                made.encode(vector, Key(1, 0, worker, str(number))).to_bytes()
                for number, vector in enumerate(vectors(gradient))
            ]
            decoded = torch.cat([made.decode(parse(message)) for message in messages])
            of_workers.append(relative_error(decoded, gradient))
        return statistics.mean(of_workers)

    found: Errors = {"fresh": [], "later": [], "unfitted": [error(moment) for moment in source.moments]}
    for number, moment in enumerate(source.moments):
        learned = [
            (vector, Key(2, number, worker, str(name)))
            for worker, gradient in enumerate(moment[:half])
            for name, vector in enumerate(vectors(gradient))
        ]
        made.update(made.observed(learned))
        found["fresh"].append(error(moment))
        found["later"] += [error(after) for after in source.moments[number + 1 : number + 2]]
    return found


def summary(cases: Sequence[Mapping[str, Errors]]) -> dict[str, dict[str, dict[str, float]]]:
    """A summary by norm and kind; cases: errors by norm, each of one number of bits and one bucket."""
    found: dict[str, dict[str, dict[str, float]]] = {norm: {} for norm in NORMS}
    for norm, kind in itertools.product(NORMS, KINDS):
        values = [value for of in cases for value in of[norm][kind]]
        least = [min(one) for of in cases for one in zip(*(of[other][kind] for other in NORMS), strict=True)]
        ratios = [value / smallest for value, smallest in zip(values, least, strict=True)]
        best = sum(ratio == 1.0 for ratio in ratios) / len(ratios)
        found[norm][kind] = {"mean": statistics.geometric_mean(values), "worst": max(ratios), "best": best}
    return found


def options(parser: argparse.ArgumentParser) -> None:
    methods = ["alq", "alq_n", "amq", "amq_n"]
    parser.add_argument("--methods", nargs="+", default=methods, choices=ADAPTIVE, metavar="METHOD")
    parser.add_argument("--bits", nargs="+", type=int, default=list(BITS), choices=BITS, metavar="BITS")
    parser.add_argument("--runs", nargs="+", default=gradients.APART, choices=gradients.APART, metavar="RUN")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    there = gradients.available(chosen.runs)
    found = {}
    for name in chosen.methods:
        cases = []
        for bits, bucket in itertools.product(chosen.bits, BUCKETS):
            text = f"{name} bits={bits} bucket_size={8192 if bucket == 'tensor' else bucket}"
            of: dict[str, Errors] = {norm: {kind: [] for kind in KINDS} for norm in NORMS}
            for norm, title in itertools.product(NORMS, there):
                errors = errors_of(f"{text} norm={norm}", bucket == "tensor", gradients.source(title))
                for kind in KINDS:
                    of[norm][kind] += errors[kind]
            cases.append(of)
            means = [f"{norm} {statistics.geometric_mean(of[norm]['fresh']):.2g}" for norm in NORMS]
            print(f"{text}, error at once after an update: {', '.join(means)}", flush=True)
        found[name] = summary(cases)
    return {"runs": there, "missing": [title for title in chosen.runs if title not in there], "methods": found}
