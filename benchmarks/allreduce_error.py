"""The error of the workers' mean against its formula.

Run it as ``python -m benchmarks.allreduce_error [--draws 100 --coordinates 65536]``.

With n workers, m the mean of their vectors x_i, R = mean |x_i|^2 / |m|^2 and unbiased encoders of relative variance w1
and w2,

    gather:     E|out - m|^2 / |m|^2 = (w1 / n) R
    two_stage:  E|out - m|^2 / |m|^2 = (w1 / n) R + w2 (1 + (w1 / n) R)

The collectives of ``nuq.exchange.collectives`` run in one process over all workers; nothing that they compute
enters the prediction, which comes from the two encoders alone, each on what it is given:

- w1 = sum |C1(x_i) - x_i|^2 / sum |x_i|^2, over workers and over the shards that each vector is cut into (gather: the
  whole vector);
- w2 = E|C2(y) - y|^2 / E|y|^2 on such means y as a first stage leaves: decoded messages, averaged here, in float64.

A relative variance belongs to a distribution, and y is m plus the first stage's noise: on m itself w2 is another
number, and the last column but one shows how far off the formula is with that one.  Both sides take the same random
numbers (they follow from a key), so the effect of chance on an encoder's error is on both; the remainder is what the
formula claims to be nothing on average: products of the errors of two workers, and of the two stages.  Messages that
are not independent, an owner that keeps its own shard as it is, a stage left out or a biased encoder all show; clipped
TRN, which is biased, does, and is not in ``max_rel_err``.

Draws are added until the standard error of measured / predicted is below NOISE.  ALQ's second stage may need thousands:
under the L2 norm nearly all of its error is a few coordinates that jump to the norm itself, mostly those that jumped in
the first stage.  The buckets therefore have 256 coordinates (more of them, smaller jumps), and ALQ under the Linf norm
stands beside it.  Rows that stay too noisy are judged by sigmas.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nuq.exchange.collectives.collective import Collective, WorkerPlacement, of_worker
from nuq.exchange.collectives.gather import Gather
from nuq.exchange.collectives.two_stage import TwoStage
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from settings import resolving
from train.steps.trainer import Trainer

WORKERS = (2, 4, 8)
BAR = 0.03
SEED = 1
LEAST_DRAWS, NOISE, NOISIEST = 8, 0.005, 0.0075  # NOISIEST: of what counts in max_rel_err
# model, batch, step, title
RECORDED = {"digits": ("cnn", 32, 60, "CNN on digits"), "cifar10": ("resnet8", 16, 30, "ResNet-8 on CIFAR-10")}
ALONE = {"rounding": "stochastic"}  # the formula's workers err independently
QUANTIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("alq", {**ALONE, "bucket_size": 256, "norm": "l2"}),
    ("alq", {**ALONE, "norm": "linf"}),
    ("qsgdinf", ALONE),
    ("eden", {}),
)
OPTIONS = {("bucket_size", 256): ", L2, 256", ("norm", "linf"): ", Linf", ("clip_sigma", 2.5): ", clipped"}
Case = tuple[str, dict[str, Any], int]  # method, settings, bits of the means
CASES: tuple[Case, ...] = (
    *(
        (name, {"bits": first, **more}, second)
        for name, more in QUANTIZERS
        for first, second in ((3, 4), (4, 8), (2, 4))
    ),
    ("trn", ALONE, 4),
    ("trn", {**ALONE, "clip_sigma": 2.5}, 4),
)


# --- inputs ---


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator)


def lognormal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return normal(shape, generator).exp() * (1.0 - 2.0 * torch.randint(0, 2, tuple(shape), generator=generator))


def independent(workers: int, size: int, generator: torch.Generator) -> Tensor:
    return normal((workers, size), generator)


def unequal(workers: int, size: int, generator: torch.Generator) -> Tensor:
    """Vectors of the workers, each twice as long as the one before."""
    return independent(workers, size, generator) * 2.0 ** torch.arange(workers)[:, None]


def correlated(
    ratio: float, distribution: Callable[[Sequence[int], torch.Generator], Tensor] = normal
) -> Callable[..., Tensor]:
    """Vectors with R = ``ratio``: one common to all plus each worker's own noise, which above n cancels in the mean."""

    def draw(workers: int, size: int, generator: torch.Generator) -> Tensor:
        common, noise = distribution((size,), generator), distribution((workers, size), generator)
        if ratio < workers:
            return common + math.sqrt((ratio - 1) / (1 - ratio / workers)) * noise
        return common + math.sqrt((ratio - 1) / (1 - 1 / workers)) * (noise - noise.mean(dim=0))

    return draw


DISTRIBUTIONS: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "normal, R = n": independent,
    "normal, R = 1.2": correlated(1.2),
    "normal, R = 20": correlated(20.0),
    "normal, norms 1, 2, 4 ..": unequal,
    "lognormal, R = 1.5": correlated(1.5, lognormal),
}


def recorded(data: str) -> Tensor:
    """All workers' gradients at one step of a training: float32[8, n].

    Raises FileNotFoundError where the data set is not there.
    """
    model, batch_size, steps, _ = RECORDED[data]
    workers = max(WORKERS)
    config = resolving.resolve(
        {"method": "supersgd", "data": data, "model": model, "batch_size": batch_size, "workers": workers, "seed": 1}
    )
    trainer = Trainer(config, device=torch.device("cpu"))
    for _ in range(steps):
        trainer.train_step()
    gradients = [trainer.gradient(worker, steps, trainer.order, "train")[0] for worker in range(workers)]
    return torch.stack(gradients)


def all_inputs(size: int) -> Iterator[tuple[str, dict[int, Tensor]]]:
    """The inputs: a title, and by number of workers their vectors, float32[workers, coordinates]."""
    for title, distribution in DISTRIBUTIONS.items():
        yield (
            title,
            {workers: distribution(workers, size, torch.Generator().manual_seed(workers)) for workers in WORKERS},
        )
    for data, (_, _, _, title) in RECORDED.items():
        try:
            vectors = recorded(data)
        except FileNotFoundError as error:
            print(f"without gradients on {data}: {error}", file=sys.stderr)
        else:
            yield f"gradients, {title}", {workers: vectors[:workers] for workers in WORKERS}


# --- the formula ---


def norm_ratio(vectors: Tensor) -> float:
    """The ratio R = mean |x_i|^2 / |mean x|^2."""
    wide = vectors.double()
    return float(wide.square().sum() / len(vectors) / wide.mean(dim=0).square().sum())


def gather_error(w1: float, ratio: float, workers: int) -> float:
    return w1 / workers * ratio


def two_stage_error(w1: float, w2: float, ratio: float, workers: int) -> float:
    return w1 / workers * ratio + w2 * (1 + w1 / workers * ratio)


# --- measurements ---


def decoded(codec: PayloadCodec, vector: Tensor, shards: Sequence[FlatLayout], keys: Sequence[Key]) -> Tensor:
    """The decoded vector of an encoder that is given a vector shard by shard, each with a key; float32[n]."""
    out = torch.zeros(vector.numel())
    for shard, key in zip(shards, keys, strict=True):
        codec.add(codec.encode(vector, shard, key), shard, out)
    return out


def squared(vector: Tensor) -> float:
    return float(vector.double().square().sum())


@dataclass(frozen=True)
class Draw:
    """The squared lengths of one draw.

    ``first``: of the workers' errors; ``second``: of the means' errors; ``length``: of those means.
    """

    first: float
    second: float
    length: float


def encoders_alone(compressors: CompressorMap, vectors: Tensor, shards: Sequence[FlatLayout], draw: int) -> Draw:
    """The errors of both encoders on what they are given, with the keys that the collective uses."""
    key, owners = Key(SEED, draw, 0), range(len(shards))
    outputs = [
        decoded(compressors.codec, vector, shards, [of_worker(key, worker, len(vectors))] * len(owners))
        for worker, vector in enumerate(vectors)
    ]
    first = sum(squared(output - vector) for output, vector in zip(outputs, vectors, strict=True))
    mean = torch.stack(outputs).double().mean(dim=0).float()
    again = decoded(compressors.mean_codec, mean, shards, [replace(key, worker=owner).of("mean") for owner in owners])
    return Draw(first, squared(again - mean), squared(mean))


def collective_error(collective: Collective, vectors: Tensor, layout: FlatLayout, draw: int) -> float:
    """The relative error |out - m|^2 / |m|^2 of a collective's mean."""
    true_mean, out = vectors.double().mean(dim=0), torch.empty(vectors.shape[1])
    collective.mean(dict(enumerate(vectors)), layout, Key(SEED, draw, 0), out)
    return float((out.double() - true_mean).square().sum() / true_mean.square().sum())


@dataclass(frozen=True)
class Compared:
    """A measured error beside the predicted one; noise: standard error of measured / predicted, drawn together."""

    predicted: float
    measured: float
    noise: float

    @property
    def rel_err(self) -> float:
        return self.measured / self.predicted - 1


def compared(predicted: float, of_draws: Sequence[float], measured: Sequence[float]) -> Compared:
    """The measured errors beside the predicted one, which is from all draws; ``of_draws`` is from each alone."""
    differences = [found - told for told, found in zip(of_draws, measured, strict=True)]
    return Compared(
        predicted, statistics.fmean(measured), statistics.stdev(differences) / math.sqrt(len(differences)) / predicted
    )


def encoders_for(name: str, settings: dict[str, Any], second_bits: int, vectors: Tensor) -> CompressorMap:
    """Both encoders; adaptive ones with levels fitted to the workers' vectors, as the training fits them."""
    compressors = CompressorMap(name, METHODS[name].settings(**settings), second_bits)
    if compressors.adaptive:
        keys = [Key(SEED, 0, worker, "statistics") for worker in range(len(vectors))]
        seen = compressors.adaptive[0].observed(zip(vectors, keys, strict=True))
        for compressor in compressors.adaptive:
            compressor.update(seen)
    return compressors


def measure(title: str, vectors: Tensor, case: Case, most_draws: int) -> dict[str, Any]:
    """One row: both collectives against their formulas, from at most ``most_draws`` draws for a noise below NOISE."""
    name, settings, second_bits = case
    compressors = encoders_for(name, settings, second_bits, vectors)
    (workers, size), ratio, length = vectors.shape, norm_ratio(vectors), squared(vectors)
    layout = FlatLayout((Segment("model", 0, size),))
    transport, placement = Transport(None), WorkerPlacement.of(workers, 1)
    shards, collectives = (
        layout.shards(workers),
        (
            Gather(transport, placement, compressors.codec),
            TwoStage(transport, placement, compressors.codec, compressors.mean_codec),
        ),
    )
    whole: list[float] = []
    cut_up: list[Draw] = []
    found: tuple[list[float], list[float]] = ([], [])
    for draw in range(most_draws):
        whole.append(encoders_alone(compressors, vectors, [layout], draw).first / length)
        cut_up.append(encoders_alone(compressors, vectors, shards, draw))
        for errors, collective in zip(found, collectives, strict=True):
            errors.append(collective_error(collective, vectors, layout, draw))
        if draw + 1 < LEAST_DRAWS:
            continue
        w1 = statistics.fmean(one.first for one in cut_up) / length
        w2 = sum(one.second for one in cut_up) / sum(one.length for one in cut_up)
        gather = compared(
            gather_error(statistics.fmean(whole), ratio, workers),
            [gather_error(w, ratio, workers) for w in whole],
            found[0],
        )
        of_draws = [two_stage_error(one.first / length, one.second / one.length, ratio, workers) for one in cut_up]
        two_stage = compared(two_stage_error(w1, w2, ratio, workers), of_draws, found[1])
        if max(gather.noise, two_stage.noise) < NOISE:
            break
    w2_of_mean = variance_on_mean(compressors, vectors, shards, LEAST_DRAWS)
    return {
        "inputs": title,
        "workers": workers,
        "method": METHODS[name].title
        + "".join(word for (key, value), word in OPTIONS.items() if settings.get(key) == value),
        "bits": f"{settings.get('bits', 'ternary')}/{second_bits}",
        "exact": METHODS[name].unbiased and not settings.get("clip_sigma"),
        "R": ratio,
        "w1": w1,
        "w2": w2,
        "gather": gather,
        "two_stage": two_stage,
        "draws": len(whole),
        "with_w2_of_mean": two_stage.measured / two_stage_error(w1, w2_of_mean, ratio, workers) - 1,
    }


def variance_on_mean(compressors: CompressorMap, vectors: Tensor, shards: Sequence[FlatLayout], draws: int) -> float:
    """The second encoder's relative variance on the true mean."""
    mean = vectors.double().mean(dim=0).float()
    outputs = (
        decoded(compressors.mean_codec, mean, shards, [Key(SEED, draw, 0, "true mean")] * len(shards))
        for draw in range(draws)
    )
    return statistics.fmean(squared(output - mean) for output in outputs) / squared(mean)


# --- the report ---


def print_header(title: str, size: int) -> None:
    print(f"\n{title} ({size:,} coordinates)")
    print(
        f"  {'n':>2} {'method':14}{'bits':>10}{'R':>7}{'w1':>9}{'w2':>9} "
        f"|{'gather':>9}{'measured':>10}{'error':>8}{'noise':>7} "
        f"|{'two stages':>11}{'measured':>10}{'error':>8}{'noise':>7}{'w2 of m':>9}{'draws':>6}"
    )


def print_row(row: dict[str, Any]) -> None:
    gather, staged = row["gather"], row["two_stage"]
    print(
        f"  {row['workers']:>2} {row['method']:14}{row['bits']:>10}{row['R']:7.2f}{row['w1']:9.4f}{row['w2']:9.5f}"
        f" |{gather.predicted:9.4f}{gather.measured:10.4f}{gather.rel_err:+8.2%}{gather.noise:7.2%}"
        f" |{staged.predicted:11.4f}{staged.measured:10.4f}{staged.rel_err:+8.2%}{staged.noise:7.2%}"
        f"{row['with_w2_of_mean']:+9.1%}{row['draws']:6}",
        flush=True,
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The largest errors of the formula.

    They are relative where the formula is exact and chance is small, and in sigmas where chance is not; those where it
    is not exact stand apart.
    """
    exact, biased = ([row for row in rows if row["exact"] is wanted] for wanted in (True, False))
    quiet = {which: [row[which] for row in exact if row[which].noise <= NOISIEST] for which in ("gather", "two_stage")}
    every = [row[which] for row in exact for which in quiet]

    def largest(numbers: Iterable[float]) -> float:
        return round(max(map(abs, numbers), default=0.0), 5)

    return {
        "max_rel_err": largest(one.rel_err for ones in quiet.values() for one in ones),
        "max_rel_err_gather": largest(one.rel_err for one in quiet["gather"]),
        "max_rel_err_two_stage": largest(one.rel_err for one in quiet["two_stage"]),
        "rows": len(every),
        "rows_too_noisy": len(every) - sum(map(len, quiet.values())),
        "max_rel_err_of_all_rows": largest(one.rel_err for one in every),
        "max_sigmas_of_noisy_rows": largest(one.rel_err / one.noise for one in every if one.noise > NOISIEST),
        "max_rel_err_with_w2_of_true_mean": largest(row["with_w2_of_mean"] for row in exact),
        "max_rel_err_biased": largest(row[which].rel_err for row in biased for which in quiet),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table for each kind of inputs, then one JSON object; fails where the formula does."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allreduce_error", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--draws", type=int, default=100, help="at most so many exchanges behind a number")
    parser.add_argument("--coordinates", type=int, default=1 << 16, help="of the vectors that are drawn")
    chosen = parser.parse_args(arguments)
    if chosen.draws < LEAST_DRAWS or chosen.coordinates < 1:
        parser.error(
            f"--draws {chosen.draws} --coordinates {chosen.coordinates}: at least {LEAST_DRAWS} draws and 1 coordinate"
        )
    torch.set_num_threads(1)
    started, rows = time.perf_counter(), []
    for title, by_workers in all_inputs(chosen.coordinates):
        print_header(title, by_workers[WORKERS[0]].shape[1])
        for workers in WORKERS:
            for case in CASES:
                rows.append(measure(title, by_workers[workers], case, chosen.draws))
                print_row(rows[-1])
    figures = summary(rows)
    print(f"\n{time.perf_counter() - started:.0f} s; noise: standard error of measured / predicted")
    print(json.dumps(figures))
    if figures["max_rel_err"] > BAR:
        raise SystemExit(f"benchmarks.allreduce_error: max_rel_err {figures['max_rel_err']} is above {BAR}")


if __name__ == "__main__":
    main()
