"""The speed of the operators: encode, decode and rotation.

The figures are GB/s of float32 input (4 bytes a coordinate, whatever the input's type), medians and quartiles.  The
measure is ``Tensor.copy_`` into memory that was written before, of the same float32 coordinates, timed right before
every call; the ratio is taken pair by pair.  The baseline is the eager reference (``nuq.kernels.reference``), timed in
the same run on fewer coordinates.

On a GPU a call is timed twice: as a user has it, with the launch and the look at its scales, and its kernels alone,
which wait on the GPU until they and the clock's events are all launched (``kernel``).

``correlated_cost`` is the time of encoding with the random numbers of one of three workers that round together over
that of a worker by itself; no number of workers takes more or less.

The distance from the memory's limit, and its reasons (AVX-512 on Sapphire Rapids, 2 threads, copy_ 12.4 GB/s; it reads
4 bytes and writes 4 a coordinate; medians of three runs, which differ by 5 %):

- Encoding moves 4.4 to 4.5 bytes a coordinate, so memory alone would allow a ratio of 1.8; measured 1.29 (uniform, 4
  bits) and 1.04 (levels, 3 bits).  The limit is arithmetic: 16 coordinates take about 28 vector instructions (10 for
  the norm in float64, 9 for the hash, 9 to round and pack), 39 with a search among levels, and two of them start in a
  cycle.  A bucket stays in cache between its norm and its codes, and the next one is fetched meanwhile.  Out of its
  cache one core encodes 10 and 7.5 GB/s, calls included.
- Decoding into a total moves 8.4 bytes: a ratio of .95 where the copy moves no more than its 8, of 1.4 where it fetches
  the lines that it overwrites; measured 1.76, since one stream of pages, asked for two pages ahead, runs better than
  two.  This is the memory's limit.
- The rotation moves 8 bytes: measured 1.36, at 24 vector instructions for 16 coordinates; out of cache 13 GB/s a core.
- AVX2: 1.03, .76, 1.57, .98; baseline (SSE2): .53, .24, 1.03, .63.  Level sets above 32 (AVX2: 16) levels need lookups
  in memory: .37 at 8 bits.  One bucket in all is read twice: .96.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.timing import in_turns, print_rows, seconds, spread
from nuq import native
from nuq.kernels import bit_packing, reference, spec
from nuq.kernels import operators as operators  # registers torch.ops.nuq

THREADS = 2
PAUSE_CYCLES = 5_000_000  # of a GPU, milliseconds: longer than any launch takes
EAGER_SIZE = 1 << 21
WORDS = (1, 2)
NOT_MEASURED = "not measured"
MAIN = ("encode_uniform_4bit", "encode_levels_3bit", "decode_accumulate_3bit", "hadamard_1024")


@dataclass(frozen=True)
class Row:
    """One operation: ``kind`` is encode (levels), uniform, decode or hadamard.

    ``bucket_size`` 0 is one bucket in all.
    """

    name: str
    kind: str
    num_levels: int = 2
    bucket_size: int = 8192
    norm: str = "l2"
    dtype: torch.dtype = torch.float32
    dither: bool = False
    block: int = 1024
    among: spec.Among = spec.ALONE


ROWS = (Row(MAIN[0], "uniform", 16), Row(MAIN[1], "encode", 8), Row(MAIN[2], "decode", 8), Row(MAIN[3], "hadamard"))
MORE_ROWS = (
    Row("uniform, 1 bit", "uniform", 2),
    Row("uniform, 2 bits", "uniform", 4),
    Row("uniform, 8 bits", "uniform", 256),
    Row("uniform, ternary", "uniform", 3),
    Row("uniform, 4 bits, bf16", "uniform", 16, dtype=torch.bfloat16),
    Row("uniform, 4 bits, linf", "uniform", 16, norm="linf"),
    Row("uniform, 4 bits, buckets of 512", "uniform", 16, bucket_size=512),
    Row("uniform, 4 bits, one bucket", "uniform", 16, bucket_size=0),
    Row("levels, 3 bits, bf16", "encode", 8, dtype=torch.bfloat16),
    Row("levels, 3 bits, quantile", "encode", 8, norm="quantile"),
    Row("levels, 3 bits, buckets of 512", "encode", 8, bucket_size=512),
    Row("levels, 4 bits", "encode", 16),
    Row("levels, 8 bits", "encode", 256),
    Row("decode, 4 bits", "decode", 16),
    Row("decode, 4 bits, dither", "decode", 16, dither=True),
    Row("decode, 8 bits", "decode", 256),
    Row("rotation, blocks of 65536", "hadamard", block=1 << 16),
)


@dataclass(frozen=True)
class Prepared:
    """A row on memory of its own: the call, and the bytes that have to be read and written."""

    call: Callable[[Any], None]  # takes the module that implements the operators
    num_bytes: int
    size: int


def levels_of(count: int) -> Tensor:
    """Levels for normal coordinates in units of the norm of 8192: dense around zero.

    No kernel's time depends on their indices.
    """
    return torch.linspace(-1, 1, count).pow(3)


def prepare(row: Row, size: int, device: str) -> Prepared:
    """A row with its memory allocated and written, so that no timed call touches a page first."""
    generator = torch.Generator(device).manual_seed(1)
    vector = torch.randn(size, generator=generator, device=device).to(row.dtype)
    if row.kind == "hadamard":
        return Prepared(lambda by: by.hadamard_(vector, row.block, *WORDS, False), 8 * size, size)
    bucket_size = row.bucket_size or size
    packing = bit_packing.packing(row.num_levels)
    levels = levels_of(row.num_levels).to(device)
    scales = torch.zeros(spec.num_buckets(size, bucket_size) * spec.scales_per_bucket(row.norm), device=device)
    packed = torch.zeros(bit_packing.packed_bytes(size, packing), dtype=torch.uint8, device=device)
    num_bytes = vector.numel() * vector.element_size() + packed.numel() + 4 * scales.numel()
    given = None if row.kind == "uniform" else levels
    noise = (*WORDS, *row.among)
    call = (vector, given, row.num_levels, scales, packed, bucket_size, row.norm, 0.0, packing, noise, True)
    if row.kind in ("uniform", "encode"):
        return Prepared(lambda by: by.encode_(*call), num_bytes, size)
    torch.ops.nuq.encode_(*call)
    arguments = (bucket_size, packing, True, row.dither, *WORDS)
    return Prepared(lambda by: by.decode_(packed, scales, levels, vector, *arguments), num_bytes + 4 * size, size)


def gpu_seconds(call: Callable[[], object]) -> float:
    """The time of what one call starts on the GPU, by the GPU's own clock."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def kernel_seconds(call: Callable[[], object]) -> float:
    """The time of the kernels of one call alone: they begin after a pause, within which they are launched.

    Encoding does not look at its scales, which would wait for the pause.
    """
    from nuq.kernels.cuda import operators

    with mock.patch.object(operators, "check_scales", lambda *_: None):
        torch.cuda._sleep(PAUSE_CYCLES)
        return gpu_seconds(call)


@dataclass(frozen=True)
class Timed:
    """The seconds of a row's calls, and of the copies before each."""

    seconds: list[float]
    copies: list[float]
    size: int
    num_bytes: int

    @property
    def gb_per_s(self) -> float:
        return 4 * self.size / statistics.median(self.seconds) / 1e9

    def ratios(self) -> tuple[float, float, float]:
        """The ratios of the copy's time to the row's: median and quartiles."""
        return spread(self.copies, self.seconds)

    def figures(self) -> dict[str, Any]:
        """The speed, and the ratio to the copy with its quartiles."""
        middle, low, high = self.ratios()
        return {"gb_per_s": self.gb_per_s, "ratio": {"median": middle, "low": low, "high": high}}

    def fraction_of_peak(self) -> float:
        """The bytes that have to move, in units of what the copy moves in the same time.

        The copy reads and writes 4 bytes a coordinate.
        """
        return self.ratios()[0] * self.num_bytes / (8 * self.size)


def measure(
    rows: tuple[Row, ...],
    size: int,
    repeats: int,
    device: str,
    by: Any = torch.ops.nuq,
    clock: Callable[[Callable[[], object]], float] | None = None,
) -> dict[str, Timed]:
    """The times of the rows in turns, a copy before every call; the first turn warms up."""
    seconds_of = clock or (gpu_seconds if device == "cuda" else seconds)
    source, target = torch.ones(size, device=device), torch.zeros(size, device=device)
    prepared = {row.name: prepare(row, size, device) for row in rows}
    measures: dict[tuple[str, str], Callable[[], float]] = {}
    for name, row in prepared.items():
        measures["copy", name] = lambda: seconds_of(lambda: target.copy_(source))
        measures["own", name] = lambda row=row: seconds_of(lambda: row.call(by))
    times = in_turns(measures, repeats)
    return {name: Timed(times["own", name], times["copy", name], size, row.num_bytes) for name, row in prepared.items()}


def print_timed(title: str, timed: dict[str, Timed], eager: dict[str, Timed] | None = None) -> None:
    of_eager = (
        {name: {"over eager": row.gb_per_s / eager[name].gb_per_s} for name, row in timed.items()} if eager else {}
    )
    print_rows(title, {name: row.figures() | of_eager.get(name, {}) for name, row in timed.items()})


def correlated_cost(size: int, repeats: int) -> dict[str, float]:
    """The time of correlated rounding over that of independent rounding, pair by pair: medians, which are printed."""
    rows = {}
    for row in ROWS[:2]:
        pair = (row, replace(row, name="correlated", among=(1, 3)))
        alone, correlated = measure(pair, size, repeats, "cpu").values()
        rows[row.name] = dict(zip(("median", "low", "high"), spread(correlated.seconds, alone.seconds), strict=True))
    print_rows("", {name: {"correlated over independent": row} for name, row in rows.items()})
    return {name: row["median"] for name, row in rows.items()}


def fractions(size: int, repeats: int, device: str) -> Iterator[dict[str, Any]]:
    """The fractions of the copy's bandwidth on one device, whose name is among them; what is known after each row."""
    on_gpu = device == "cuda"
    gpu: dict[str, Any] = {"name": torch.cuda.get_device_name() if on_gpu else "CPU", "size": size}
    clocks = {"": None} | ({"kernel_": kernel_seconds} if on_gpu else {})
    print(f"\n{gpu['name']}")
    for row in ROWS + MORE_ROWS:
        for kind, clock in clocks.items():
            found = measure((row,), size, repeats, device, clock=clock)[row.name]
            fraction, copy = found.fraction_of_peak(), 8e-9 * size / statistics.median(found.copies)
            figures = {
                "gb_per_s": found.gb_per_s,
                "fraction_of_peak": fraction,
                "copy_read_and_written_gb_per_s": copy,
            }
            for figure, value in figures.items():
                gpu.setdefault(kind + figure, {})[row.name] = value
            of = "the kernels alone" if clock else "the call"
            print(f"{row.name:36}{of}: {found.gb_per_s:.1f} GB/s, {fraction:.2f} of the copy's {copy:.0f} GB/s")
        known = gpu["fraction_of_peak"]
        yield {
            "encode_fraction_of_peak": known.get(MAIN[0], NOT_MEASURED),
            "decode_fraction_of_peak": known.get(MAIN[2], NOT_MEASURED),
            "gpu": gpu,
        }


def figures(size: int, repeats: int, device: str | None) -> dict[str, Any]:
    """The figures of a processor and, where there is one, a GPU; of one device alone the fractions of its bandwidth."""
    torch.set_num_threads(THREADS)
    known: dict[str, Any] = {}
    if device:
        for known in fractions(size, repeats, device):
            print(json.dumps(known), flush=True)  # all that there is where a limit ends the process
        return known
    sets = native.instruction_sets()
    if not sets:
        print(f"The C++ kernels are not built: the reference, on at most {EAGER_SIZE} coordinates")
        size = min(size, EAGER_SIZE)
    eager = measure(ROWS, min(size, EAGER_SIZE), 3, "cpu", reference)
    timed = measure(ROWS, size, repeats, "cpu")
    copy_gb_per_s = 4e-9 * size / statistics.median(seconds for row in timed.values() for seconds in row.copies)
    isa = sets[-1] if sets else "none"
    print(f"{size} coordinates, {THREADS} threads, {isa}; copy_: {copy_gb_per_s:.1f} GB/s; ratios to copy_")
    print_timed("buckets of 8192, l2", timed, eager)
    operations = {isa: {name: row.figures() for name, row in timed.items()}}
    for name in sets[:-1]:
        with native.using(name):
            print_timed(name, of_set := measure(ROWS, size, max(5, repeats // 3), "cpu"))
        operations[name] = {row: found.figures() for row, found in of_set.items()}
    gpu: dict[str, Any] = {"encode_fraction_of_peak": NOT_MEASURED, "decode_fraction_of_peak": NOT_MEASURED}
    if torch.cuda.is_available():
        *_, gpu = fractions(size, repeats, "cuda")
    return {
        **{name: timed[name].ratios()[0] for name in MAIN},
        "correlated_cost": correlated_cost(size, repeats) if sets else NOT_MEASURED,
        "speedup_vs_eager": {name: timed[name].gb_per_s / eager[name].gb_per_s for name in MAIN},
        "gb_per_s": {"copy_": copy_gb_per_s, **{name: timed[name].gb_per_s for name in MAIN}},
        "operations": {"widest": operations[isa], **operations},
        "threads": THREADS,
        "isa": isa,
        **gpu,
    }
