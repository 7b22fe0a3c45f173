"""The rates behind the cost model: ``python -m benchmarks.rates [--out analysis/prediction/profile.json]``.

They are measured with one thread, as one rank has.

Encoding and decoding (the frame with its checksum included) are timed on one long, one short and many short messages:
what these differ by are the rate and the prices of a message and of a frame.  The network's side is that of gloo on
this machine's loopback: processor time per byte and per message of two processes that send to each other.  For the
models, a hook notes the time when DDP's buckets become ready.  A figure is the least of many times, since whatever else
runs only adds to them; latency and models have medians.  Rates are GB/s of float32 input.  The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from analysis.prediction import profile as profiles
from benchmarks.timing import seconds
from benchmarks.wire_rank import LOCAL_BUFFERS, MODELS, batch_of
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key
from nuq.prediction.rates import Bucket, CodecRates, Model, Profile
from nuq.registry import METHODS

LONG, SHORT, MANY, REPEATS = 1 << 22, 1 << 10, 64, 9
COLD_COPIES = 8  # vectors of 16 MB, in turns
DENSE = {"fp32": torch.float32, "bf16": torch.bfloat16}
NO_COST = 1e6  # GB/s
REPRESENTATIVES = {"uniform": "qsgdinf", "levels": "alq", "ternary": "trn", "rotated": "eden", "lattice": "ecdq"}


def least_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least time of a call: whatever else runs only adds to it."""
    call()
    return min(seconds(call) for _ in range(repeats))


def _fitted(one: float, many: float, long: float) -> tuple[float, float, float]:
    """The (GB/s, seconds a message, seconds a frame) behind three times.

    They are those of a frame of one short message, of MANY, and of one long message.
    """
    per_coordinate = (long - one) / (LONG - SHORT)
    message = max((many - one) / (MANY - 1) - SHORT * per_coordinate, 0.0)
    return 4e-9 / per_coordinate, message, max(one - message - SHORT * per_coordinate, 0.0)


def codec_rates_of(name: str) -> CodecRates:
    """The rates of a codec: encode a frame that can be sent; check it, decode it and add it to a total.

    Memory is as cold as a step leaves it.
    """
    method, key = METHODS[name], Key(0, 0, 0)
    compressor = method.load()(method.settings())
    if isinstance(compressor, AdaptiveQuantizer):  # as it is in training
        compressor.update(compressor.observed([(torch.randn(LONG), key)]))
    codec = PayloadCodec(compressor)
    encodes, decodes = [], []
    for size, messages, copies, repeats in ((SHORT, 1, 1, 200), (SHORT, MANY, 1, 50), (LONG, 1, COLD_COPIES, 24)):
        layout = FlatLayout(tuple(Segment(f"tensor {at}", at * size, size, shape=(size,)) for at in range(messages)))
        vectors = itertools.cycle([torch.randn(size * messages) for _ in range(copies)])
        totals = itertools.cycle([torch.zeros(size * messages) for _ in range(copies)])
        payloads = itertools.cycle([codec.encode(next(vectors), layout, key).clone() for _ in range(copies)])

        def encode(vectors: Iterator[Tensor] = vectors, layout: FlatLayout = layout) -> None:
            codec.encode(next(vectors), layout, key)

        def decode(
            payloads: Iterator[Tensor] = payloads, totals: Iterator[Tensor] = totals, layout: FlatLayout = layout
        ) -> None:
            codec.add(next(payloads), layout, next(totals))

        encodes.append(least_s(encode, repeats))
        decodes.append(least_s(decode, repeats))
    (encode_rate, *encode_fixed), (decode_rate, *decode_fixed) = _fitted(*encodes), _fitted(*decodes)
    return CodecRates(encode_rate, decode_rate, encode_fixed[0], decode_fixed[0], encode_fixed[1], decode_fixed[1])


def dense_codecs(network: dict[str, float], reduce: dict[str, float]) -> dict[str, CodecRates]:
    """The rates of a dense all-reduce's work on numbers: casts and additions.

    The additions are gloo's: its processor time less that of its bytes.
    """
    vector, half = torch.randn(LONG), torch.zeros(LONG, dtype=torch.bfloat16)
    casts = {"fp32": (0.0, 0.0), "bf16": (least_s(lambda: half.copy_(vector)), least_s(lambda: vector.copy_(half)))}
    codecs = {}
    for form, (there, back) in casts.items():
        sent = LONG * DENSE[form].itemsize  # bytes sent by each of two ranks
        added = max(reduce[form] - 1e-9 * sent / network["host_gb_s"] - 2 * network["message_s"], 1e-5)
        codecs[form] = CodecRates(4e-9 * LONG / there if there else NO_COST, 4e-9 * LONG / (added + back))
    return codecs


# --- the network's side -------------------------------------------------------------------------------------------


def _exchange(send: Tensor, receive: Tensor, peer: int) -> None:
    requests = [dist.isend(send, peer), dist.irecv(receive, peer)]
    for request in requests:
        assert request is not None
        request.wait()


def _processor_s(call: Callable[[], object]) -> float:
    """The processor time of this process, its threads included, for one call that all ranks make."""
    call()
    times = []
    for _ in range(REPEATS):
        dist.barrier()
        times.append(seconds(call, clock=time.process_time))
    return min(times)


def _network_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    small, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(1 << 22, dtype=torch.uint8)
    found = []
    for data, repeats in ((small, 500), (large, 10)):
        other, times, processor = torch.zeros_like(data), [], []
        for _ in range(11):
            dist.barrier()
            cpu = time.process_time()
            for _ in range(repeats):
                times.append(seconds(functools.partial(_exchange, data, other, 1 - rank)))
            processor.append((time.process_time() - cpu) / repeats)
        found.append((statistics.median(times), min(processor)))  # whatever disturbs adds processor time
    reduce = {
        form: _processor_s(lambda dtype=dtype: dist.all_reduce(torch.zeros(LONG, dtype=dtype)))
        for form, dtype in DENSE.items()
    }
    if rank == 0:
        (latency, message), (_, large_cpu) = found
        rate = 1e-9 * large.numel() / (large_cpu - message)
        network = {"latency_s": latency, "message_s": message, "host_gb_s": rate}
        (Path(folder) / "found.json").write_text(json.dumps([network, reduce]))
    dist.destroy_process_group()


def network_rates() -> tuple[dict[str, float], dict[str, float]]:
    """The rates of gloo between two processes of this machine: latency_s, message_s and host_gb_s.

    The processor time of its all-reduces follows, by format.
    """
    with tempfile.TemporaryDirectory() as folder:
        spawn(_network_rank, args=(folder,), nprocs=2)
        network, reduce = json.loads((Path(folder) / "found.json").read_text())
        return network, reduce


# --- models -------------------------------------------------------------------------------------------------------


def model_of(make: Callable[[], nn.Module], batch: int, steps: int = 12) -> tuple[Model, float]:
    """The times at which a model's buckets become ready, and the seconds of its step.

    All is in one process without an exchange.
    """
    torch.manual_seed(0)
    options: dict[str, Any] = {LOCAL_BUFFERS: False}
    model = make()
    ddp = DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
    ready: list[tuple[int, int, float]] = []

    def note(_: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        ready.append((bucket.buffer().numel(), len(bucket.gradients()), time.perf_counter()))
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    # DDP compares objects, not their names
    note.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
    ddp.register_comm_hook(None, note)
    (x, y), rows = batch_of(model, batch), []
    for _ in range(steps):
        ready.clear()
        begin = time.perf_counter()
        loss = nn.functional.cross_entropy(ddp(x).flatten(0, -2), y.flatten())
        backward = time.perf_counter()
        loss.backward()
        after = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        end = time.perf_counter()
        shares = [(at - backward) / (after - backward) for *_, at in ready]
        rows.append((end - begin, (backward - begin) / (end - begin), (end - after) / (end - begin), *shares))
    # DDP rebuilds buckets at first
    step_s, forward, tail, *shares = (statistics.median(column) for column in zip(*rows[2:], strict=True))
    buckets = tuple(
        Bucket(size, round(share, 3), tensors) for (size, tensors, _), share in zip(ready, shares, strict=True)
    )
    return Model(buckets, round(forward, 3), round(tail, 3)), step_s


def measure(about: str) -> Profile:
    """The whole profile, measured on one thread."""
    torch.set_num_threads(1)
    network, reduce = network_rates()
    codecs = {kind: codec_rates_of(name) for kind, name in REPRESENTATIVES.items()} | dense_codecs(network, reduce)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        models, times = {}, {}
        for name, batch in (("mlp", 32), ("resnet18", 8), ("gpt", 4)):
            models[name], times[name] = model_of(MODELS[name], batch)
        dist.destroy_process_group()
    cores = os.cpu_count() or 1
    return Profile(
        about,
        shared_core=True,
        cores=cores,
        compute_s=times["mlp"],
        codecs=codecs,
        models=models,
        validation={},
        **network,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description="The rates behind the cost model")
    parser.add_argument("--out", type=Path, help="write the profile here; a validation that it holds is dropped")
    parser.add_argument("--about", default="one core a worker, gloo over TCP", help="what was measured, in words")
    options = parser.parse_args()
    found = measure(options.about)
    for kind, codec in found.codecs.items():
        message = f"{1e6 * codec.encode_message_s:6.1f} {1e6 * codec.decode_message_s:6.1f} us a message"
        fixed = f"{message}, {1e6 * codec.encode_frame_s:6.1f} {1e6 * codec.decode_frame_s:6.1f} us a frame"
        print(f"{kind:8s} encode {codec.encode_gb_s:8.2f} GB/s  decode and add {codec.decode_gb_s:6.2f} GB/s  {fixed}")
    per_message = f"{1e6 * found.message_s:.0f} us a message, latency {1e6 * found.latency_s:.0f} us"
    print(f"network  {found.host_gb_s:.2f} GB/s of processor, {per_message}")
    for name, model in found.models.items():
        buckets = ", ".join(f"{bucket.coordinates} at {bucket.ready:.2f}" for bucket in model.buckets)
        print(f"{name:8s} forward {model.forward:.2f}, tail {model.tail:.2f}, buckets {buckets}")
    if options.out:
        profiles.write(found, options.out)
    rates = {
        f"{kind}_{what}": round(getattr(codec, what), 3)
        for kind, codec in found.codecs.items()
        for what in ("encode_gb_s", "decode_gb_s")
    }
    print(
        json.dumps(
            rates | {name: getattr(found, name) for name in ("latency_s", "message_s", "host_gb_s", "compute_s")}
        )
    )


if __name__ == "__main__":
    main()
