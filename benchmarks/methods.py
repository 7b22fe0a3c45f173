"""Every method of METHODS on one gradient: error, bits, speed.

Run it as ``python -m benchmarks.methods [--methods NAME ..] [--quick] [--out DIR]``.

The gradient is a real one of 11 million coordinates, of a ResNet-18 on CIFAR-10 or, with ``--model gpt``, of a GPT on
text (``benchmarks.model_gradient``; where the images are not there, a stand-in's, and then nothing is claimed).  A
method may come with settings: ``--methods qsgd "topk ratio=0.001"``.

- error: ``|x - C(x)|^2 / |x|^2`` of what another instance decodes from the bytes: the median over the gradients of
  three steps, 10, 12 and 14, each under a key of its own (least .. largest); of an unbiased method it is the variance.
  Three gradients early in one run say no more than that range.  Adaptive methods learn their levels from those of steps
  6 and 8; what remembers goes through the three in turn.
- bits: ``8 * bytes / coordinates``, of whole messages; where ``scope=tensor``, of one message per parameter.
- GB/s of float32 input: ``encode`` up to the bytes with their checksum, ``decode`` from them to float32. They are
  medians.
- eager: the method as a user would write it in PyTorch (``benchmarks.eager``), which stops before the bytes; timed
  right before every encoding.  The ratio is taken pair by pair: median (least .. largest).

Memory that is freed stays with the process (``train.process.memory``), as in every run of ours, for both.

Where others load the machine, ``--threads 1`` measures that thread's own time: what one core does, and so less than two
do.

Claim: every encoding runs at ten times the eager one or at 1 GB/s.  A method that does not is listed, and the docstring
of its code says why.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from benchmarks import eager, model_gradient
from benchmarks.method_rows import Row
from benchmarks.model_gradient import Gradients
from benchmarks.timing import own_seconds
from nuq import native
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.compressor_map import sorted_settings
from nuq.kernels.spec import Key
from nuq.registry import METHODS, method
from train.process.memory import keep_freed_memory

PAIRS, FEWEST_PAIRS, BUDGET_S = 9, 3, 20.0
QUICK_PAIRS, QUICK_BUDGET_S = 3, 5.0
SLOW_BUDGET = 3  # times the budget: then one pair is enough


def settings_of(case: str) -> tuple[str, Any]:
    """The name and settings of a method written as ``"topk ratio=0.001"``; ValueError for what is not legal."""
    name, *options = case.split()
    given = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"{option!r} in {case!r}: must be of the form name=value")
        given[key] = yaml.safe_load(value)
    return name, sorted_settings(name, [], given, {})[0]


class Contender:
    """One method with its settings, as a sender of whole gradients."""

    def __init__(self, case: str, gradients: Gradients) -> None:
        self.name, self.settings = settings_of(case)
        self.entry = method(self.name)
        self.compressor = self.entry.load()(self.settings)
        self.by_tensor = getattr(self.settings, "scope", "model") == "tensor"
        self.gradients = gradients
        if isinstance(self.compressor, AdaptiveQuantizer):
            learned = [(vector, Key(7, number, 0, "learn")) for number, vector in enumerate(gradients.learn)]
            self.compressor.update(self.compressor.observed(learned))
        self.eager = eager.of(self.name, self.settings, self.compressor)

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """The vectors that are encoded as one message each, as the method wants it."""
        if not self.by_tensor:
            return {"model": vector}
        pieces = self.gradients.parts(vector)
        return pieces if self.compressor.shaped else {name: piece.reshape(-1) for name, piece in pieces.items()}

    def encode(self, parts: dict[str, Tensor], step: int) -> list[Tensor]:
        return [self.compressor.encode(part, Key(1, step, 0, name)).to_bytes() for name, part in parts.items()]

    def decode(self, messages: Sequence[Tensor], by: Any = None) -> list[Tensor]:
        by = by or self.compressor
        return [by.decode(parse(message)) for message in messages]

    def accuracy(self) -> tuple[list[float], float]:
        """The relative errors of the gradients, as a fresh instance decodes them, and bits per coordinate.

        Each gradient is under a key of its own.
        """
        errors, num_bytes = [], 0
        for step, vector in enumerate(self.gradients.measure):
            messages = self.encode(self.parts(vector), step)
            num_bytes += sum(message.numel() for message in messages)
            decoded = torch.cat(self.decode(messages, self.entry.load()(self.settings)))
            errors.append(float((decoded - vector).double().square().sum() / vector.double().square().sum()))
        return errors, 8 * num_bytes / (self.gradients.num_coordinates * len(errors))


def measure(
    case: str, gradients: Gradients, pairs: int = PAIRS, budget_s: float = BUDGET_S, device: str = "cpu"
) -> Row:
    """The row of one method: its accuracy, then eager, encode and decode in turns.

    The turns end when there are enough pairs or the time is up.
    """
    of = Contender(case, gradients)
    errors, bits = of.accuracy()
    parts = of.parts(gradients.measure[0])
    slow: list[float] = []
    encode: list[float] = []
    decode: list[float] = []
    began = time.perf_counter()
    for turn in range(pairs + 1):
        spent = time.perf_counter() - began
        if (len(encode) > FEWEST_PAIRS and spent > budget_s) or (len(encode) > 1 and spent > SLOW_BUDGET * budget_s):
            break
        baseline = of.eager
        if baseline is not None:
            slow.append(own_seconds(lambda baseline=baseline: [baseline(part) for part in parts.values()]))
        encode.append(own_seconds(lambda turn=turn: of.encode(parts, turn)))
        messages = of.encode(parts, turn)
        decode.append(own_seconds(lambda messages=messages: of.decode(messages)))
    slow, encode, decode = slow[1:], encode[1:], decode[1:]  # the first turn warms up
    ratios = [a / b for a, b in zip(slow, encode, strict=True)] if slow else []
    gb = 4 * gradients.num_coordinates / 1e9
    return Row(
        title=" ".join([of.entry.title, *case.split()[1:]]),
        unbiased=of.entry.unbiased,
        error=statistics.median(errors),
        error_low=min(errors),
        error_high=max(errors),
        bits_per_coordinate=bits,
        encode_gb_per_s=gb / statistics.median(encode),
        decode_gb_per_s=gb / statistics.median(decode),
        eager_gb_per_s=gb / statistics.median(slow) if slow else None,
        ratio=statistics.median(ratios) if ratios else None,
        ratio_low=min(ratios, default=None),
        ratio_high=max(ratios, default=None),
        pairs=len(encode),
    )


HEAD = (
    f"{'':34}{'error':>12}{'least .. largest':>24}{'bits':>9}{'encode':>9}{'decode':>9}{'eager':>9}"
    f"{'encode / eager':>24}"
)


def line(row: Row) -> str:
    """One line of the table."""
    baseline = (
        "   none"
        if row.ratio is None
        else f"{row.eager_gb_per_s:9.3f}{row.ratio:9.1f}x ({row.ratio_low:.1f} .. {row.ratio_high:.1f})"
    )
    mark = "" if row.reached else "   below"
    rates = f"{row.encode_gb_per_s:9.2f}{row.decode_gb_per_s:9.2f}"
    biased = "" if row.unbiased else " b"
    error = f"{row.error:12.4g}{f'{row.error_low:.4g} .. {row.error_high:.4g}':>24}"
    return f"{row.title + biased:34}{error}{row.bits_per_coordinate:9.4f}{rates}{baseline:32}{mark}"


def table(
    cases: Sequence[str],
    gradients: Gradients,
    pairs: int,
    budget_s: float,
    device: str = "cpu",
    failed: dict[str, str] | None = None,
    until: float = math.inf,
    save: Callable[[dict[str, Row]], None] = lambda rows: None,
) -> dict[str, Row]:
    """The rows of these methods, measured and printed one by one.

    failed: takes what a method failed with, by its case; without it such an error is raised.  until: by
    ``time.monotonic``; no method is begun after it.  save: takes the rows so far after each method.
    """
    rows: dict[str, Row] = {}
    print(HEAD, flush=True)
    for case in cases:
        if time.monotonic() > until:
            break
        try:
            rows[case] = measure(case, gradients, pairs, budget_s, device)
        except Exception as error:  # whatever a device refuses, the other methods are measured
            if failed is None:
                raise
            failed[case] = f"{type(error).__name__}: {error}"[:300]
            print(f"{case}: {failed[case]}", flush=True)
        else:
            print(line(rows[case]), flush=True)
        save(rows)
    return rows


def summary(rows: dict[str, Row], gradients: Gradients) -> dict[str, Any]:
    """The JSON object of one device; claims are null on a stand-in."""
    claims = {case: None if gradients.stand_in else row.reached for case, row in rows.items()}
    return {
        "methods": {case: {**asdict(row), "claim": claims[case]} for case, row in rows.items()},
        "below": [case for case, row in rows.items() if not row.reached],
        "claim": None if gradients.stand_in else all(row.reached for row in rows.values()),
    }


def copy_gb_per_s(num_coordinates: int, device: str = "cpu") -> float:
    """The speed of ``Tensor.copy_`` in GB/s, which is what memory can do."""
    source, target = torch.ones(num_coordinates, device=device), torch.zeros(num_coordinates, device=device)
    times = [own_seconds(lambda: target.copy_(source)) for _ in range(10)]
    return 4 * num_coordinates / statistics.median(times) / 1e9


def on_device(
    cases: Sequence[str],
    gradients: Gradients,
    pairs: int,
    budget_s: float,
    device: str,
    until: float = math.inf,
    save: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """The JSON object of one device; a method that fails there is told, and the others are measured.

    save: takes the object as it is known after each method.
    """
    name, failed = torch.cuda.get_device_name() if device == "cuda" else "CPU", {}
    print(f"\n{name}")
    learn, measured = ([vector.to(device) for vector in vectors] for vectors in (gradients.learn, gradients.measure))
    moved = Gradients(gradients.title, gradients.shapes, learn, measured, gradients.stand_in)
    copied = copy_gb_per_s(gradients.num_coordinates, device)

    def known(rows: dict[str, Row]) -> dict[str, Any]:
        not_reached = [case for case in cases if case not in rows and case not in failed]
        told = {"failed": failed, "not_reached": not_reached}
        return {"name": name, "copy_gb_per_s": copied, **summary(rows, moved), **told}

    return known(table(cases, moved, pairs, budget_s, device, failed, until, lambda rows: save(known(rows))))


def part_of(cases: Sequence[str], text: str) -> list[str]:
    """The cases of a part such as ``2/3``: every third one, from the second on.

    Raises ValueError where it is no such part.
    """
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise ValueError(f"--part {text}: must be a part such as 1/3, 2/3 or 3/3")
    return list(cases[int(number) - 1 :: int(parts)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, draw the figure, and print the JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", default=list(METHODS), metavar="METHOD", help='names, with settings: "topk ratio=0.1"'
    )
    parser.add_argument("--model", default="cifar_resnet18", choices=list(model_gradient.MODELS), help="whose gradient")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs of each method, for a look")
    parser.add_argument("--pairs", type=int, help=f"pairs of each method ({PAIRS}, or {QUICK_PAIRS})")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), help="this one alone (the CPU, then a GPU where there is one)"
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; of 1 its own time counts, else wall time")
    parser.add_argument(
        "--part", default="1/1", help="of the methods, such as 2/3: every third one, from the second on"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="with --device: after which no further method is begun"
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the figure (none: no figure)")
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    try:
        chosen.methods = part_of(chosen.methods, chosen.part)
        for case in chosen.methods:
            settings_of(case)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()  # every run does so; here it holds for both sides
    gradients = model_gradient.recorded(chosen.model)
    pairs, budget_s = (QUICK_PAIRS, QUICK_BUDGET_S) if chosen.quick else (PAIRS, BUDGET_S)
    pairs = chosen.pairs or pairs
    if chosen.device:
        told = {
            "gradient": gradients.title,
            "stand_in": gradients.stand_in,
            "num_coordinates": gradients.num_coordinates,
        }

        def save(found: dict[str, Any]) -> None:
            print(json.dumps(told | found), flush=True)

        found = on_device(chosen.methods, gradients, pairs, budget_s, chosen.device, until, save)
        save(found)
        if found["failed"] or not found["methods"]:
            raise SystemExit(1)
        return
    sets = native.instruction_sets()
    kernels = sets[-1] if sets else "no C++ kernels"
    memory = copy_gb_per_s(gradients.num_coordinates)
    how = f"{chosen.threads} threads, wall time" if chosen.threads > 1 else "1 thread, its own time"
    print(f"{gradients.title}: {gradients.num_coordinates:,} coordinates; {how}, {kernels}; copy_ {memory:.1f} GB/s")
    print(
        f"error: the median of {len(gradients.measure)} gradients, and their range; b: biased; below: neither 10x the "
        f"eager one nor 1 GB/s"
    )
    print("encode, decode, eager: GB/s of float32 input")
    rows = table(chosen.methods, gradients, pairs, budget_s)
    result = {
        "gradient": gradients.title,
        "stand_in": gradients.stand_in,
        "num_coordinates": gradients.num_coordinates,
        "threads": chosen.threads,
        "kernels": kernels,
        "copy_gb_per_s": memory,
        **summary(rows, gradients),
        "gpu": on_device(chosen.methods, gradients, pairs, budget_s, "cuda")
        if torch.cuda.is_available()
        else "not measured",
    }
    if gradients.stand_in:
        print("a stand-in's gradient: nothing is claimed")
    if chosen.out:
        from benchmarks import methods_figure  # matplotlib takes a second, and only the figure needs it

        for path in methods_figure.draw(rows, gradients.title, chosen.out):
            print(path)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
