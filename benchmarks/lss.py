"""The errors of CASQ on large and on small values by kind of layer.

Run it as ``python -m benchmarks.lss [--data cifar10 --model resnet8] [--out DIR]``.

A model trains without compression; every k steps its gradient is recorded, and each recorded gradient goes through CASQ
with several numbers of clusters (cells: 1 % of the coordinates) and of cells (8 clusters), and through SketchML, TopK
and QSGD with the setting whose bytes come nearest to CASQ's.  Each parameter is encoded by itself (``--scope model``:
the gradient as one vector), without error feedback.

These figures are of the parameters of a kind (conv, linear, norm, bias), over all recorded gradients:

- large, small: signed error, ``sum of sign(x) (decoded - x) / sum of |x|`` over the values above, and at or below, the
  95th percentile of their parameter's magnitudes: -1 is lost, 0 is right on average, above 0 is grown;
- error: ``|decoded - x|^2 / |x|^2``;
- bits: of the messages, header included, a coordinate.

Times are of all messages of a gradient, medians over the gradients: for small models, of calls more than of
coordinates; the last table (``--coordinates``, 0 for none) is of one long vector.  ``--out`` writes ``lss.png``,
``lss.pdf`` and every measurement as ``lss.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import lss_speed
from benchmarks.lss_rows import Row
from files.aligned import aligned
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from settings import resolving
from train.steps.trainer import Trainer

KINDS = ("conv", "linear", "norm", "bias")
PERCENTILE = 0.95
CLUSTERS = (2, 4, 8, 16, 32, 64)
CELLS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
DEFAULT = {"clusters": 8, "cells_ratio": 0.01}
# Settings of the baselines, among which the one with the bytes nearest to CASQ's is taken.
BASELINES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "SketchML": (
        "sketchml",
        [{"buckets": buckets, "groups": groups} for buckets in (32, 128) for groups in (1, 2, 4, 8)],
    ),
    "SketchML, no sketch": ("sketchml", [{"rows": 0, "buckets": buckets} for buckets in (1, 2, 4, 8, 16, 32, 128)]),
    "TopK": ("topk", [{"ratio": round(0.005 * 1.15**step, 5)} for step in range(36)]),
    "QSGD": ("qsgd", [{"bits": bits, "coding": "huffman"} for bits in range(2, 9)]),
}


@dataclass(frozen=True)
class Recorded:
    """One recorded gradient.

    parts: by parameter, in the model's order, in its own shape.
    """

    step: int
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Contender:
    """A method with its settings.

    study, title, number: as in its rows.
    """

    study: str
    title: str
    number: float
    method: Any


def kinds_of(model: nn.Module) -> dict[str, str]:
    """The kind of each parameter: conv, linear, norm (weights and biases) or bias (of the others)."""
    found = {}
    for path, module in model.named_modules():
        layer = (
            "conv"
            if isinstance(module, nn.modules.conv._ConvNd)
            else "linear"
            if isinstance(module, nn.Linear)
            else "norm"
        )
        for name, _parameter in module.named_parameters(recurse=False):
            found[f"{path}.{name}".lstrip(".")] = "bias" if name == "bias" and layer != "norm" else layer
    return found


def record(data: str, model: str, steps: int, every: int, seed: int) -> tuple[list[Recorded], dict[str, str]]:
    """The gradients of one worker at every ``every``-th step of an uncompressed run, and the parameters' kinds.

    The first is that of step ``every``.
    """
    config = resolving.resolve(
        {"method": "supersgd", "data": data, "model": model, "batch_size": 32, "workers": 1, "seed": seed}
    )
    trainer = Trainer(config, device=torch.device("cpu"))
    recorded = []
    for step in range(steps + 1):
        if step and step % every == 0:
            gradient, _loss = trainer.gradient(0, step, trainer.order, "train")
            parts = trainer.gradients.layout.views(gradient)
            recorded.append(Recorded(step, dict(zip(trainer.parameters, parts, strict=True))))
        trainer.train_step()
    return recorded, kinds_of(trainer.model)


def measure(contender: Contender, gradient: Recorded, kinds: dict[str, str], scope: str) -> Iterator[Row]:
    """The rows of one gradient, one for every kind that the model has."""
    decoded, bits, spent = through(contender.method, gradient, scope)
    for kind in KINDS:
        names = [name for name in gradient.parts if kinds[name] == kind]
        if not names:
            continue
        sums = torch.zeros(6, dtype=torch.float64)
        for name in names:
            sums += _sums(gradient.parts[name].reshape(-1).double(), decoded[name].double())
        large, all_large, small, all_small, error, square = sums.tolist()
        total = sum(gradient.parts[name].numel() for name in names)
        shares = (
            large / all_large if all_large else 0.0,
            small / all_small if all_small else 0.0,
            error / square if square else 0.0,
        )
        yield Row(
            contender.study,
            contender.title,
            contender.number,
            gradient.step,
            kind,
            *shares,
            sum(bits[name] for name in names) / total,
            *spent,
        )


def _sums(x: Tensor, decoded: Tensor) -> Tensor:
    """Six sums: the signed error and the magnitudes of large values, the same of small ones, then squares: float64[6].

    The squares are the squared error and the squared values.
    """
    size, away = x.abs(), (decoded - x) * x.sign()
    large = (
        size > torch.quantile(size, PERCENTILE)
        if x.numel() < 1 << 24
        else size > size.kthvalue(int(PERCENTILE * x.numel())).values
    )
    return torch.stack(
        [
            away[large].sum(),
            size[large].sum(),
            away[~large].sum(),
            size[~large].sum(),
            (decoded - x).square().sum(),
            x.square().sum(),
        ]
    )


def through(
    method: Any, gradient: Recorded, scope: str
) -> tuple[dict[str, Tensor], dict[str, float], tuple[float, float]]:
    """The decoded parameters, the bits of each, and milliseconds of encoding and decoding.

    scope: tensor, or model: one vector, whose bits are shared out by coordinates.
    """
    parts = gradient.parts
    vectors = parts if scope == "tensor" else {"model": torch.cat([part.reshape(-1) for part in parts.values()])}
    key = Key(0, gradient.step, 0)
    start = time.perf_counter()
    messages = {name: method.encode(vector.reshape(-1), key.of(name)) for name, vector in vectors.items()}
    between = time.perf_counter()
    decoded = {name: method.decode(message) for name, message in messages.items()}
    spent = (1e3 * (between - start), 1e3 * (time.perf_counter() - between))
    bits = {name: 8.0 * message.num_bytes for name, message in messages.items()}
    if scope == "tensor":
        return decoded, bits, spent
    sizes = [part.numel() for part in parts.values()]
    pieces = decoded["model"].split(sizes)
    return (
        dict(zip(parts, pieces, strict=True)),
        {name: bits["model"] * part.numel() / sum(sizes) for name, part in parts.items()},
        spent,
    )


def build(name: str, **settings: Any) -> Any:
    """A method of the table with these settings."""
    return METHODS[name].load()(METHODS[name].settings(**settings))


def contenders(gradient: Recorded, scope: str) -> list[Contender]:
    """The contenders: CASQ over clusters and over cells, and the baselines at the bytes it takes on this gradient."""
    found = [Contender("clusters", f"{k} clusters", k, build("casq", **{**DEFAULT, "clusters": k})) for k in CLUSTERS]
    found += [
        Contender("cells", f"{ratio:g} cells", ratio, build("casq", **{**DEFAULT, "cells_ratio": ratio}))
        for ratio in CELLS
    ]
    for percentile in (95.0, 99.0, 100.0):
        title = (
            "CASQ"
            if percentile == 95.0
            else f"CASQ, outliers above {percentile:g} %"
            if percentile < 100
            else "CASQ, no outliers"
        )
        found.append(Contender("baselines", title, 0, build("casq", **DEFAULT, outlier_percentile=percentile)))
    wanted = _bits(build("casq", **DEFAULT), gradient, scope)
    for title, (name, options) in BASELINES.items():
        chosen = min(options, key=lambda option: abs(_bits(build(name, **option), gradient, scope) - wanted))
        shown = ", ".join(f"{key} {value:g}" for key, value in chosen.items() if not isinstance(value, str))
        found.append(Contender("baselines", f"{title} ({shown})", 0, build(name, **chosen)))
    return found


def _bits(method: Any, gradient: Recorded, scope: str) -> float:
    return sum(through(method, gradient, scope)[1].values())


def mean_of(rows: Sequence[Row], what: str) -> float:
    """The mean of a figure over the recorded gradients; the median of times."""
    values = [getattr(row, what) for row in rows]
    return statistics.median(values) if what.endswith("ms") else statistics.fmean(values)


def print_tables(rows: Sequence[Row], kinds: Sequence[str]) -> None:
    """Print a table for each study: a line for each contender, columns for every kind of parameter."""
    heads = {
        "clusters": "CASQ, clusters of either sign (cells: 1 % of the coordinates)",
        "cells": "CASQ, cells over coordinates (8 clusters)",
    }
    heads["baselines"] = "at CASQ's bytes, or near"
    for study, head in heads.items():
        print(f"\n{head}")
        headings = [word for kind in kinds for word in (f"{kind}: large", "small", "error", "bits")]
        lines = [["", *headings, "encode ms", "decode ms"]]
        for title in dict.fromkeys(row.title for row in rows if row.study == study):
            own = [row for row in rows if (row.study, row.title) == (study, title)]
            cells = []
            for kind in kinds:
                of_kind = [row for row in own if row.kind == kind]
                large, small, error, bits = (mean_of(of_kind, what) for what in ("large", "small", "error", "bits"))
                cells += [f"{large:.3f}", f"{small:.3f}", f"{error:.4f}", f"{bits:.2f}"]
            lines.append([title, *cells, *(f"{mean_of(own, what):.2f}" for what in ("encode_ms", "decode_ms"))])
        print(aligned(lines))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures by study, title and kind of parameter: means over the gradients."""
    found: dict[str, Any] = {}
    for row in rows:
        found.setdefault(row.study, {}).setdefault(row.title, {}).setdefault(row.kind, []).append(row)
    shown = ("large", "small", "error", "bits", "encode_ms", "decode_ms")
    return {
        study: {
            title: {
                kind: {what: float(f"{mean_of(own, what):.4g}") for what in shown} for kind, own in of_title.items()
            }
            for title, of_title in of_study.items()
        }
        for study, of_study in found.items()
    }


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lss",
        description="CASQ's signed errors by kind of layer, over clusters and cells, and its baselines.",
    )
    parser.add_argument("--data", default="digits", help="what the model trains on (default: %(default)s)")
    parser.add_argument("--model", default="cnn", help="the model (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="steps of training (default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=20, help="a gradient is recorded every so many steps (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the run (default: %(default)s)")
    parser.add_argument(
        "--scope",
        default="tensor",
        choices=("tensor", "model"),
        help="what is compressed at once (default: %(default)s)",
    )
    parser.add_argument(
        "--coordinates",
        type=int,
        default=10**7,
        help="of the vector that speed is measured on; 0: none (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, help="folder for the figure and every measurement")
    chosen = parser.parse_args(given)
    if chosen.steps < chosen.every or chosen.every < 1:
        parser.error(
            f"--steps {chosen.steps} --every {chosen.every}: no gradient is recorded; steps must reach every, which "
            f"is at least 1"
        )
    gradients, kinds = record(chosen.data, chosen.model, chosen.steps, chosen.every, chosen.seed)
    present = [kind for kind in KINDS if kind in kinds.values()]
    rows = [
        row
        for contender in contenders(gradients[0], chosen.scope)
        for gradient in gradients
        for row in measure(contender, gradient, kinds, chosen.scope)
    ]
    total = sum(part.numel() for part in gradients[0].parts.values())
    print(
        f"{chosen.model} on {chosen.data}: {len(gradients)} gradients of {total:,} coordinates, to step "
        f"{gradients[-1].step}"
    )
    print_tables(rows, present)
    figures: dict[str, Any] = {
        "model": chosen.model,
        "data": chosen.data,
        "gradients": len(gradients),
        "coordinates": total,
        **summary(rows),
    }
    if chosen.coordinates:
        figures["speed"] = speed(chosen.coordinates)
    if chosen.out:
        from benchmarks import lss_figure

        chosen.out.mkdir(parents=True, exist_ok=True)
        with (chosen.out / "lss.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [item.name for item in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        print(
            "\n"
            + "\n".join(
                str(path) for path in lss_figure.draw(rows, present, f"{chosen.model}, {chosen.data}", chosen.out)
            )
        )
    print(json.dumps(figures))


def speed(size: int) -> dict[str, dict[str, float]]:
    """The table of ``lss_speed``, printed."""
    found = lss_speed.measure(size)
    print(
        f"\n{size:,} coordinates, {torch.get_num_threads()} threads"
        + f"{'encode':>14}{'GB/s':>8}{'decode':>12}{'GB/s':>8}{'eager':>12}"
    )
    for name, row in found.items():
        times = (
            f"{row['encode_ms']:25.0f} ms{row['encode_gb_s']:8.3f}{row['decode_ms']:9.0f} ms{row['decode_gb_s']:8.3f}"
        )
        print(
            f"{METHODS[name].title:20}{times}{row['eager_ms']:9.0f} ms, {row['encode_over_eager']:.1f} times encode's"
        )
    return {name: {what: float(f"{value:.4g}") for what, value in row.items()} for name, row in found.items()}


if __name__ == "__main__":
    main()
