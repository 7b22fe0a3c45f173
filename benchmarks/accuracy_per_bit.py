r"""The error of every unbiased method against the bits that it really takes.

Run it as ``python -m benchmarks.accuracy_per_bit [--out DIR]``.  Behind these tables it prints those of the mean of
several workers (``benchmarks.accuracy_of_mean``).

The error is vNMSE = ``E |decoded - x|^2 / |x|^2``. The bits per coordinate are ``8 * length of the messages / number of
coordinates``, so header, levels, scales, codes and coder tables all count.  A message of 2^19 coordinates at 3 bits
spends .0006 bits on its header, .0005 on levels, .004 on scales in buckets of 8192 (.125 in buckets of 256); one of
75,290 (a ResNet-8) .004, .003 and .004.

Every unbiased entry of METHODS is taken with every choice of rotation, dither, coding (packed and rANS; Huffman lies
between them), norm and form that it has, in buckets of 8192, of 256 and as one bucket, on three distributions and on
recorded gradients (CIFAR-10 where ``NUQ_DATA`` has it).  A method's error at a rate is the least error that it reaches
at that rate or less: between two rates of one choice of options, log vNMSE is interpolated (ECDQ, whose step is free,
is tuned to the wanted total instead); a choice whose rates all lie below stands with the least error that it has, and
the bits that it takes are printed behind ``@``.  The same holds for EDEN.  Sampling errors are some tenths of a
percent.

With an entropy coder one bucket is best: one step for all coordinates is the division of the bits that minimises the
total error, since coordinates of larger layers then take more of them; a scale per bucket gives every bucket the same
number.

EDEN's rate is that of its better coding: with rANS its Lloyd-Max levels take 1.92, 2.83 and 3.77 bits for its papers'
2, 3 and 4, its own form for an entropy coder, uniform steps, 2.00, 3.01 and 4.01.  Interpolating it is generous, since
nothing sends the rates between.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks import accuracy_curves, accuracy_of_mean, gradient_samples
from benchmarks.accuracy_curves import LETTERS, NUM_DRAWS, RATES, Curves, Family, Point, best
from benchmarks.gradient_samples import Source
from files.aligned import aligned
from nuq.registry import METHODS

PUBLISHED_EDEN = (0.5708, 0.1331, 0.0358, 0.0096)
NUM_PROCESSES = 2

CONTESTS = {
    "EDEN, packed": "eden_packed",
    "EDEN, Lloyd-Max": "eden_lloyd_max",
    "EDEN, uniform steps": "eden_uniform",
    "best packed": "packed",
    "best dithered": "dithered",
    "best adaptive": "adaptive",
    "best without rotation": "unrotated",
    "best but EDEN": "others",
    "winner": "all",
}


def print_table(source: Source, curves: Curves) -> None:
    """Print the best of every method at each rate, then the contests."""
    print(
        f"\n{source.title}: {source.num_coordinates:,} coordinates; least vNMSE within the total bits, its options, @ "
        f"the bits if fewer"
    )
    lines = [["method", *(f"{rate} bits" for rate in RATES)]]
    for name in dict.fromkeys(family.method for family in curves):
        cells = [_cell(best(curves, rate, method=name), rate, titled=False) for rate in RATES]
        if not any(cells):
            family, points = min(
                ((f, points) for f, points in curves.items() if f.method == name), key=lambda pair: pair[1][0].error
            )
            cells[0] = _cell((family, points[0]), 0, titled=False)
        lines.append([METHODS[name].title, *cells])
    lines += [[title, *(_cell(best(curves, rate, kind), rate) for rate in RATES)] for title, kind in CONTESTS.items()]
    print(aligned([[cell or "-" for cell in line] for line in lines], words=1 + len(RATES)))


def _cell(reached: tuple[Family, Point] | None, rate: float, titled: bool = True) -> str:
    """The error and options of a point, with its bits where they are not the rate; empty where there is none."""
    if reached is None:
        return ""
    family, point = reached
    letters = _letters(family) if titled else _letters(family).partition(" ")[2]
    return f"{point.error:<8.4g}  {letters}" + (f" @{point.bits:.3f}" if point.bits != rate else "")


def _letters(family: Family) -> str:
    return family.label(LETTERS, " ")


def contests(curves: Curves) -> dict[str, dict[str, Any]]:
    """Rate -> contest -> the winner, its vNMSE and its bits, which are the rate or less.

    It also says whether the winner is not EDEN.
    """
    found: dict[str, dict[str, Any]] = {}
    for rate in RATES:
        reached = {kind: best(curves, rate, kind) for kind in CONTESTS.values()}
        row: dict[str, Any] = {
            kind: {"name": cell[0].label(), "vnmse": _rounded(cell[1].error), "bits": _rounded(cell[1].bits)}
            for kind, cell in reached.items()
            if cell
        }
        winner = reached["all"]
        row["below_eden"] = bool(winner and not winner[0].is_eden)
        found[str(rate)] = row
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def available() -> list[str]:
    """The names of the distributions, and of the recorded gradients whose data set is there."""
    names = list(gradient_samples.DISTRIBUTIONS)
    for data in gradient_samples.RECORDED:
        try:
            gradient_samples.recorded(data)
        except FileNotFoundError as error:
            print(f"without gradients on {data}: {error}")
        else:
            names.append(data)
    return names


def _curves(name: str) -> Curves:
    return accuracy_curves.curves_of(gradient_samples.source(name))


def _eden_errors(name: str) -> list[float]:
    return accuracy_curves.eden_errors(gradient_samples.source(name))


def _check_unbiased(name: str) -> dict[str, float]:
    return accuracy_curves.check_unbiased(gradient_samples.source(name))


def _mean_curves(name: str) -> dict[int, Curves]:
    return accuracy_of_mean.curves_of(gradient_samples.source(name))


def main() -> None:
    """Measure, print the tables, write points and figure, and print the JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy_per_bit", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--out", type=Path, default=Path("figures") / "accuracy_per_bit", help="folder of the figure and of all points"
    )
    out = parser.parse_args().out
    torch.set_num_threads(1)
    names, distributions = available(), list(gradient_samples.DISTRIBUTIONS)
    with ProcessPoolExecutor(NUM_PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        unbiased = pool.submit(_check_unbiased, names[-1])
        curves = pool.map(_curves, reversed(names))  # the recorded ones take longest
        errors = pool.map(_eden_errors, distributions)
        of_means = dict(zip(names, pool.map(_mean_curves, names), strict=True))
        all_curves = dict(zip(names, reversed(list(curves)), strict=True))
        eden, worst = dict(zip(distributions, errors, strict=True)), unbiased.result()

    told = "R: rotated, D: dithered, M: sign and magnitude with a zero, U: uniform steps"
    print(f"{told}; buckets of 8192, unless of 256, or W: the whole vector in one")
    for name in names:
        print_table(gradient_samples.source(name), all_curves[name])
    print(
        f"\nunbiased? T |mean - x|^2 of T = {NUM_DRAWS} less its expectation, in sigmas, the worst of each method's "
        f"options:"
    )
    print("  " + "  ".join(f"{METHODS[name].title} {sigmas:.1f}" for name, sigmas in worst.items()))
    for name in names:
        print(f"\n{gradient_samples.source(name).title}: M |mean of decoded - mean|^2 over the mean of |x_i|^2")
        for rate in accuracy_of_mean.RATES:
            print(f"\n{aligned(accuracy_of_mean.table(of_means[name], rate))}")
    for name in distributions:
        print(f"EDEN at 1 .. 4 index bits, {name}: " + "  ".join(f"{error:.4f}" for error in eden[name]))

    out.mkdir(parents=True, exist_ok=True)
    accuracy_curves.write_points(out / "points.csv", all_curves)
    from benchmarks import accuracy_figure  # matplotlib takes a second, and only the figure needs it

    for path in accuracy_figure.draw({gradient_samples.source(name).title: all_curves[name] for name in names}, out):
        print(path)
    winners = {name: contests(curves) for name, curves in all_curves.items()}
    figures = {
        "eden_vnmse": {name: [_rounded(error) for error in errors] for name, errors in eden.items()},
        "eden_relative_error": {
            name: [round(got / known - 1, 5) for got, known in zip(eden[name], PUBLISHED_EDEN, strict=True)]
            for name in distributions
        },
        "below_eden": {str(rate): all(winners[name][str(rate)]["below_eden"] for name in winners) for rate in RATES},
        "largest_bias_sigmas": round(max(worst.values()), 2),
        "winners": winners,
        "winners_of_mean": {name: accuracy_of_mean.winners(curves) for name, curves in of_means.items()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
