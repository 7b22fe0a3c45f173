"""The cost of encoding, framing and decoding a step's gradient, against another version of the library.

Run it as ``python -m benchmarks.exchange --against DIR [--quick]``.

DIR is another checkout, say of the commit before (``git worktree add DIR HEAD~1``), with its own C++ kernels
(``python -m nuq.native``, run in DIR); without one only this version is measured.  A step encodes one worker's
gradient, one vector per tensor, and adds the decoded payloads of 2, 8 and 32 simulated peers; nothing is sent.  The
gradients are normal coordinates in the shapes of

- small: the 107 tensors of ResNet-50 below 4,096 coordinates;
- large: its 54 others (``resnet50``: the sum of both);
- resnet18: ResNet-18 for images of 32x32, 62 tensors, 11.17 million coordinates.

Each version has a process of its own with one thread (``benchmarks.exchange_child``).  They measure in turns, whoever
was first in one round is last in the next, and a ratio is taken round by round: the tables have its median and
quartiles.  After some rounds they make room for new processes, as one can be faster than its equal by where its memory
lies.  Seconds are processor time.  Calls are those of functions of Python and C that Python makes
(``sys.setprofile``).  The last line is one JSON object: ``speedup_small_tensors`` is the rival's time over ours for ALQ
and the small tensors, the median over the numbers of peers; ``slowdown_large`` ours over the rival's for the others, of
the method and the model where it is largest.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.timing import spread
from files.aligned import aligned

ROOT = Path(__file__).parent.parent
CHILD = Path(__file__).with_name("exchange_child.py")
METHODS: dict[str, dict[str, Any]] = {"alq": {"bits": 3}, "qsgdinf": {"bits": 4}, "supersgd": {}, "topk": {}}
SMALL = 4096  # coordinates
PARTS = {"small": 2, "large": 1, "resnet18": 1}  # steps of one measurement
STAGES = ("encode", "decode")
WHOLE = "resnet50"  # of the parts small and large
OURS, RIVAL = "ours", "rival"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# glibc keeps what is freed: with fresh pages a copy of 100 MB takes from one to two times as long, as chance has it
REUSED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    return {f"{name}.weight": (channels,), f"{name}.bias": (channels,)}


def resnet(blocks: Sequence[int], *, bottleneck: bool, stem: int, classes: int, width: int = 64) -> Shapes:
    """The shapes of a ResNet's parameters (He et al., CVPR 2016), named as in torchvision.

    blocks: of the four stages; stem: kernel size of the first layer; width: channels of the first layer.
    """
    shapes: Shapes = {"conv1.weight": (width, 3, stem, stem), **norm("bn1", width)}
    inside = width
    for stage, count in enumerate(blocks):
        channels = width << stage
        outside = 4 * channels if bottleneck else channels
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            layers = [(channels, 1), (channels, 3), (outside, 1)] if bottleneck else [(channels, 3), (channels, 3)]
            given = inside
            for number, (made, kernel) in enumerate(layers, 1):
                shapes[f"{name}.conv{number}.weight"] = (made, given, kernel, kernel)
                shapes |= norm(f"{name}.bn{number}", made)
                given = made
            if block == 0 and inside != outside:
                shapes[f"{name}.downsample.0.weight"] = (outside, inside, 1, 1)
                shapes |= norm(f"{name}.downsample.1", outside)
            inside = outside
    return {**shapes, "fc.weight": (classes, inside), "fc.bias": (classes,)}


def shapes_of(part: str, width: int = 64) -> Shapes:
    """The shapes of the tensors of one of ``PARTS``."""
    if part == "resnet18":
        return resnet((2, 2, 2, 2), bottleneck=False, stem=3, classes=10, width=width)
    whole = resnet((3, 4, 6, 3), bottleneck=True, stem=7, classes=1000, width=width)
    return {name: shape for name, shape in whole.items() if (math.prod(shape) < SMALL) == (part == "small")}


class Version:
    """A version of the library, in a process of its own that runs a program until ``kill``."""

    def __init__(self, checkout: Path, program: Path | None = None, **settings: str) -> None:
        self.checkout = checkout
        environment = os.environ | ONE_THREAD | REUSED_MEMORY | {"PYTHONPATH": str(checkout)} | settings
        command = [sys.executable, "-P", str(program or CHILD)]
        self._process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a command; RuntimeError where the process has ended."""
        self.tell(command)
        return self.answer()

    def tell(self, command: Mapping[str, Any]) -> None:
        """Give a command, whose answer comes next."""
        with contextlib.suppress(BrokenPipeError):  # the answer will tell
            self._to.write(json.dumps(command) + "\n")
            self._to.flush()

    def answer(self) -> dict[str, Any]:
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the process of {self.checkout} ended with {self._process.wait()}")
        return json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._from.close()


@dataclass(frozen=True)
class Found:
    """What was measured of one part of a model and one method, by version.

    step_s: seconds by number of peers, one for each round; with no peers those of the encoding.  calls: of functions,
    in the encoding and in the decoding of one payload.
    """

    tensors: int
    coordinates: int
    step_s: dict[str, dict[int, list[float]]]
    calls: dict[str, dict[str, int]]
    payload_bytes: dict[str, int]
    same_bits: bool

    def then(self, other: Found) -> Found:
        """The rounds of the same case in several processes, one after another."""
        step_s = {
            name: {peers: rounds + other.step_s[name][peers] for peers, rounds in by_peers.items()}
            for name, by_peers in self.step_s.items()
        }
        return replace(self, step_s=step_s, same_bits=self.same_bits and other.same_bits)

    def __add__(self, other: Found) -> Found:
        """Two parts of one model together."""
        step_s = {
            name: {
                peers: [a + b for a, b in zip(rounds, other.step_s[name][peers], strict=True)]
                for peers, rounds in by_peers.items()
            }
            for name, by_peers in self.step_s.items()
        }
        calls = {
            name: {stage: count + other.calls[name][stage] for stage, count in counts.items()}
            for name, counts in self.calls.items()
        }
        num_bytes = {name: size + other.payload_bytes[name] for name, size in self.payload_bytes.items()}
        size = self.tensors + other.tensors, self.coordinates + other.coordinates
        return Found(*size, step_s, calls, num_bytes, self.same_bits and other.same_bits)


def measured(versions: Mapping[str, Version], part: str, method: str, chosen: argparse.Namespace) -> Found:
    """The figures of one case from one process of each version; their first round warms up and does not count."""
    shapes, peers = shapes_of(part, chosen.width), [0, *sorted(set(chosen.peers))]
    case = {"do": "prepare", "shapes": shapes, "method": method, "settings": METHODS[method]}
    told = {name: version.ask(case) for name, version in versions.items()}
    step_s: dict[str, dict[int, list[float]]] = {name: {number: [] for number in peers} for name in versions}
    for turn in range(1 + chosen.rounds):
        for name in list(versions)[:: -1 if turn % 2 else 1]:
            answer = versions[name].ask({"do": "measure", "peers": peers, "steps": PARTS[part]})
            for number in peers if turn else ():
                step_s[name][number].append(answer[str(number)])
    return Found(
        tensors=len(shapes),
        coordinates=sum(map(math.prod, shapes.values())),
        step_s=step_s,
        calls={name: version.ask({"do": "calls"}) for name, version in versions.items()},
        payload_bytes={name: answer["payload_bytes"] for name, answer in told.items()},
        same_bits=len({answer["checksum"] for answer in told.values()}) == 1,
    )


def all_measured(checkouts: Mapping[str, Path], chosen: argparse.Namespace) -> dict[tuple[str, str], Found]:
    """The figures of all cases, by part and method, with new processes every ``chosen.rounds`` rounds."""
    found: dict[tuple[str, str], Found] = {}
    for _ in range(chosen.processes):
        with contextlib.ExitStack() as ends:
            versions: dict[str, Version] = {}
            for name, checkout in checkouts.items():
                versions[name] = Version(checkout)
                ends.callback(versions[name].kill)
            for case in itertools.product(chosen.parts, chosen.methods):
                more = measured(versions, *case, chosen)
                found[case] = found[case].then(more) if case in found else more
    if {"small", "large"} <= set(chosen.parts):
        found |= {(WHOLE, method): found["small", method] + found["large", method] for method in chosen.methods}
    return found


def rows_of(part: str, method: str, found: Found) -> list[dict[str, Any]]:
    """One row for each number of peers; with a rival, the ratios of its time and ours with their quartiles."""
    rows = []
    calls = {
        name: {stage: round(count / found.tensors, 2) for stage, count in counts.items()}
        for name, counts in found.calls.items()
    }
    for peers in found.step_s[OURS]:
        row: dict[str, Any] = {"part": part, "method": method, "peers": peers, "tensors": found.tensors}
        row |= {"coordinates": found.coordinates, "same_bits": found.same_bits}
        for name, by_peers in found.step_s.items():
            row[name] = {"step_s": statistics.median(by_peers[peers]), "payload_bytes": found.payload_bytes[name]}
            row[name] |= {"calls_per_tensor": calls[name]}
        if RIVAL in found.step_s:
            ours, rival = found.step_s[OURS][peers], found.step_s[RIVAL][peers]
            row["speedup"], row["slowdown"] = spread(rival, ours), spread(ours, rival)
        rows.append(row)
    return rows


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _ratio(values: Sequence[float]) -> str:
    middle, low, high = values
    return f"{middle:.3f} ({low:.3f} .. {high:.3f})"


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the tables of one part: milliseconds of a step, and calls."""
    first = rows[0]
    print(f"\n{first['part']}: {first['tensors']} tensors, {first['coordinates']:,} coordinates")
    names = [name for name in (OURS, RIVAL) if name in first]
    lines = [["method", "peers", *(f"{name} ms" for name in names), *(["rival / ours (quartiles)"] * (len(names) - 1))]]
    for row in rows:
        cells = [_ms(row[name]["step_s"]) for name in names]
        peers = str(row["peers"] or "encode")
        lines.append([row["method"], peers, *cells, *([_ratio(row["speedup"])] if RIVAL in row else [])])
    print(aligned(lines))
    lines = [["calls per tensor", *(f"{stage}, {name}" for stage in STAGES for name in names), "same bits"]]
    for row in {row["method"]: row for row in rows}.values():
        counts = [f"{row[name]['calls_per_tensor'][stage]:.1f}" for stage in STAGES for name in names]
        lines.append([row["method"], *counts, "yes" if row["same_bits"] else "no"])
    print(aligned(lines))


def over_peers(rows: Sequence[Mapping[str, Any]], part: str, method: str, ratio: str) -> float | None:
    """The median of a ratio over the numbers of peers; None where it was not measured."""
    here = [row for row in rows if (row["part"], row["method"]) == (part, method) and row["peers"] and ratio in row]
    values = [row[ratio][0] for row in here]
    return round(statistics.median(values), 4) if values else None


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the last line; without a rival, the calls alone."""
    methods = dict.fromkeys(row["method"] for row in rows)
    calls = {
        f"{row['part']} {row['method']}": {name: row[name]["calls_per_tensor"] for name in (RIVAL, OURS) if name in row}
        for row in rows
    }
    told: dict[str, Any] = {"calls_per_tensor": calls}
    if not any("speedup" in row for row in rows):
        return told
    small = {method: over_peers(rows, "small", method, "speedup") for method in methods}
    large = {
        f"{part} {method}": value
        for part in PARTS
        for method in methods
        if part != "small" and (value := over_peers(rows, part, method, "slowdown")) is not None
    }
    by_peers = {
        row["peers"] or "encode": [round(value, 4) for value in row["speedup"]]
        for row in rows
        if (row["part"], row["method"]) == ("small", "alq")
    }
    return {
        "speedup_small_tensors": small.get("alq"),
        "speedup_small_tensors_by_peers": by_peers,
        "speedup_small_tensors_by_method": small,
        "slowdown_large": max(large.values(), default=None),
        "slowdown_large_by_case": large,
        "different_bits": sorted({f"{row['part']} {row['method']}" for row in rows if not row["same_bits"]}),
        **told,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables and the JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exchange",
        description="The cost of encoding, framing and decoding a step's gradient, against another version",
    )
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of the version to compare with")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts of the models")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--peers", nargs="+", type=int, default=[2, 8, 32], help="payloads that a step decodes")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each process that count, at least 2")
    parser.add_argument("--processes", type=int, default=3, help="of each version, one after another")
    parser.add_argument("--width", type=int, default=64, help="channels of the models' first layer; fewer for a look")
    parser.add_argument("--quick", action="store_true", help="ALQ alone and one process of each version, for a look")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write one JSON object per row to this file")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.methods, chosen.processes = ["alq"], 1
    if chosen.rounds < 2 or min(chosen.width, chosen.processes, *chosen.peers) < 1:
        parser.error("--rounds must be at least 2, --processes, --width and --peers at least 1")
    if chosen.against and not (chosen.against / "nuq" / "exchange" / "payload.py").is_file():
        parser.error(f"--against {chosen.against}: is no checkout that has nuq/exchange/payload.py")
    checkouts = {OURS: ROOT, **({RIVAL: chosen.against.resolve()} if chosen.against else {})}
    told = {"rounds": chosen.rounds * chosen.processes, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    print(", ".join(f"{name} {value}" for name, value in told.items()), flush=True)
    try:
        found = all_measured(checkouts, chosen)
    except RuntimeError as error:
        raise SystemExit(f"benchmarks.exchange: {error}") from error
    rows = [row for (part, method), of_case in found.items() for row in rows_of(part, method, of_case)]
    for part in dict.fromkeys(row["part"] for row in rows):
        print_rows([row for row in rows if row["part"] == part])
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(json.dumps({**told, **summary(rows)}))


if __name__ == "__main__":
    main()
