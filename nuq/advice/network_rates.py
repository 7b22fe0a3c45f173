"""What gloo's network code takes of this machine's processors, measured between two processes on the loopback."""

from __future__ import annotations

import functools
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from nuq.advice.codec_rates import LONG, least_s, seconds
from nuq.prediction.rates import CodecRates

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_NO_COST = 1e6  # GB/s
_REPEATS = 9
_ROUNDS, _WORK_S = 150, 2e-3  # of messages with work between them
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class NetworkRates:
    """The rates of gloo between two processes: as in ``Profile``; reduce_s: of an all-reduce of LONG numbers."""

    latency_s: float
    busy_latency_s: float
    message_s: float
    host_gb_s: float
    reduce_s: dict[str, float]  # processor time of one of two ranks, by format


def measured(threads: int = 1) -> NetworkRates:
    """Measure the rates, with so many threads a process."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, args=(folder, threads), nprocs=2)
        return NetworkRates(**json.loads((Path(folder) / "found.json").read_text()))


def dense_codecs(network: NetworkRates) -> dict[str, CodecRates]:
    """The rates of a dense all-reduce's work on numbers: casts and additions.

    The additions are gloo's: its processor time less that of its bytes.
    """
    vector = torch.randn(LONG, dtype=torch.float32, device="cpu")
    half = torch.zeros_like(vector, dtype=torch.bfloat16)
    there, back = (
        least_s(lambda: half.copy_(vector), _REPEATS, _CPU),
        least_s(lambda: vector.copy_(half), _REPEATS, _CPU),
    )
    casts = {"fp32": (0.0, 0.0), "bf16": (there, back)}
    codecs = {}
    for form, (there, back) in casts.items():
        sent = LONG * DTYPES[form].itemsize  # bytes sent by each of two ranks
        added = max(network.reduce_s[form] - 1e-9 * sent / network.host_gb_s - 2 * network.message_s, 1e-5)
        codecs[form] = CodecRates(4e-9 * LONG / there if there else _NO_COST, 4e-9 * LONG / (added + back))
    return codecs


def _exchange(send: Tensor, receive: Tensor, peer: int) -> None:
    requests = [dist.isend(send, peer), dist.irecv(receive, peer)]
    for request in requests:
        assert request is not None
        request.wait()


def _exchange_s(data: Tensor, repeats: int, peer: int) -> tuple[float, float]:
    """The time of sending and receiving as much as ``data``, and the processor's."""
    other, times, processor = torch.zeros_like(data), [], []
    for _ in range(11):
        dist.barrier()
        begun = time.process_time()
        for _ in range(repeats):
            times.append(seconds(functools.partial(_exchange, data, other, peer), _CPU))
        processor.append((time.process_time() - begun) / repeats)
    return statistics.median(times), min(processor)  # whatever disturbs adds processor time


def _wait_s(peer: int) -> float:
    """The mean time that a rank waits for a small message after some work of its own, as long as the other's."""
    data, other = torch.zeros(2, 64, dtype=torch.uint8, device="cpu")
    work, waits = torch.ones(1 << 16, dtype=torch.float32, device="cpu"), []
    for _ in range(_ROUNDS):
        ends = time.thread_time() + _WORK_S
        while time.thread_time() < ends:
            work.mul_(1.0)
        waits.append(seconds(functools.partial(_exchange, data, other, peer), _CPU))
    return statistics.mean(waits)


@contextmanager
def _computing(threads: int) -> Iterator[None]:
    """A computation in a thread of its own, as a training's beside an exchange."""
    b = torch.ones(2048, 2048, dtype=torch.float32, device="cpu")
    a = b[:32].clone()
    done = threading.Event()

    def compute() -> None:
        torch.set_num_threads(threads)
        while not done.is_set():
            torch.mm(a, b)

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _processor_s(call: Callable[[], object]) -> float:
    """The processor time of this process, its threads included, for one call that all ranks make."""
    call()
    times = []
    for _ in range(_REPEATS):
        dist.barrier()
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return min(times)


def _rank(rank: int, folder: str, threads: int) -> None:
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    small, large = (torch.zeros(size, dtype=torch.uint8, device="cpu") for size in (64, 1 << 22))
    (latency_s, message_s), (_, large_s) = (_exchange_s(*of, 1 - rank) for of in ((small, 500), (large, 10)))
    reduce_s = {
        form: _processor_s(lambda dtype=dtype: dist.all_reduce(torch.zeros(LONG, dtype=dtype, device="cpu")))
        for form, dtype in DTYPES.items()
    }
    with _computing(min(threads, max((os.cpu_count() or 1) // 2, 1))):  # two ranks share this machine's cores
        busy_latency_s = _wait_s(1 - rank)
    if rank == 0:
        rate = 1e-9 * large.numel() / (large_s - message_s)
        network = NetworkRates(latency_s, busy_latency_s, message_s, rate, reduce_s)
        (Path(folder) / "found.json").write_text(json.dumps(asdict(network)))
    dist.destroy_process_group()
