"""Memory that training takes, with packed activations and without.

The benchmark is a bare loop (model in channels-last order, cross-entropy, SGD with momentum) on random images of
CIFAR's shape (a GPT: characters), as it is and with ``nuq.CompressedTraining(model, activations=FORMAT)``.  Each
variant has a process; all take their steps in turns, in another order every round, none while another does.

- peak: the process's largest resident memory (VmHWM) over all steps, less what was resident before the first:
  activations, gradients, momenta and whatever computing takes beside them.  Model, images and libraries are there
  before.
- All variants give freed memory back at once (``train.process.memory.return_freed_memory``), as every run with packed
  activations does.
- slowdown: time of a step over that of fp32 in the same round; median and quartiles over the rounds.
- loss: after all steps, so that one sees that they train; held: bytes that autograd's tensors take, before over after.
  smaq's may exceed 32/6 = 5.33, the most of the published format, since zeros are masked here; ``smaq zeros=coded`` is
  without those masks.

Claims, of smaq on ResNet-18 with the CIFAR stem: peak_ratio <= .42, slowdown <= 1.5.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import print_rows

PLAIN, CLAIMED = "fp32", "smaq"
RESNET18, GPT = "cifar_resnet18", "gpt"
LIMITS = {"peak_ratio": 0.42, "slowdown": 1.5}
WARM_UP = 1  # rounds that are not timed
ROOT = Path(__file__).parents[2]


def resident_bytes(name: str) -> int:
    """The VmRSS or VmHWM of this process in bytes, from the kernel."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def child(model_name: str, spec: str, batch: int, threads: int) -> None:
    """Take a step for every line of standard input and answer with its seconds; at the end write one JSON object."""
    import torch
    from torch.nn.functional import cross_entropy

    import nuq
    from settings import resolving
    from train import models
    from train.data.text import NUM_CODES
    from train.process.memory import return_freed_memory

    torch.set_num_threads(threads)
    return_freed_memory()
    torch.manual_seed(1)
    config = resolving.resolve({"model": model_name, "data": "text" if model_name == GPT else "cifar10"})
    shape, num_classes = ((config["data"]["length"],), NUM_CODES) if model_name == GPT else ((3, 32, 32), 10)
    model = models.build(config, shape, num_classes)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    compressed = nuq.CompressedTraining(model, optimizer, activations=spec)
    if model_name == GPT:
        text = torch.randint(num_classes, (batch, shape[0] + 1))
        x, y = text[:, :-1], text[:, 1:]
    else:
        x, y = (
            torch.randn(batch, *shape).contiguous(memory_format=torch.channels_last),
            torch.randint(num_classes, (batch,)),
        )
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is of loading
    before, loss = resident_bytes("VmRSS"), 0.0
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        optimizer.zero_grad()
        of_this = cross_entropy(model(x).flatten(0, -2), y.flatten())
        of_this.backward()
        optimizer.step()
        loss = of_this.item()
        print(time.perf_counter() - started, flush=True)
    held = compressed.ratios().get("compression_ratio_forward_autograd", 1.0)
    print(json.dumps({"peak_mb": (resident_bytes("VmHWM") - before) / 1e6, "held": held, "loss": loss}), flush=True)


class Variant:
    """A variant of training, in a process of its own."""

    def __init__(self, model: str, spec: str, batch: int, threads: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "benchmarks.speed_cases.memory", model, spec, str(batch), str(threads)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout
        self._answer()

    def _answer(self) -> str:
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the process of a variant ended with {self._process.wait()}")
        return line

    def step(self) -> float:
        """Take one training step; returns its seconds."""
        self._to.write("step\n")
        self._to.flush()
        return float(self._answer())

    def end(self) -> dict[str, float]:
        """End the process; returns its figures."""
        self._to.close()
        found = json.loads(self._answer())
        self._process.wait()
        return found

    def kill(self) -> None:
        """Kill the process if it is still there."""
        self._process.kill()
        self._process.wait()
        self._to.close()
        self._from.close()


def measured(model: str, specs: Sequence[str], batch: int, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """One row for each variant; ``fp32`` has to be among them."""
    with contextlib.ExitStack() as ends:
        variants: dict[str, Variant] = {}
        for spec in specs:
            variants[spec] = Variant(model, spec, batch, threads)
            ends.callback(variants[spec].kill)
        times: dict[str, list[float]] = {spec: [] for spec in specs}
        for number in range(WARM_UP + rounds):
            for place in range(len(specs)):
                spec = specs[(number + place) % len(specs)]
                times[spec].append(variants[spec].step())
        rows = {spec: variant.end() for spec, variant in variants.items()}
    for spec, row in rows.items():
        ratios = [mine / plain for mine, plain in zip(times[spec][WARM_UP:], times[PLAIN][WARM_UP:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        row |= {
            "peak_ratio": row["peak_mb"] / rows[PLAIN]["peak_mb"],
            "step_s": statistics.median(times[spec][WARM_UP:]),
        }
        row |= {"slowdown": middle, "slowdown_low": low, "slowdown_high": high}
    return rows


def figures(model: str, batch: int, rounds: int, threads: int, formats: Sequence[str]) -> dict[str, Any]:
    """The rows of all formats, and smaq's beside its claims."""
    if batch < 1 or threads < 1:
        raise ValueError(f"--batch {batch} --threads {threads}: must be at least 1")
    if PLAIN not in formats or rounds < 2:
        raise ValueError(f"--formats must have {PLAIN}, which the others are compared with, and --rounds be at least 2")
    told = {"model": model, "batch": batch, "threads": threads, "rounds": rounds, "load": os.getloadavg()[0]}
    try:
        rows = measured(model, formats, batch, rounds, threads)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    print_rows(f"{model}, {batch} examples a step, {threads} threads", rows)
    found = {name: rows[CLAIMED][name] for name in LIMITS if CLAIMED in rows}
    claims = {name: value <= LIMITS[name] for name, value in found.items() if model == RESNET18}
    return {**told, **found, "claims": claims, "formats": rows}


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
