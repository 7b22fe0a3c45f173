"""The Triton kernels of the step ``bits``, compiled ahead by several processes into Triton's cache.

Run it as ``python -m benchmarks.gpu.compile_kernels [--architecture 90] [--size N ..] [--processes P]``.

One process compiles a kernel where it is first launched, and a GPU waits meanwhile. Here the cases of
``benchmarks.gpu.bits`` and of the tests are gone through with kernels that only note their launches; then every kernel
that differs is compiled once. It needs no GPU: the architecture can be named, and the cache's names are those that a
launch looks for, since Triton's own ``warmup`` makes them. The cache is Triton's (``TRITON_CACHE_DIR``).

After every tenth kernel, and at last, a line is the JSON object of what is known. A kernel that ``--seconds`` did not
suffice for is compiled where it is launched; the exit code is 1 where one could not be compiled.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

NUM_SMAQ = 1 << 16  # coordinates of SmaQ's vectors: more of them would be the same kernels
SMALLEST_SM = 80  # where no GPU is and none is named
EVERY = 10

Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]  # kernel, arguments (of a tensor its type), settings


def _kind(argument: Any) -> Any:
    """What Triton compiles anew for: a type, and of a whole number whether it is 1, or in steps of 16, or long."""
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, not -(1 << 31) <= argument < 1 << 31
    return argument if isinstance(argument, torch.dtype) else type(argument)


class Noted:
    """A replacement of a kernel that notes its launches, one of each kind."""

    def __init__(self, kernel: Any, launches: dict[Any, Launch]) -> None:
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        del grid

        def launch(*arguments: Any, **settings: Any) -> None:
            given = tuple(one.dtype if isinstance(one, Tensor) else one for one in arguments)
            kind = (self._kernel.__name__, tuple(map(_kind, given)), tuple(settings.items()))
            self._launches.setdefault(kind, (self._kernel, given, settings))

        return launch


@contextmanager
def noted() -> Iterator[dict[Any, Launch]]:
    """A context within which all kernels are noted and compute nothing; gives what they note."""
    from nuq.kernels.cuda import operators
    from nuq.kernels.cuda.launch import device_code

    launches: dict[Any, Launch] = {}
    modules = device_code()
    if modules is None:
        raise SystemExit("Triton is not installed: there is nothing to compile")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(operators, "check_scales", lambda *_: None))
        for module in modules:
            for name, kernel in list(vars(module).items()):
                if name.endswith("_kernel"):
                    stack.enter_context(mock.patch.object(module, name, Noted(kernel, launches)))
        yield launches


def _smaq() -> Any:
    """SmaQ by the kernels, whose launches are noted, and by the reference, which gives the numbers."""
    from nuq.kernels import smaq_reference
    from nuq.kernels.cuda import smaq_operators

    def encode(*arguments: Any, **fields: Any) -> Any:
        smaq_operators.encode(*arguments, **fields)[1](arguments[0])
        return smaq_reference.encode(*arguments, **fields)

    def both(name: str) -> Any:
        def call(*arguments: Any, **fields: Any) -> Any:
            getattr(smaq_operators, name)(*arguments, **fields)
            return getattr(smaq_reference, name)(*arguments, **fields)

        return call

    return SimpleNamespace(measure=both("measure"), encode=encode, decode=both("decode"))


def launches_of(sizes: Sequence[int]) -> list[Launch]:
    """Every launch of the tests on a GPU, and of ``benchmarks.gpu.bits`` at these sizes, that needs a kernel."""
    from benchmarks.gpu import bits
    from nuq.kernels.cuda import operators
    from tests.nuq.kernels import test_cuda, test_cuda_smaq

    def empty(case: Any) -> Tensor:
        return torch.empty(case.n, dtype=getattr(torch, case.dtype))

    unwritten = mock.patch.object(Tensor, "clone", lambda x: torch.empty_like(x))  # the numbers do not matter
    with noted() as launches, mock.patch.object(bits, "vector_of", empty), unwritten:
        for case in test_cuda.CASES + test_cuda.BIG:
            scales, packed = test_cuda.encoded(operators, case, "cpu", empty(case))
            test_cuda.decoded(operators, case, scales, packed, "cpu", torch.empty(case.n))
        for n, block, inverse in test_cuda.ROTATIONS + test_cuda.BIG_ROTATIONS:
            operators.hadamard_(torch.empty(n), block, test_cuda.K0, test_cuda.K1, inverse)
        for check in test_cuda.ERRORS.values():
            check(operators, "cpu")
        for size in sizes:
            for check in bits.operator_checks(size).values():
                check(operators, "cpu")
        smaq = _smaq()
        for case in (*test_cuda_smaq.CASES, *bits.smaq_cases(NUM_SMAQ)):
            test_cuda_smaq.coded(case, smaq, "cpu")
    return list(launches.values())


# --- compiling -----------------------------------------------------------------------------------------------------


class Target:
    """A replacement of a GPU's driver that only knows the architecture."""

    def __init__(self, architecture: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


_launches: list[Launch] = []  # known to the processes, which are forked


def _compiled(number: int) -> float:
    """Compile the kernel of a launch; returns the processor's seconds, those of the assembler included."""
    began = os.times()
    kernel, arguments, settings = _launches[number]
    kernel.warmup(*arguments, grid=(1,), **settings)
    return sum(os.times()[:4]) - sum(began[:4])


def compiled(
    launches: Sequence[Launch], architecture: int, processes: int, budget_s: float
) -> Iterator[dict[str, Any]]:
    """Compile the kernels of these launches; gives the outcome so far after each."""
    from triton.runtime import driver

    began = time.monotonic()
    driver.set_active(Target(architecture))  # pyright: ignore[reportArgumentType]
    _launches[:] = launches
    found: dict[str, Any] = {"kernels": len(launches), "compiled": 0, "failed": {}, "not_reached": len(launches)}
    work_s = 0.0
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        running = {pool.submit(_compiled, number): number for number in range(len(launches))}
        for future in as_completed(running):
            found["not_reached"] -= 1
            try:
                work_s += future.result()
                found["compiled"] += 1
            except Exception as error:  # noqa: BLE001  whatever a compiler refuses, the others are compiled
                kernel, arguments, settings = launches[running[future]]
                found["failed"][f"{kernel.__name__} {arguments} {settings}"] = f"{type(error).__name__}: {error}"[:300]
            seconds = time.monotonic() - began
            yield found | {"seconds": round(seconds, 1), "processor_s": round(work_s, 1)}
            if seconds > budget_s:
                pool.shutdown(wait=False, cancel_futures=True)
                break


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print the JSON objects, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.compile_kernels", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--architecture", type=int, help=f"such as 90 (the GPU's; without one {SMALLEST_SM})")
    parser.add_argument("--size", type=int, nargs="+", default=[10_000_000, 10_000], help="of benchmarks.gpu.bits")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="one for each core")
    parser.add_argument("--seconds", type=float, default=100.0, help="after which no further kernel is begun (100)")
    parser.add_argument("--every", type=int, default=1, help="compile one kernel of so many, for a look (1)")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    torch.set_num_threads(1)  # the processes are forked
    launches = launches_of(chosen.size)[:: chosen.every]
    architecture = chosen.architecture or _architecture()
    told = {"architecture": architecture, "processes": chosen.processes, "listed_s": round(time.monotonic() - began, 1)}
    last: dict[str, Any] = {}
    for number, last in enumerate(compiled(launches, architecture, chosen.processes, chosen.seconds), 1):
        if number % EVERY == 0:
            print(json.dumps(told | last), flush=True)
    print(json.dumps(told | last))
    return int(not last or bool(last["failed"]))


def _architecture() -> int:
    """The architecture of the GPU, such as 90."""
    if not torch.cuda.is_available():
        return SMALLEST_SM
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


if __name__ == "__main__":
    sys.exit(main())
