"""rANS and index coding on a GPU against the way through the host: the bytes of both, and GB/s.

Run it as ``python -m benchmarks.gpu.entropy [--device cuda] [--size N ..]``.

Codes of normal numbers, of 8, 256 and 300 symbols, and of 8 symbols with three bits of a dither as contexts, and the
indices of a thousandth, a hundredth and a tenth of the coordinates, are coded and decoded on the device, and by copies
to the host, C++ there on all threads, and copies back. The figures are GB/s of float32 coordinates (4 bytes each),
whole calls, medians. ``--device cpu`` takes Triton's interpreter, which takes seconds for a few hundred codes. The exit
code is 1 where bytes or codes differ; after each case, and at last, a line is the JSON object of what is known.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from benchmarks.timing import own_seconds

CONTEXT_BITS = 3


class Case(NamedTuple):
    """Codes: the nearest integers to normal numbers, of this deviation, among the symbols."""

    name: str
    num_symbols: int
    deviation: float
    with_contexts: bool = False


CASES = (
    Case("8 symbols", 8, 0.8),
    Case("8 symbols, 8 contexts", 8, 0.8, with_contexts=True),
    Case("256 symbols", 256, 20.0),
    Case("300 symbols", 300, 20.0),
)
SHARES = (0.001, 0.01, 0.1)  # of the coordinates whose indices are coded


def drawn(case: Case, size: int, device: str) -> tuple[Tensor, dict[str, Any]]:
    """The codes in raw form, and their contexts."""
    from nuq.kernels import operators

    normal = torch.randn(size, generator=torch.Generator().manual_seed(size)) * case.deviation
    given: dict[str, Any] = {}
    if case.with_contexts:
        bits = operators.leading_bits(size, (1, 2), CONTEXT_BITS)
        normal += bits / (1 << CONTEXT_BITS) - 0.5
        given = {"contexts": bits.to(device), "num_contexts": 1 << CONTEXT_BITS}
    codes = (normal.round() + case.num_symbols // 2).clamp(0, case.num_symbols - 1)
    raw = codes.to(torch.uint8 if case.num_symbols <= 256 else torch.int16).view(torch.uint8)
    return raw.to(device), given


def _median_s(call: Callable[[], object], repeats: int) -> float:
    return statistics.median(own_seconds(call, wall=True) for _ in range(repeats))


Ways = tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]  # encode, decode


def ways_of_codes(case: Case, size: int, device: str) -> tuple[Tensor, Ways]:
    """The codes, and how they are coded and decoded."""
    from nuq.compressors import body

    codes, given = drawn(case, size, device)

    def encode() -> Tensor:
        return body.entropy_coded(codes, case.num_symbols, "rans", **given).to(device)

    return codes, (encode, lambda data: body.entropy_decoded(data, size, case.num_symbols, "rans", **given))


def ways_of_indices(share: float, size: int, device: str) -> tuple[Tensor, Ways]:
    """Indices of a share of the coordinates at random, and how they are coded and decoded."""
    from nuq.coding import index_coding

    taken = torch.rand(size, generator=torch.Generator().manual_seed(size)) < share
    indices = taken.nonzero().flatten().to(torch.int32).to(device)
    encode = partial(index_coding.encode, indices, size)
    return indices, (encode, lambda data: index_coding.decode(data, indices.numel(), size))


def measured(original: Tensor, ways: Ways, size: int, repeats: int) -> dict[str, Any]:
    """Bits a coordinate, whether both ways agree, and the GB/s of both."""
    from nuq.coding import index_coding
    from nuq.compressors import body
    from nuq.kernels.cuda.launch import device_code

    encode, decode = ways
    told: dict[str, Any] = {}
    coded, decoded = list[Tensor](), list[Tensor]()
    for way, functions in (("kernels", device_code()), ("host", None)):
        with ExitStack() as stack:
            for module in (body, index_coding):
                stack.enter_context(mock.patch.object(module, "_coding_device", lambda *_, chosen=functions: chosen))
            data = encode()
            coded.append(data)
            decoded.append(decode(data))
            for name, call in (("encode", encode), ("decode", partial(decode, data))):
                told[f"{name}, {way}"] = round(4e-9 * size / _median_s(call, repeats), 3)
    same = torch.equal(*coded) and all(torch.equal(one, original) for one in decoded)
    return {"bits": round(8 * coded[0].numel() / size, 3), "same": same, "gb_per_s": told}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and measure, print the JSON objects, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.entropy", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--size", type=int, nargs="+", default=[1 << 16, 1 << 20, 11_173_962, 1 << 25, 1 << 27], help="codes"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each kind (5)")
    parser.add_argument("--seconds", type=float, default=90.0, help="after which no further case is begun (90)")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read where Triton is imported, which nothing has done yet
    began, not_reached = time.monotonic(), 0
    cases = dict[str, Any]()
    found: dict[str, Any] = {"device": chosen.device, "cases": cases, "different": []}
    for size in chosen.size:
        prepared = {f"{size} codes of {case.name}": partial(ways_of_codes, case) for case in CASES}
        prepared |= {f"indices of {share} of {size}": partial(ways_of_indices, share) for share in SHARES}
        for name, prepare in prepared.items():
            if time.monotonic() - began > chosen.seconds:
                not_reached += 1
                continue
            try:
                cases[name] = measured(*prepare(size, chosen.device), size, chosen.repeats)
            except Exception as error:  # noqa: BLE001  whatever a device refuses, the other cases are measured
                cases[name] = {"same": False, "failed": f"{type(error).__name__}: {error}"[:300]}
            if not cases[name]["same"]:
                found["different"].append(name)
            print(json.dumps(found | {"not_reached": not_reached}), flush=True)
    print(json.dumps(found | {"not_reached": not_reached, "seconds": round(time.monotonic() - began, 1)}))
    return int(bool(found["different"]) or not cases)


if __name__ == "__main__":
    sys.exit(main())
