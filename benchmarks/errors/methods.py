"""Every method of METHODS on one gradient: error, bits, speed.

The gradient is a real one of 11 million coordinates, of a ResNet-18 on CIFAR-10 or, with ``--model gpt``, of a GPT on
text (if the images are not there, a stand-in's, and then nothing is claimed).  A method may come with settings:
``--methods qsgd "topk ratio=0.001"``.

- error: ``|x - C(x)|^2 / |x|^2`` of what another instance decodes from the bytes: the median over the gradients of
  three steps, each under a key of its own (least .. largest). Adaptive methods learn their levels from two earlier
  steps; what remembers goes through the three in turn.
- bits: ``8 * bytes / coordinates``, of whole messages; with ``scope=tensor``, of one message per parameter.
- GB/s of float32 input: ``encode`` up to the bytes with their checksum, ``decode`` from them to float32.  Medians.
- eager: the method as a user would write it in PyTorch (``benchmarks.eager``), which stops before the bytes, timed
  right before every encoding. The ratio is taken pair by pair: median (least .. largest).

``--threads 1`` measures that thread's own time, which others that load the machine change little.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import eager
from benchmarks.errors import gradients
from benchmarks.errors.contenders import Contender, settings_of
from benchmarks.errors.gradients import Gradients
from benchmarks.timing import own_seconds
from nuq import native
from nuq.registry import METHODS
from train.process.memory import keep_freed_memory

LEAST_GB_PER_S, LEAST_RATIO = 1.0, 10.0
PAIRS, FEWEST_PAIRS, BUDGET_S = 9, 3, 20.0
QUICK_PAIRS, QUICK_BUDGET_S = 3, 5.0
SLOW_BUDGET = 3  # times the budget: then one pair is enough


Row = dict[str, Any]


def reached(row: Row) -> bool:
    """Whether the claim holds."""
    return row["encode_gb_per_s"] >= LEAST_GB_PER_S or (row["ratio"] or 0.0) >= LEAST_RATIO


def measure(text: str, source: Gradients, pairs: int = PAIRS, budget_s: float = BUDGET_S) -> Row:
    """The row of one method: its accuracy, then eager, encode and decode in turns.

    The turns end when there are enough pairs or the time is up.
    """
    of = Contender(text, source)
    baseline = eager.of(of.name, of.settings, of.compressor)
    errors, bits = of.accuracy()
    parts = of.parts(source.measure[0])
    slow: list[float] = []
    encode: list[float] = []
    decode: list[float] = []
    began = time.perf_counter()
    for turn in range(pairs + 1):
        spent = time.perf_counter() - began
        if (len(encode) > FEWEST_PAIRS and spent > budget_s) or (len(encode) > 1 and spent > SLOW_BUDGET * budget_s):
            break
        if baseline is not None:
            slow.append(own_seconds(lambda baseline=baseline: [baseline(part) for part in parts.values()]))
        encode.append(own_seconds(lambda turn=turn: of.encode(parts, turn)))
        messages = of.encode(parts, turn)
        decode.append(own_seconds(lambda messages=messages: of.decode(messages)))
    slow, encode, decode = slow[1:], encode[1:], decode[1:]  # the first turn warms up
    ratios = [a / b for a, b in zip(slow, encode, strict=True)] if slow else []
    gb = 4 * source.num_coordinates / 1e9
    return {
        "title": " ".join([of.entry.title, *text.split()[1:]]),
        "unbiased": of.entry.unbiased,
        "error": statistics.median(errors),
        "error_low": min(errors),
        "error_high": max(errors),
        "bits_per_coordinate": bits,
        "encode_gb_per_s": gb / statistics.median(encode),
        "decode_gb_per_s": gb / statistics.median(decode),
        "eager_gb_per_s": gb / statistics.median(slow) if slow else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "ratio_low": min(ratios, default=None),
        "ratio_high": max(ratios, default=None),
        "pairs": len(encode),
    }


def table(
    cases: Sequence[str],
    source: Gradients,
    pairs: int,
    budget_s: float,
    failed: dict[str, str] | None = None,
    until: float = math.inf,
    save: Callable[[dict[str, Row]], None] = lambda rows: None,
) -> dict[str, Row]:
    """The rows of these methods, measured one by one.

    failed: takes what a method failed with, by its case; without it such an error is raised.  until: by
    ``time.monotonic``; no method is begun after it.  save: takes the rows so far after each method.
    """
    rows: dict[str, Row] = {}
    for case in cases:
        if time.monotonic() > until:
            break
        try:
            rows[case] = measure(case, source, pairs, budget_s)
        except Exception as error:  # whatever a device refuses, the other methods are measured
            if failed is None:
                raise
            failed[case] = f"{type(error).__name__}: {error}"[:300]
        print(f"{case}: {failed[case] if failed and case in failed else 'measured'}", flush=True)
        save(rows)
    return rows


def summary(rows: dict[str, Row], source: Gradients) -> dict[str, Any]:
    """The JSON object of one device; claims are null on a stand-in."""
    claims = {case: None if source.stand_in else reached(row) for case, row in rows.items()}
    return {
        "methods": {case: {**row, "claim": claims[case]} for case, row in rows.items()},
        "below": [case for case, row in rows.items() if not reached(row)],
        "claim": None if source.stand_in else all(reached(row) for row in rows.values()),
    }


def copy_gb_per_s(num_coordinates: int, device: str = "cpu") -> float:
    """The speed of ``Tensor.copy_`` in GB/s, which is what memory can do."""
    source, target = torch.ones(num_coordinates, device=device), torch.zeros(num_coordinates, device=device)
    times = [own_seconds(lambda: target.copy_(source)) for _ in range(10)]
    return 4 * num_coordinates / statistics.median(times) / 1e9


def on_device(
    cases: Sequence[str],
    source: Gradients,
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
    learn, measured = ([vector.to(device) for vector in vectors] for vectors in (source.learn, source.measure))
    moved = replace(source, learn=learn, measure=measured)
    copied = copy_gb_per_s(source.num_coordinates, device)

    def known(rows: dict[str, Row]) -> dict[str, Any]:
        not_reached = [case for case in cases if case not in rows and case not in failed]
        told = {"failed": failed, "not_reached": not_reached}
        return {"name": name, "copy_gb_per_s": copied, **summary(rows, moved), **told}

    return known(table(cases, moved, pairs, budget_s, failed, until, lambda rows: save(known(rows))))


def part(text: str) -> slice:
    """The slice of a part such as ``2/3``: every third one, from the second on.  ValueError if it is no such part."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise ValueError(f"--part {text}: must be a part such as 1/3, 2/3 or 3/3")
    return slice(int(number) - 1, None, int(parts))


def case(text: str) -> str:
    """A method with settings, both legal; ValueError if they are not."""
    settings_of(text)
    return text


def checked(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """The check as argparse takes it, with its own sentence."""

    def of_word(text: str) -> Any:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return of_word


def options(parser: argparse.ArgumentParser) -> None:
    add, one = parser.add_argument, "this one alone (the CPU, then a GPU if there is one)"
    named = {"nargs": "+", "default": list(METHODS), "metavar": "METHOD", "type": checked(case)}
    add("--methods", help='names, with settings: "topk ratio=0.1"', **named)
    add("--model", default="cifar_resnet18", choices=gradients.LARGE, help="whose gradient")
    add("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs of each method, for a look")
    add("--pairs", type=int, help=f"pairs of each method ({PAIRS}, or {QUICK_PAIRS})")
    add("--device", choices=("cuda", "cpu"), help=one)
    add("--threads", type=int, default=2, help="CPU threads; of 1 its own time counts, else wall time")
    add(
        "--part", default="1/1", type=checked(part), help="of the methods, such as 2/3: every third, from the second on"
    )
    add("--seconds", type=float, default=math.inf, help="with --device: after which no further method is begun")
    add("--out", type=Path, help="folder of the figure (none: no figure)")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure, print the table, and draw the figure.

    Raises SystemExit(1) after the JSON object if a method failed on the device that was asked for.
    """
    until = time.monotonic() + chosen.seconds
    cases = chosen.methods[chosen.part]
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()  # every run does so; here it holds for both sides
    source = gradients.or_stand_in(chosen.model)
    pairs, budget_s = (QUICK_PAIRS, QUICK_BUDGET_S) if chosen.quick else (PAIRS, BUDGET_S)
    how = cases, source, chosen.pairs or pairs, budget_s
    told = {"gradient": source.title, "stand_in": source.stand_in, "num_coordinates": source.num_coordinates}
    if chosen.device:
        found = on_device(*how, chosen.device, until, lambda found: print(json.dumps(told | found), flush=True))
        if found["failed"] or not found["methods"]:
            print(json.dumps(told | found))
            raise SystemExit(1)
        return told | found
    sets = native.instruction_sets()
    told |= {"threads": chosen.threads, "kernels": sets[-1] if sets else "no C++ kernels"}
    told |= {"copy_gb_per_s": copy_gb_per_s(source.num_coordinates)}
    rows = table(*how)
    gpu = on_device(*how, "cuda") if torch.cuda.is_available() else "not measured"
    if chosen.out:
        from benchmarks.errors import figures  # matplotlib takes a second, and only the figure needs it

        figures.draw_methods(rows, source.title, LEAST_GB_PER_S, chosen.out)
    return {**told, **summary(rows, source), "gpu": gpu}
