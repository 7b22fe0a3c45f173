"""The rates behind the cost model: those of the repository lie in ``analysis/prediction/profile.json``.

They are measured with one thread, as one rank has.

Encoding and decoding (the frame with its checksum included) are timed on one long, one short and many short messages:
what these differ by are the rate and the prices of a message and of a frame.  The network's side is that of gloo on
this machine's loopback: processor time per byte and per message of two processes that send to each other.  For the
models, a hook notes the time when DDP's buckets become ready.  A figure is the least of many times, since whatever else
runs only adds to them; latency and models have medians.  Rates are GB/s of float32 input.  The last line is one JSON
object.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analysis.prediction import profile as profiles
from benchmarks.links.models import LOCAL_BUFFERS, MODELS, batch_of
from benchmarks.timing import print_rows
from nuq.advice import codec_rates, network_rates, script
from nuq.exchange.hook.settings import HookSettings
from nuq.prediction.message_size import FACTORED, MeasuredFormat, by_formula
from nuq.prediction.rates import CodecRates, Model, Profile
from nuq.registry import METHODS

REPRESENTATIVES = {"uniform": "qsgdinf", "levels": "alq", "ternary": "trn", "rotated": "eden", "lattice": "ecdq"}
LIMIT_S = 5.0  # of each of the six things that are timed of a codec


def codecs() -> tuple[dict[str, CodecRates], dict[str, MeasuredFormat]]:
    """The rates of all codecs by kind, and the formats of the methods that have no formula."""
    torch.manual_seed(0)
    vector = torch.randn(codec_rates.LONG)
    rates = {
        kind: codec_rates.measured(HookSettings.of(name, (), {}), vector)[0] for kind, name in REPRESENTATIVES.items()
    }
    formats = {}
    for name in METHODS:
        if not by_formula(name) and name not in (FACTORED, "bf16"):
            rates[name], formats[name] = codec_rates.measured(HookSettings.of(name, (), {}), vector, LIMIT_S)
    rates[FACTORED] = factor_rates()
    return rates, formats


def factor_rates() -> CodecRates:
    """The rates of PowerSGD's arithmetic on square matrices: one small one, many, and one of as many coordinates."""
    side, encodes, decodes = math.isqrt(codec_rates.LONG), [], []
    small = math.isqrt(codec_rates.SHORT)
    for rows, matrices in ((small, 1), (small, codec_rates.MANY), (side, 1)):
        shapes = {f"tensor {at}": torch.Size((rows, rows)) for at in range(matrices)}
        encode, decode = codec_rates.factor_s(HookSettings.of(FACTORED, (), {}), shapes, torch.device("cpu"), LIMIT_S)
        encodes.append(encode)
        decodes.append(decode)
    return codec_rates.rates(side * side, encodes, decodes)


# --- models -------------------------------------------------------------------------------------------------------


def model_of(make: Callable[[], nn.Module], batch: int) -> tuple[Model, float]:
    """The times at which a model's buckets become ready, and the seconds of its step.

    All is in one process without an exchange.
    """

    def train() -> None:
        torch.manual_seed(0)
        options: dict[str, Any] = {LOCAL_BUFFERS: False}
        ddp = DistributedDataParallel(make(), **options)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
        x, y = batch_of(ddp.module, batch)
        while True:
            nn.functional.cross_entropy(ddp(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    seen = script.watched(train)
    return seen.model(), seen.compute_s


def measure(about: str) -> Profile:
    """The whole profile, measured on one thread."""
    torch.set_num_threads(1)
    network = network_rates.measured()
    rates, formats = codecs()
    dense = network_rates.dense_codecs(network)
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
        latency_s=network.latency_s,
        busy_latency_s=network.busy_latency_s,
        message_s=network.message_s,
        host_gb_s=network.host_gb_s,
        mean_gb_s=codec_rates.mean_gb_s(torch.device("cpu")),
        codecs=rates | dense,
        models=models,
        formats=formats,
    )


def figures(out: Path | None, about: str) -> dict[str, float]:
    """The rates of the profile, which is written to ``out``."""
    found = measure(about)
    kinds = ("encode_gb_s", "decode_gb_s", "encode_message_s", "decode_message_s", "encode_frame_s", "decode_frame_s")
    print_rows("", {kind: {name: getattr(codec, name) for name in kinds} for kind, codec in found.codecs.items()})
    print_rows("", {name: {"tail": model.tail, "buckets": len(model.buckets)} for name, model in found.models.items()})
    if out:
        profiles.write(found, out)
    rates = {
        f"{kind}_{name}": round(getattr(codec, name), 3) for kind, codec in found.codecs.items() for name in kinds[:2]
    }
    others = ("latency_s", "busy_latency_s", "message_s", "host_gb_s", "mean_gb_s", "compute_s")
    return rates | {name: getattr(found, name) for name in others}
