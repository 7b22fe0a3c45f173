"""The command ``python -m analysis predict``: the time of a step with each method, by workers and bandwidth.

With the folders of runs it is the time to a target (``analysis.prediction.runs``).  Without them it gives three
answers: how far the model was off where it was measured, a table per number of workers, and the bandwidths at which a
method pays.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.prediction import profile, validate
from analysis.prediction.question import BASELINE, Question, Row
from analysis.prediction.ranges import bandwidths_of, counts_of
from files.aligned import aligned
from files.tables import add_json, as_json, beside_json, written_csv
from nuq.prediction import steps as predict
from nuq.prediction.message_size import DENSE, Format, MeasuredFormat, format_of, predicted, second_format
from nuq.prediction.rates import Profile
from nuq.prediction.steps import Variant
from nuq.prediction.units import duration, plain_break_even, quantity, shown_bandwidth, shown_gains
from nuq.registry import method

LETTERS = {"ring": "R", "tree": "T", "gather": "G", "two_stage": "S", "server": "P", "hierarchical": "H", "power": "F"}
WORKERS, BANDWIDTHS = "8..1024", "100M..400G"  # where nothing is asked
# options that speak of a model that is not trained yet, and options that speak of runs
OF_MODELS = (
    *("bits", "second_bits", "bucket_size", "collective", "per_machine", "local_bandwidth", "model", "parameters"),
    *("tensors", "compute", "validate", "keep"),
)
OF_RUNS = ("target", "latency", "every", "where")


# --- what was asked -----------------------------------------------------------------------------------------------


def rows_of(
    names: Sequence[str], bits: float | None, second_bits: float, bucket_size: int | None, found: Profile
) -> tuple[Row, ...]:
    """The rows of the table: fp32 and bf16, then the methods in the order of METHODS, those of equal cost together."""
    together: dict[Variant, list[str]] = {}
    for name in names:
        first = format_of(name, bits, bucket_size, found.formats)
        if first.kind not in DENSE:  # sgd exchanges nothing, supersgd is the fp32 row and bf16 the other
            variant = Variant(first, second_format(name, second_bits, bucket_size, found.formats))
            together.setdefault(variant, []).append(name)
    rows = [Row("fp32", ("supersgd",), Variant(Format("fp32", 32), Format("fp32", 32)))]
    rows.append(Row(BASELINE, (BASELINE,), Variant(Format("bf16", 16), Format("bf16", 16))))
    return (*rows, *(Row(_label(alike), tuple(alike), variant) for variant, alike in together.items()))


def _label(names: Sequence[str]) -> str:
    first = "alq" if "alq" in names else names[0]
    return first + (f" +{len(names) - 1}" if names[1:] else "")


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command and its options."""
    parser = commands.add_parser(
        "predict",
        help="step times by workers and bandwidth, and the break-even bandwidths, from measured rates",
        epilog="break_even_bit_s is the bandwidth below which a method pays; where it never or always does, the JSON "
        'says "never" or "always" and the CSV 0 or inf; pays_from_bit_s is the bandwidth above which it does, 0 where '
        "it pays on the slowest links, too; fp32 and bf16 have neither (null, empty).",
    )
    add = parser.add_argument
    add(
        "folders",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="folders of runs, or a sweep's: the seconds that they would take to a target over other links, from their "
        "logs (default: step times of --model)",
    )
    add(
        "--workers",
        metavar="LOW..HIGH",
        help=f"in powers of two, or a list (default: {WORKERS}; with RUN the runs' own)",
    )
    add(
        "--bandwidth",
        metavar="LOW..HIGH",
        help=f"bit/s of a machine's link, or a list (default: {BANDWIDTHS}; with RUN 10M..10G)",
    )
    of_runs = parser.add_argument_group("with RUN alone").add_argument
    of_runs("--target", help="validation accuracy in percent, or loss=VALUE (default: what the least good run reaches)")
    of_runs("--every", metavar="LOW..HIGH", help="H, steps of a round, likewise (default: the runs' own)")
    of_runs(
        "--latency",
        type=float,
        metavar="SECONDS",
        help="from a message's sending to its arrival (default: the profile's)",
    )
    of_runs("--where", nargs="+", default=[], metavar="NAME=VALUE", help="runs with these settings alone")
    add("--methods", nargs="+", metavar="NAME", help="default: all of measured rates, or of the runs")
    add("--bits", type=float, help="of every quantizer whose length follows from them (default: its own)")
    add("--second_bits", type=float, default=4, help="of the second encoding of two_stage and server (default: 4)")
    add("--bucket_size", type=int, help="coordinates that share a scale (default: the method's own)")
    add(
        "--collective",
        choices=("auto", *predict.SPARSE_COLLECTIVES),
        default="auto",
        help="default: auto, the quickest predicted (nuq itself takes the fewest bytes within a bound on the error)",
    )
    add("--per_machine", type=int, default=1, help="workers that share a machine and its link (default: 1)")
    add("--local_bandwidth", default="100G", help="bit/s of a worker's link inside its machine (default: 100G)")
    add(
        "--model",
        help="a model of the profile: its buckets (default: mlp where neither this nor --parameters is given)",
    )
    add("--parameters", help="of a model of many tensors, such as 11.2M, in place of --model")
    add("--tensors", type=int, default=0, help="how many tensors these parameters make up (default: one per 200,000)")
    add("--compute", type=float, help="seconds of a step without its exchange (default: the profile's)")
    add(
        "--profile",
        type=Path,
        default=profile.DEFAULT,
        help="measured rates: a file of python -m benchmarks.speed rates (default: the repository's)",
    )
    add_json(parser)
    add("--csv", type=Path, help="write every number here too")
    add(
        "--figure",
        type=Path,
        help="draw speed-up over bf16 against bandwidth, with RUN a map of the fastest methods: the path of a PNG; a "
        "PDF is written beside it",
    )
    add(
        "--validate",
        type=Path,
        metavar="FILE",
        help="predict the runs of a file of python -m benchmarks.links wire --out, and print the errors",
    )
    add("--keep", action="store_true", help="with --validate: store the errors in the profile, which then states them")
    parser.set_defaults(of_models={name: parser.get_default(name) for name in OF_MODELS})


def _question(options: argparse.Namespace) -> Question:
    found = profile.read(options.profile)
    if options.parameters is not None and options.model is not None:
        raise ValueError("--model and --parameters: give one of them, a model of the profile has its own parameters")
    if options.parameters is not None:
        parameters = quantity(options.parameters, "--parameters")
        if parameters % 1 or options.tensors < 0 or options.tensors > parameters:
            raise ValueError(
                f"--parameters {options.parameters} --tensors {options.tensors}: whole numbers, no more tensors than "
                f"parameters"
            )
        model = predict.ddp_buckets(int(parameters), options.tensors)
    else:
        model = validate.model_of(next(iter(found.models), "") if options.model is None else options.model, found)
    compute_s = found.compute_s if options.compute is None else options.compute
    if not (math.isfinite(compute_s) and compute_s >= 0):
        raise ValueError(f"--compute {compute_s}: must be seconds, at least 0")
    if options.bucket_size is not None and options.bucket_size < 1:
        raise ValueError(f"--bucket_size {options.bucket_size}: must be at least 1")
    names = options.methods or predicted(found.formats)
    for name in names:
        method(name)
    if not (options.second_bits % 1 == 0 and 1 <= options.second_bits <= 8):
        raise ValueError(f"--second_bits {options.second_bits:g}: must be a whole number from 1 to 8")
    rows = rows_of(names, options.bits, options.second_bits, options.bucket_size, found)
    local = quantity(options.local_bandwidth, "--local_bandwidth")
    return Question(found, model, compute_s, rows, options.per_machine, local, options.collective)


# --- what is answered ---------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 2 with a sentence where the request does not exist."""
    try:
        if options.folders:
            if given := [name for name, default in options.of_models.items() if getattr(options, name) != default]:
                raise ValueError(f"--{given[0]}: has no effect on RUN, whose model, messages and times are in its logs")
            from analysis.prediction.runs_answer import answer  # pandas takes a second to import

            answer(options)
            return 0
        if given := [name for name in OF_RUNS if getattr(options, name) not in (None, [])]:
            raise ValueError(f"--{given[0]}: is asked of runs; give RUN, the folder of a run or of a sweep")
        if options.validate:
            found = profile.read(options.profile)
            checked = validate.validated(validate.read_rows(options.validate), found, options.bits, options.second_bits)
            print(validate.text(checked))
            if options.keep:
                profile.write(replace(found, validation=checked.summary()), options.profile)
                print(options.profile)
            return 0
        if options.keep:
            raise ValueError("--keep: stores the errors of --validate FILE, which is not given")
        question = _question(options)
        workers = counts_of(WORKERS if options.workers is None else options.workers)
        bandwidths = bandwidths_of(BANDWIDTHS if options.bandwidth is None else options.bandwidth)
        if bad := [count for count in workers if options.per_machine < 1 or count % min(options.per_machine, count)]:
            raise ValueError(
                f"--per_machine {options.per_machine}: must be at least 1 and divide every number of --workers, "
                f"{bad[0]} too"
            )
        rows = list(records(question, workers, bandwidths)) if options.csv or options.json else []
        written = written_csv(rows, options.csv)
        if options.figure:
            from analysis.prediction.figure import draw  # matplotlib takes a second to import

            written += draw(question, workers, bandwidths, options.figure)
        with beside_json(options.json):
            _answer(question, workers, bandwidths)
            for path in written:
                print(path)
        if options.json:
            print(as_json([_plain(row) for row in rows]))
    except (ValueError, OSError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"error: {said}", file=sys.stderr)
        return 2
    return 0


def _answer(question: Question, workers: Sequence[int], bandwidths: Sequence[float]) -> None:
    asked = question.profile
    asked_of = itertools.product(question.rows, workers, bandwidths)
    used = {question.step(row, count, speed).collective for row, count, speed in asked_of}
    sizes = ", ".join(f"{bucket.coordinates / 1e6:.3g} M" for bucket in question.model.buckets[:4])
    more = ", .." if len(question.model.buckets) > 4 else ""
    buckets = f"{len(question.model.buckets)} DDP buckets ({sizes}{more})"
    work = f"{duration(question.compute_s)} of computation a step"
    computes = ", which computes, too" * asked.shared_core
    print(f"{question.model.parameters / 1e6:.4g} M parameters in {buckets}, {work}; {asked.about}{computes}")
    print(validate.statement(asked.validation, max(workers), max(bandwidths)))
    for count in workers:
        print(f"\n{count:,} workers: step time, speed-up over bf16, collective")
        print(_table(question, count, bandwidths))
    print("\nbreak-even: quicker than bf16 at these bandwidths (bit/s)")
    heading = ["", *(str(count) for count in workers)]
    pays = {row.label: [shown_gains(*question.gains(row, count)) for count in workers] for row in question.rows[2:]}
    print(aligned([heading, *([label, *found] for label, found in pays.items())]))
    print("always: even where the link is as fast as the processor can feed it\n")
    print(", ".join(f"{letter} {name}" for name, letter in LETTERS.items() if name in used))
    for row in question.rows[2:]:
        if row.methods[1:]:
            print(f"{row.label}: {', '.join(row.methods)}, which cost the same")
    if measured := [row.label for row in question.rows if isinstance(row.variant.first, MeasuredFormat)]:
        print(f"with their default settings: {', '.join(measured)}")
    if any(row.variant.first.kind == "lattice" for row in question.rows):
        print(
            "ecdq: entropy-coded, taken to spend the bits of its setting, as on normal coordinates; real gradients "
            "take fewer"
        )


def _table(question: Question, workers: int, bandwidths: Sequence[float]) -> str:
    baseline = [question.step(question.rows[1], workers, speed).step_s for speed in bandwidths]
    lines = [["", *(shown_bandwidth(speed) for speed in bandwidths)]]
    for row in question.rows:
        lines.append([row.label])
        for base, speed in zip(baseline, bandwidths, strict=True):
            found = question.step(row, workers, speed)
            lines[-1].append(f"{duration(found.step_s)} {base / found.step_s:4.2f}{LETTERS[found.collective]}")
    return aligned(lines)


def _plain(row: Mapping[str, object]) -> Mapping[str, object]:
    """A record for JSON: numbers as numbers, null where there is none, a word where a method never or always pays."""
    words = ("method", "collective")
    found = {
        name: float(value or "nan") if isinstance(value, str) and name not in words else value
        for name, value in row.items()
    }
    even = found["break_even_bit_s"]
    return {**found, "break_even_bit_s": plain_break_even(even) if isinstance(even, float) else even}


def records(question: Question, workers: Sequence[int], bandwidths: Sequence[float]) -> Iterator[Mapping[str, object]]:
    """One record per method, number of workers and bandwidth."""
    for count in workers:
        pays = {row: question.gains(row, count) for row in question.rows[2:]}
        for speed in bandwidths:
            baseline = question.step(question.rows[1], count, speed).step_s
            for row in question.rows:
                found = question.step(row, count, speed)
                for name in row.methods:
                    yield {
                        "workers": count,
                        "bandwidth_bit_s": round(speed),
                        "method": "fp32" if row.label == "fp32" else name,
                        "step_s": f"{found.step_s:.6g}",
                        "exposed_s": f"{found.exposed_s:.6g}",
                        "speedup_vs_bf16": f"{baseline / found.step_s:.4f}",
                        "collective": found.collective,
                        "bytes_sent_per_step": found.bytes_sent,
                        "pays_from_bit_s": f"{pays[row][0]:.4g}" if row in pays else "",
                        "break_even_bit_s": f"{pays[row][1]:.4g}" if row in pays else "",
                    }
