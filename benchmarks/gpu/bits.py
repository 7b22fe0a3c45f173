"""The Triton kernels against the C++ kernels and the reference, bit for bit.

Run it as ``python -m benchmarks.gpu.bits [--device cuda] [--size N]``.

It compares encode, decode (written and added), rotation, statistics and SmaQ: every width of code, ternary and 9 bits
included, every norm, type and kind of rounding, bucket sizes from 64 coordinates to the whole vector, and numbers of
coordinates around N that no tile divides. The vectors are those of ``tests/nuq/kernels/test_cuda.py``: heavy tails, a
zero bucket, one of denormal numbers. C++ computes on the CPU, the reference on the device (where Triton is missing it
takes its place there) and, of the first cases, on the CPU too.

``--device cpu`` takes Triton's interpreter, which is a thousand times as slow. ``--sanitize`` makes, in place of all
that, a small run of this program under compute-sanitizer's memcheck, where that is installed. A case that does not fit
into ``--seconds`` is counted as not reached. The exit code is 1 where a bit differs, nothing was compared, or the run
under memcheck failed; after each case, and at last, a line is the JSON object of what is known.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu import processes

CHECKED = 10_000  # coordinates under compute-sanitizer, which slows kernels a hundredfold
MEMCHECK_FOUND = 9  # its exit code for errors; that of the program else
NUM_ON_CPU = 12  # cases whose reference is computed on the CPU as well: seconds each
# all widths, then counts that do not fill theirs
LEVEL_COUNTS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 5, 17, 100, 255)
SIZES = (64, 512, 1000, 8192, 16384, 1 << 17, 1 << 31)  # bucket sizes; the last is one bucket in all
BLOCKS = (64, 1024, 4096, 1 << 15, 1 << 20)
FEW = 10_007  # coordinates, few enough buckets that the statistics keep those of all kinds
KEPT = 24  # vectors: drawing one takes longer than everything that is done with it
TYPES = ("float32", "bfloat16", "float16")

Tensors = dict[str, Tensor]
Check = Callable[[Any, str], Tensors]  # the result of one implementation on a device


def operator_checks(size: int) -> dict[str, Check]:
    """The checks of encoding, decoding and rotations, by name."""
    from nuq.kernels.spec import NORMS
    from tests.nuq.kernels import test_cuda
    from tests.nuq.kernels.test_cuda import Case

    cases = [
        *(Case(size, 8192, norm, count, dtype) for count in LEVEL_COUNTS for norm in NORMS for dtype in TYPES),
        *(
            Case(size + 7, bucket, norm, count, accumulate=False)
            for bucket in SIZES
            for norm in NORMS
            for count in (3, 8)
        ),
        *(
            Case(size - 1, 512, norm, count, uniform=True, dither=True)
            for norm in ("l2", "linf", "rms")
            for count in LEVEL_COUNTS
        ),
        *(Case(size, 8192, norm, count, stochastic=False) for norm in NORMS for count in (2, 8, 300)),
    ]

    def both(case: Case, by: Any, device: str) -> Tensors:
        scales, packed = test_cuda.encoded(by, case, device, vector_of(case).to(device))
        total = test_cuda.decoded(by, case, scales, packed, device, vector_of(Case(case.n, case.n)).to(device).clone())
        return {"scales": scales, "bytes": packed, "decoded numbers": total}

    def rotated(n: int, block: int, inverse: bool, by: Any, device: str) -> Tensors:
        x = vector_of(Case(n, n)).to(device).clone()
        by.hadamard_(x, block, test_cuda.K0, test_cuda.K1, inverse)
        return {"numbers": x}

    rotations = [(size + odd, block, inverse) for odd in (0, 77) for block in BLOCKS for inverse in (False, True)]
    return {str(case): partial(both, case) for case in cases} | {
        f"rotation {one}": partial(rotated, *one) for one in rotations
    }


_vectors: dict[Any, Tensor] = {}


def vector_of(case: Any) -> Tensor:
    """The vector of a case on the CPU; the last few are kept."""
    from tests.nuq.kernels import test_cuda

    name = (case.n, min(case.bucket_size, case.n), case.dtype)
    if name not in _vectors:
        while len(_vectors) >= KEPT:
            _vectors.pop(next(iter(_vectors)))
        _vectors[name] = test_cuda.vector(case)
    return _vectors[name]


def statistics_checks(size: int) -> dict[str, Check]:
    """The checks of the numbers that level updates use: one sample of a vector, and the moments of its buckets."""
    from nuq.kernels.spec import NORMS
    from nuq.kernels.statistics import Statistics
    from tests.nuq.kernels.test_cuda import Case

    def added(n: int, norm: str, bucket_size: int, by: Any, device: str) -> Tensors:
        del by  # chosen by the tensor's device
        statistics = Statistics.empty(10)
        statistics.add([vector_of(Case(n, bucket_size)).to(device)], bucket_size, norm)
        return {"statistics": torch.from_numpy(statistics.to_array())}

    cases = [(n, norm, bucket) for n in {size + 7, FEW} for norm in NORMS for bucket in (512, 8192)]
    return {f"statistics {norm} {bucket} of {n}": partial(added, n, norm, bucket) for n, norm, bucket in cases}


def smaq_cases(size: int) -> list[Any]:
    """The cases of SmaQ."""
    from tests.nuq.kernels.test_cuda_smaq import Case

    kinds = ("normal", "relu", "nearly constant")
    return [Case(kind, size + 77, dtype, measured=True) for kind in kinds for dtype in TYPES]


def smaq_checks(size: int) -> dict[str, Callable[[str], str]]:
    """The checks of SmaQ by name; each returns the differences from the reference, or nothing."""
    from nuq.kernels import smaq_reference
    from nuq.kernels.cuda import smaq_operators
    from tests.nuq.kernels import test_cuda_smaq

    def check(case: Any, device: str) -> str:
        expected = test_cuda_smaq.coded(case, smaq_reference, "cpu")
        return test_cuda_smaq.difference(expected, test_cuda_smaq.coded(case, smaq_operators, device))

    return {f"smaq {case}": partial(check, case) for case in smaq_cases(size)}


def differing(mine: Tensors, theirs: Tensors) -> str:
    """The names of the numbers whose bits differ, or nothing."""
    found = []
    for name, tensor in mine.items():
        wrong = (
            (tensor.cpu().reshape(-1).view(torch.uint8) != theirs[name].cpu().reshape(-1).view(torch.uint8))
            .nonzero()
            .flatten()
        )
        if len(wrong):
            found.append(f"{len(wrong)} bytes of {name} differ, the first at {int(wrong[0])}")
    return "; ".join(found)


class Comparison:
    """The comparisons made, by implementation, and the differences found."""

    def __init__(self, device: str) -> None:
        from nuq import native
        from nuq.kernels import reference

        self.device, self.counts, self.different = device, Counter[str](), dict[str, str]()
        self._reference, self._on_cpu = reference, NUM_ON_CPU if device != "cpu" else 0
        self._baselines: dict[str, tuple[Any, str]] = {"reference": (reference, device)}
        if native.library() is not None:
            self._baselines["c++"] = (torch.ops.nuq, "cpu")

    def _note(self, name: str, mine: Tensors, baseline: str, theirs: Tensors) -> None:
        if said := differing(mine, theirs):
            self.different[f"{name} against {baseline}"] = said
        self.counts[baseline] += sum(tensor.numel() for tensor in mine.values())

    def operators(self, name: str, check: Check) -> None:
        """Compare encoding and decoding, or a rotation."""
        from nuq.kernels.cuda import operators

        mine, everyone = check(operators, self.device), dict(self._baselines)
        if self._on_cpu:
            self._on_cpu -= 1
            everyone["reference on the CPU"] = (self._reference, "cpu")
        for baseline, (by, where) in everyone.items():
            self._note(name, mine, baseline, check(by, where))

    def statistics(self, name: str, check: Check) -> None:
        self._note(name, check(None, self.device), "statistics on the CPU", check(None, "cpu"))

    def smaq(self, name: str, check: Callable[[str], str]) -> None:
        if said := check(self.device):
            self.different[name] = said
        self.counts["smaq"] += 1


def compared(size: int, device: str, budget_s: float) -> Iterator[dict[str, Any]]:
    """The outcome of all checks so far, after each, in an order drawn once, until the time is up.

    A check that fails is told, and the others are made.
    """
    comparison = Comparison(device)
    checks: list[tuple[str, Callable[[], None]]] = [
        *((name, partial(comparison.operators, name, check)) for name, check in operator_checks(size).items()),
        *((name, partial(comparison.statistics, name, check)) for name, check in statistics_checks(size).items()),
        *((name, partial(comparison.smaq, name, check)) for name, check in smaq_checks(size).items()),
    ]
    random.Random(1).shuffle(checks)
    began, done = time.monotonic(), 0
    while True:
        found = {"cases": done, "not_reached": len(checks) - done}
        yield {**found, "compared_numbers": dict(comparison.counts), "different": comparison.different}
        if done == len(checks) or time.monotonic() - began > budget_s:
            return
        name, check = checks[done]
        try:
            check()
        except Exception as error:  # noqa: BLE001  whatever a device refuses, the other cases are compared
            comparison.different[name] = f"failed: {type(error).__name__}: {error}"[:300]
        done += 1


def sanitized(device: str, budget_s: float) -> dict[str, Any]:
    """The outcome of a small run under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None or device == "cpu":
        return {"ran": False, "why": "compute-sanitizer is not installed" if tool is None else "no GPU"}
    words = f"-m benchmarks.gpu.bits --device {device} --size {CHECKED} --seconds {round(budget_s / 3)}".split()
    command = [tool, "--tool", "memcheck", "--error-exitcode", str(MEMCHECK_FOUND), sys.executable, *words]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    folder = Path(__file__).parents[2]
    ended, lines = processes.heard(command, limit_s=budget_s, folder=folder, environment=environment)
    if ended.timed_out:
        return {"ran": False, "why": f"{budget_s:.0f} s were not enough"}
    its = [line for line in lines if line.startswith("=========")]
    said = [*its[-3:], *[line[-500:] for line in lines if line not in its][-3:]]
    return {"ran": True, "exit_code": ended.exit_code, "errors": ended.exit_code != 0, "said": said}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the differences and one JSON object, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.bits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=10_000_000, help="coordinates (10^7)")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which no further case is begun (120)")
    parser.add_argument("--sanitize", action="store_true", help="a small run under compute-sanitizer, instead")
    chosen = parser.parse_args(arguments)
    if chosen.sanitize:
        told = sanitized(chosen.device, chosen.seconds)
        print(json.dumps({"device": chosen.device, "sanitizer": told}))
        return int(told.get("errors", False))
    if chosen.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read where Triton is imported, which nothing has done yet
    began, found = time.monotonic(), dict[str, Any]()
    for known in compared(chosen.size, chosen.device, chosen.seconds):
        found = {**known, "device": chosen.device, "size": chosen.size, "seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(found), flush=True)
    for name, said in found["different"].items():
        print(f"{name}: {said}")
    numbers = ", ".join(f"{number:,} with {baseline}" for baseline, number in found["compared_numbers"].items())
    print(
        f"{found['cases']} cases, {found['not_reached']} not reached; compared: {numbers}; {len(found['different'])} "
        f"differ"
    )
    print(json.dumps(found))
    return int(bool(found["different"]) or not found["compared_numbers"])


if __name__ == "__main__":
    sys.exit(main())
