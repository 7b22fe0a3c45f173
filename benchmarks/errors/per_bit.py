"""The error of every unbiased method against the bits that it really takes, of a message and of the mean of several.

The error of a message is vNMSE = ``E |decoded - x|^2 / |x|^2``. That of the mean of M workers is ``M |mean of decoded
- mean of x_i|^2`` over the mean of ``|x_i|^2``, the vNMSE of a message if errors are unbiased and independent: what
lies below it was cancelled. The bits per coordinate are ``8 * length of the messages / number of coordinates``, so
header, levels, scales, codes and coder tables all count.

Every unbiased method takes part with every choice of rotation, dither, coding (packed and rANS; Huffman lies between
them), norm and form that it has, in buckets of 8192, of 256 and as one bucket. A method's error at a rate is the
least error that it reaches at that rate or less. Between two rates of one choice of options, log vNMSE is
interpolated; ECDQ, whose step is free, is tuned to the wanted total instead. A choice whose rates all lie below
stands with the least error that it has. Interpolating EDEN is generous, because nothing sends the rates between.
Sampling errors are some tenths of a percent; those of the means, of four draws, are larger.

The sum at a shared scale shows what adding integers inside the network takes (in the manner of THC, NSDI 2024, without
its clipping and its table of levels).  Its bits are those that a worker sends; the sum comes back with ``log2 M`` more.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.errors import gradients
from benchmarks.errors.contenders import relative_error
from benchmarks.errors.curves import (
    WHOLE,
    Curves,
    Family,
    Point,
    best,
    build,
    curves_of,
    error_of_mean,
    families,
    family,
    rate_setting,
)
from benchmarks.errors.gradients import Gradients
from nuq.kernels.operators import hadamard_
from nuq.kernels.spec import Key
from nuq.registry import METHODS

RATES, RATES_OF_MEAN, WORKERS = (2, 3, 4), (1, 2, 3, 4), (2, 4, 8, 16)
DRAWS = 4  # of a mean
NUM_DRAWS = 32  # of the test of unbiasedness
NUM_PROCESSES = 2
PUBLISHED_EDEN = (0.5708, 0.1331, 0.0358, 0.0096)
CONTESTS: dict[str, Callable[[Family], bool]] = {
    "eden_packed": lambda one: one.is_eden and one.settings["coding"] == "packed",
    "eden_lloyd_max": lambda one: one.is_eden and one.settings.get("levels") != "uniform",
    "eden_uniform": lambda one: one.settings.get("levels") == "uniform",
    "packed": lambda one: not one.is_eden and one.settings["coding"] == "packed",
    "dithered": lambda one: one.settings.get("dither") == "subtractive",
    "adaptive": lambda one: METHODS[one.method].adaptive,
    "unrotated": lambda one: one.settings.get("rotation") == "none",
    "others": lambda one: not one.is_eden,
    "all": lambda one: True,
}
OF_MEAN = [
    *map(family, ("drive coding=packed", "eden coding=packed")),
    *(
        family(f"{text} bucket_size={WHOLE}")
        for text in (
            "eden coding=rans levels=uniform",
            "ecdq coding=rans rounding=stochastic dither=subtractive rotation=hadamard",
            "ecdq coding=rans rounding=stochastic dither=subtractive",
            "ecdq coding=rans rounding=correlated dither=none rotation=hadamard",
            "ecdq coding=rans rounding=correlated dither=none",
            "qsgdinf coding=rans rounding=stochastic form=magnitude",
            "qsgdinf coding=rans rounding=correlated form=magnitude",
        )
    ),
    *(
        family(text)
        for text in (
            "qsgdinf coding=packed rounding=stochastic rotation=hadamard",
            "qsgdinf coding=packed rounding=correlated rotation=hadamard",
            "alq coding=packed rounding=stochastic norm=linf",
            "alq coding=packed rounding=correlated norm=linf",
            "alq coding=packed rounding=correlated norm=linf objective=mean",
            "optimal coding=packed rounding=stochastic norm=linf rotation=hadamard",
            "optimal coding=packed rounding=correlated norm=linf rotation=hadamard",
            "optimal coding=packed rounding=correlated norm=linf objective=mean rotation=hadamard",
        )
    ),
]
SHARED_SCALE = Family("qsgdinf", (("sum", "at a shared scale"),))


def shared_scale(vectors: Sequence[Tensor], bits: int) -> Point:
    """The sum of integers on ``2^bits`` uniform levels of one scale per 8192 coordinates, the workers' largest."""
    generator, errors, top, n = torch.Generator().manual_seed(3), [], 2**bits - 1, vectors[0].numel()
    for step in range(DRAWS):
        key = Key(4, step, 0, "rotation")
        rotated = torch.zeros(len(vectors), -(-n // 8192) * 8192)
        rotated[:, :n] = torch.stack(list(vectors))
        for row in rotated:
            hadamard_(row, 1024, key)
        scales = rotated.view(len(vectors), -1, 8192).abs().amax(dim=(0, 2)).clamp_min(1e-30).repeat_interleave(8192)
        places = (rotated / scales + 1) * (top / 2)
        codes = (places + torch.rand(places.shape, generator=generator)).floor().clamp(0, top)
        decoded = (codes * (2 / top) - 1) * scales
        for row in decoded:
            hadamard_(row, 1024, key, inverse=True)
        errors.append(error_of_mean(list(decoded[:, :n]), vectors))
    return Point(bits + 32 / 8192, statistics.fmean(errors), bits)


def largest_bias(source: Gradients) -> float:
    """The largest bias of every method and choice of options, on 4096 coordinates.

    It is ``T |mean_T - x|^2`` less what independent errors give, in standard deviations of it; T = NUM_DRAWS.
    """
    x, worst = source.measure[0][:4096], -math.inf
    for one in {each.without_coding(): each for each in families()}.values():
        values = rate_setting(one)[1]
        made = build(one, values[len(values) // 2], source)
        draws = [made.decode(made.encode(x, Key(1, step, 0, "model"))) - x for step in range(NUM_DRAWS)]
        errors = torch.stack(draws).double()
        each = errors.square().mean(dim=0)
        excess = NUM_DRAWS * errors.mean(dim=0).square().sum() - each.sum()
        worst = max(worst, float(excess / (2 * each.square().sum()).sqrt().clamp_min(1e-300)))
    return worst


def eden_errors(source: Gradients, repeats: int = 4) -> list[float]:
    """The vNMSE of EDEN at 1 to 4 index bits, over several rotations: to some tenths of a percent."""
    x, found = source.measure[0], []
    for bits in range(1, 5):
        made = METHODS["eden"].load()(METHODS["eden"].settings(bits=bits))
        keys = (Key(2, number, 0, "model") for number in range(repeats))
        found.append(statistics.fmean(relative_error(made.decode(made.encode(x, key)), x) for key in keys))
    return found


def of_messages(source: Gradients) -> Curves:
    return curves_of(families(), source, [[x] for x in source.measure], RATES)


def of_means(source: Gradients) -> dict[int, Curves]:
    """The curves of the mean by the number of workers."""
    found = {}
    for workers in WORKERS:
        vectors = source.moments[0][:workers]
        found[workers] = curves_of(OF_MEAN, source, [vectors] * DRAWS)
        found[workers][SHARED_SCALE] = [shared_scale(vectors, bits) for bits in range(1, 7)]
    return found


def contests(curves: Curves) -> dict[str, dict[str, Any]]:
    """Rate -> contest -> the winner, its vNMSE and its bits, which are the rate or less; and whether EDEN is beaten."""
    found: dict[str, dict[str, Any]] = {}
    for rate in RATES:
        reached = {kind: winner for kind, takes in CONTESTS.items() if (winner := best(curves, rate, takes))}
        row: dict[str, Any] = {
            kind: {"name": one.label(), "vnmse": _rounded(point.error), "bits": _rounded(point.bits)}
            for kind, (one, point) in reached.items()
        }
        found[str(rate)] = row | {"below_eden": "all" in reached and not reached["all"][0].is_eden}
    return found


def winners_of_mean(curves: Mapping[int, Curves]) -> dict[str, dict[str, dict[str, Any]]]:
    """Rate -> number of workers -> the contender of least error at that rate or less, and the error."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for rate, (workers, of) in itertools.product(RATES_OF_MEAN, curves.items()):
        if winner := best(of, rate):
            name = "sum at a shared scale" if winner[0] is SHARED_SCALE else winner[0].label()
            found.setdefault(str(rate), {})[str(workers)] = {"name": name, "error": _rounded(winner[1].error)}
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def write_points(place: Path, all_curves: Mapping[str, Curves]) -> None:
    """Write all points of messages as comma-separated values."""
    with place.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "method", "options", "setting", "bits_per_coordinate", "vnmse"])
        for source, curves in all_curves.items():
            for one, points in curves.items():
                start = [source, one.method, " ".join(f"{name}={value}" for name, value in one.options)]
                rows.writerows([*start, point.setting, f"{point.bits:.5f}", f"{point.error:.5g}"] for point in points)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("figures") / "accuracy_per_bit", help="of figure and points")


def _on(measure: Callable[[Gradients], Any], name: str) -> Any:
    return measure(gradients.source(name))


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write points and figure."""
    distributions = list(gradients.DISTRIBUTIONS)
    names = [*distributions, *gradients.available(gradients.EARLY)]
    with ProcessPoolExecutor(NUM_PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        bias = pool.submit(_on, largest_bias, names[-1])
        messages = {name: pool.submit(_on, of_messages, name) for name in reversed(names)}  # the recorded ones first
        errors = {name: pool.submit(_on, eden_errors, name) for name in distributions}
        means = {name: pool.submit(_on, of_means, name) for name in names}
        curves = {name: messages[name].result() for name in names}
        eden = {name: list(map(_rounded, one.result())) for name, one in errors.items()}
        of_mean = {name: winners_of_mean(one.result()) for name, one in means.items()}
    winners = {name: contests(of) for name, of in curves.items()}
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_points(chosen.out / "points.csv", curves)
    from benchmarks.errors import figures  # matplotlib takes a second, and only the figure needs it

    figures.draw_curves({gradients.source(name).title: curves[name] for name in names}, chosen.out)
    return {
        "eden_vnmse": eden,
        "eden_relative_error": {
            name: [round(got.result()[i] / known - 1, 5) for i, known in enumerate(PUBLISHED_EDEN)]
            for name, got in errors.items()
        },
        "below_eden": {str(rate): all(winners[name][str(rate)]["below_eden"] for name in winners) for rate in RATES},
        "largest_bias_sigmas": round(bias.result(), 2),
        "winners": winners,
        "winners_of_mean": of_mean,
    }
