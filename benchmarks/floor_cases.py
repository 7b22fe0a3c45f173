"""What ``benchmarks.floors`` measures: figures of this machine, each beside a baseline of the same run, or counts.

A speed is the least time of the baseline over our least time, in turns, because whatever else runs only adds to both.
Times are the processor's, of all threads of a process, which the load of a machine changes little; only what two ranks
wait for each other shows by the clock.  Counts are of functions written in Python that are entered, and of modules.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy import optimize, special
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import nuq
from analysis.logs import events
from benchmarks import eager
from benchmarks.speed_cases import grid
from benchmarks.timing import in_turns, seconds
from nuq.coding import entropy
from nuq.levels import update_rules
from nuq.levels.truncated_normals import TruncNorm

SIZE, PARTS = 1 << 20, 4  # coordinates; slow baselines get a part of them, which stays in cache
SIGMA, BITS = 0.1, 3  # of the normal distribution whose levels are solved
RANKS, LAYERS, WIDTH = 2, 8, 128  # small tensors: 8 matrices of 128 x 128
TURNS, STEPS = 21, 40
# The calls of a program's functions, whose words are the rest of the line.
COUNTED = """
import pathlib, sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
try:
    import grid_run
    grid_run.main(sys.argv[2:], pathlib.Path(sys.argv[1]))
finally:
    sys.setprofile(None)
    print(calls, file=sys.stderr)
"""
MODULES = "import sys, nuq; before = set(sys.modules); nuq.METHODS; print(len(sys.modules))"


def faster(call: Callable[[], object], baseline: Callable[[], object]) -> float:
    """How many times as fast as the baseline a call is."""
    clock = {"clock": time.process_time}
    times = in_turns({"ours": lambda: seconds(call, **clock), "baseline": lambda: seconds(baseline, **clock)}, TURNS)
    return min(times["baseline"]) / min(times["ours"])


# --- kernels and messages -----------------------------------------------------------------------------------------


def messages() -> dict[str, float]:
    """Encoding and decoding of messages, and the entropy coder."""
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(1))
    key, total = nuq.Key(seed=1, step=0, worker=0, parameter="model"), torch.zeros(SIZE)
    alq, topk = (nuq.METHODS[name].settings() for name in ("alq", "topk"))
    quantizer, sparse = nuq.METHODS["alq"].load()(alq), nuq.METHODS["topk"].load()(topk)
    by_hand = eager.of("alq", alq, quantizer)
    assert by_hand
    coded, chosen = quantizer.encode(x, key).to_bytes(), sparse.encode(x, key).to_bytes()
    indices = sparse.decode(nuq.parse(chosen)).nonzero().view(-1)
    values = x[indices]
    codes = np.random.default_rng(1).binomial(15, 0.5, SIZE).astype(np.uint8)
    return {
        "ALQ encode over eager PyTorch": PARTS
        * faster(lambda: quantizer.encode(x, key).to_bytes(), lambda: by_hand(x[: SIZE // PARTS])),
        "ALQ decode over a copy": faster(lambda: quantizer.add(nuq.parse(coded), total), lambda: total.copy_(x)),
        "TopK decode over indexing": faster(
            lambda: sparse.decode_into(nuq.parse(chosen), total),
            lambda: total.zero_().index_put_((indices,), values),
        ),
        "rANS over zlib": PARTS
        * faster(
            lambda: entropy.encode(codes, 16, "rans", threads=1),
            lambda: zlib.compress(codes[: SIZE // PARTS].data, 1),
        ),
    }


def levels() -> dict[str, float]:
    """The solver of ALQ's levels over SciPy's minimizer, which has to end at the same variance."""
    distribution = TruncNorm(0.0, SIGMA)
    start = np.linspace(-1, 1, 2**BITS)[1:-1] / 4

    def variance(inner: np.ndarray) -> float:
        edges = np.concatenate([[-1.0], np.sort(inner), [1.0]])
        density, mass = np.exp(-0.5 * (edges / SIGMA) ** 2) / np.sqrt(2 * np.pi), special.ndtr(edges / SIGMA)
        zeroth, first = np.diff(mass), -SIGMA * np.diff(density)
        second = SIGMA**2 * zeroth - SIGMA * np.diff(edges * density)
        a, b = edges[:-1], edges[1:]
        return float(((a + b) * first - a * b * zeroth - second).sum())

    def minimized() -> Any:
        return optimize.minimize(variance, start, method="SLSQP", options={"ftol": 1e-12})

    ours, theirs = update_rules.alq(distribution, BITS).expected_variance, minimized().fun
    if abs(ours / theirs - 1) > 1e-3:
        raise AssertionError(f"the variance of our levels is {ours:.4e}, that of SciPy's {theirs:.4e}")
    return {"ALQ levels over SciPy": faster(lambda: update_rules.alq(distribution, BITS), minimized)}


# --- two ranks ----------------------------------------------------------------------------------------------------


def two_ranks() -> dict[str, float]:
    """A step of DDP with the hook and of FSDP2, over the plain ones, and the calls of ``nuq.all_reduce``."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, (folder,), RANKS)
        return json.loads(Path(folder, "figures").read_text())


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    hooked = DistributedDataParallel(_model())
    hooked.register_comm_hook(nuq.CompressionState(hooked, method="alq", bits=3, min_size=0), nuq.compress_hook)
    ddp, by_clock = _steps_over(DistributedDataParallel(_model()), hooked)
    sharded = _sharded()
    nuq.compress_fsdp(sharded, "qsgdinf", bits=4)
    fsdp, _ = _steps_over(_sharded(), sharded)
    figures = {"DDP step over plain DDP": ddp, "the same by the clock": by_clock, "FSDP2 step over plain FSDP2": fsdp}
    vector = torch.randn(1000)
    nuq.all_reduce(vector, "qsgdinf", step=0)
    figures["nuq.all_reduce, calls"] = num_calls(lambda: nuq.all_reduce(vector, "qsgdinf", step=1))
    if rank == 0:
        Path(folder, "figures").write_text(json.dumps(figures))
    dist.destroy_process_group()


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def _sharded() -> nn.Module:
    model: Any = _model()
    for layer in [*model, model]:
        fully_shard(layer, mesh=init_device_mesh("cpu", (RANKS,)))
    return model


def _steps_over(plain: nn.Module, compressed: nn.Module) -> tuple[float, float]:
    """How many times as fast as a plain model's steps a compressed one's are, by the processor and by the clock."""
    least: dict[nn.Module, tuple[float, float]] = {}
    x = torch.randn(8, WIDTH)
    optimizers = {model: torch.optim.SGD(model.parameters(), lr=1e-3) for model in (plain, compressed)}
    for step in range(STEPS):
        for model, optimizer in optimizers.items():
            dist.barrier()
            processor, clock = time.process_time(), time.perf_counter()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            spent = time.process_time() - processor, time.perf_counter() - clock
            least[model] = spent if step < 2 else (min(spent[0], least[model][0]), min(spent[1], least[model][1]))
    return least[plain][0] / least[compressed][0], least[plain][1] / least[compressed][1]


def num_calls(call: Callable[[], object]) -> int:
    """The functions written in Python that a call enters on its thread."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counted


# --- command lines and logs ---------------------------------------------------------------------------------------


def commands() -> dict[str, float]:
    """The calls of ``grid_run.py --help`` and of planning 2,000 runs, and the modules of ``import nuq``."""
    with tempfile.TemporaryDirectory() as folder:
        family = Path(folder, "bench_family.py")
        family.write_text(grid.FAMILY)
        _, root = grid.checkout(Path(folder))
        modules = _output(["-c", MODULES]).stdout
        return {
            "grid_run.py --help, calls": _calls(root, "--help"),
            "grid_run.py plan of 2,000 runs, calls": _calls(
                root, "plan", str(family), "two_thousand", "--max_running", "50"
            ),
            "import nuq, modules": int(modules),
        }


def _calls(root: Path, *words: str) -> int:
    _output(["grid_run.py", "--help"])  # compiles what is not
    return int(_output(["-c", COUNTED, str(root), *words]).stderr.splitlines()[-1])


def _output(words: list[str]) -> Any:
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.run(
        [sys.executable, *words], cwd=grid.ROOT, env=environment, check=True, capture_output=True, text=True
    )


def reader() -> dict[str, float]:
    """Reading an event file over a plain loop over tensorboardX's records."""
    from tensorboardX import SummaryWriter
    from tensorboardX.proto import event_pb2

    parsed = vars(event_pb2)["Event"].FromString
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for step, tag in itertools.product(range(1000), ("loss", "Vloss", "Vacc", "est_var")):
                writer.add_scalar(tag, step / 7, step)
        (path,) = Path(folder).glob("events.*")

        def plain() -> list[tuple[str, int, float, float]]:
            data, at, found = path.read_bytes(), 0, []
            while at < len(data):
                (length,) = struct.unpack_from("<Q", data, at)
                event = parsed(data[at + 12 : at + 12 + length])
                found += [(one.tag, event.step, event.wall_time, one.simple_value) for one in event.summary.value]
                at += 16 + length
            return found

        return {"event file over tensorboardX's records": faster(lambda: events.read([path]), plain)}


GROUPS = (messages, levels, two_ranks, commands, reader)
