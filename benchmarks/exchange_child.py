"""One version of ``benchmarks.exchange``, which answers commands until its input ends; each is a line of JSON.

It runs with the library of the checkout that PYTHONPATH names, and imports nothing else of any checkout.

- ``{"do": "prepare", "shapes", "method", "settings"}``: a vector of tensors of these shapes and some workers' payloads
  of it; bytes of a payload and a checksum of what all of them decode to.
- ``{"do": "measure", "peers", "steps"}``: seconds of a step by number of peers.
- ``{"do": "calls"}``: calls of Python functions in the encoding, and in the decoding of one payload.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SEED = 1
NUM_PAYLOADS = 3  # of different workers, decoded in turns: no more memory than that, however many peers


@dataclass
class Case:
    """The codec and the layout of one case, and what they encode and decode; key: of a step and a worker."""

    codec: Any
    layout: Any
    key: Callable[[int, int], Any]
    vector: Tensor
    total: Tensor
    payloads: list[Tensor]
    step: int = 0

    def encode(self) -> Tensor:
        """The payload of the first worker at the next step."""
        self.step += 1
        return self.codec.encode(self.vector, self.layout, self.key(self.step, 0))

    def decode(self, peer: int) -> None:
        """Add the payload of a peer to the total."""
        self.codec.add(self.payloads[peer % len(self.payloads)], self.layout, self.total)


def gradient(shapes: Mapping[str, Sequence[int]]) -> Tensor:
    """A vector float32[n] of normal coordinates; the norms of all tensors are alike."""
    generator = torch.Generator().manual_seed(SEED)
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    return torch.cat([torch.randn(size, generator=generator) * size**-0.5 for size in sizes])


def layout_of(shapes: Mapping[str, Sequence[int]]) -> tuple[list[Any], Any]:
    """The segments of the vector, one for each tensor, and what a codec takes them in.

    That is the segments themselves in versions before ``FlatLayout`` had them.
    """
    module = import_module("nuq.exchange.flat_layout")
    segments, start = [], 0
    for name, shape in shapes.items():
        segments.append(module.Segment(name, start, torch.Size(shape).numel(), shape=tuple(shape)))
        start += segments[-1].size
    in_layout = module.Segment.__module__ == module.__name__
    return segments, module.FlatLayout(tuple(segments)) if in_layout else segments


def codec_of(compressor: Any, settings: Any) -> Any:
    """The codec of payloads; it took the settings too in versions before a compressor told all that it needs."""
    made = import_module("nuq.exchange.payload").PayloadCodec
    return made(compressor, settings) if "settings" in inspect.signature(made).parameters else made(compressor)


def fit(compressor: Any, settings: Any, segments: Sequence[Any], vector: Tensor, key: Any) -> None:
    """Fit the levels of an adaptive method to the vector."""
    learned = import_module("nuq.kernels.statistics").Statistics.empty(settings.num_components)
    for segment in segments:
        compressor.observe(vector[segment.start : segment.start + segment.size], key.of(segment.name), learned)
    compressor.update(learned)


def prepared(shapes: Mapping[str, Sequence[int]], method: str, settings: Mapping[str, Any]) -> Case:
    """A case, its levels fitted and its payloads encoded."""
    entry = import_module("nuq.registry").METHODS[method]
    scope = {"scope": "tensor"} if "scope" in {field.name for field in fields(entry.settings)} else {}
    chosen = entry.settings(**settings, **scope)
    compressor, make_key = entry.load()(chosen), import_module("nuq.kernels.spec").Key
    segments, layout = layout_of(shapes)
    vector = gradient(shapes)
    if entry.adaptive:
        fit(compressor, chosen, segments, vector, make_key(SEED, 0, 0, "statistics"))
    case = Case(codec_of(compressor, chosen), layout, partial(make_key, SEED), vector, torch.zeros_like(vector), [])
    case.payloads += [case.codec.encode(vector, layout, case.key(0, worker)) for worker in range(NUM_PAYLOADS)]
    return case


def described(case: Case) -> dict[str, int]:
    """The bytes of one payload, and a checksum of the sum of all."""
    case.total.zero_()
    for peer in range(len(case.payloads)):
        case.decode(peer)
    return {"payload_bytes": case.payloads[0].numel(), "checksum": zlib.crc32(case.total.numpy().data)}


def measure(case: Case, peers: Sequence[int], steps: int) -> dict[int, float]:
    """The mean seconds of a step, which encodes once and decodes every peer's payload, for each number of peers.

    All are stages of the step with the most of them; with none a step is its encoding.  Seconds are those that the
    processor worked for this process, on any of its threads, so that others on the machine change little.
    """
    step_s = dict.fromkeys(sorted(peers), 0.0)
    for _ in range(steps):
        case.total.zero_()
        decoded, started = 0, time.process_time()
        case.encode()
        for number in step_s:
            while decoded < number:
                case.decode(decoded)
                decoded += 1
            step_s[number] += time.process_time() - started
    return {number: seconds / steps for number, seconds in step_s.items()}


def num_calls(call: Callable[[], object]) -> int:
    """The calls of functions of Python and C that ``call`` makes, itself included."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return counted - 1  # the call that ended the count


def calls(case: Case) -> dict[str, int]:
    """The calls of functions in the encoding, and in the decoding of one payload."""
    encode = partial(case.codec.encode, case.vector, case.layout, case.key(0, 0))
    decode = partial(case.codec.add, case.payloads[0], case.layout, case.total)
    return {"encode": num_calls(encode), "decode": num_calls(decode)}


def check_checkout() -> None:
    """SystemExit where the library is not the checkout's, or runs without its C++ kernels unasked."""
    asked = Path(os.environ["PYTHONPATH"])
    found = Path(str(import_module("nuq").__file__)).parent.parent
    if found.resolve() != asked.resolve():
        raise SystemExit(f"the library of {found} was imported where that of {asked} was asked for")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = import_module("nuq.native").library() is not None
    if not built and os.environ.get("NUQ_CPU") != "off":
        raise SystemExit(
            f"{asked} has no C++ kernels of its own sources: `python -m nuq.native`, run there, builds them"
        )


def main() -> None:
    torch.set_num_threads(1)
    check_checkout()
    case: Case | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "prepare":
            case = None  # its memory is free before there is another
            case = prepared(command["shapes"], command["method"], command["settings"])
            answer = described(case)
        else:
            assert case is not None
            answer = measure(case, command["peers"], command["steps"]) if command["do"] == "measure" else calls(case)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
