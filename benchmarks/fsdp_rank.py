"""One rank of ``benchmarks.fsdp``, which answers commands until its input ends; each is a line of JSON.

- ``{"do": "prepare", "variants", "small", "steps"}``: a copy of the model under FSDP2 for every variant, and its first
  steps.
- ``{"do": "measure", "variant", "steps"}``: seconds of a step, and bytes of it by the interface.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import nuq
from benchmarks.network import read_counters
from benchmarks.wire_rank import TIMEOUT, batch_of, gpt
from train.data.text import NUM_CODES
from train.models.gpt import GPT

BATCH = 4  # windows


def sharded(variant: str, *, small: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model of a variant, and its optimizer; all start with the same weights."""
    torch.manual_seed(1)
    model: Any = GPT(NUM_CODES, 128, layers=2, heads=2, width=32, dropout=0.0, tied=False) if small else gpt()
    how: dict[str, Any] = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    if variant == "bf16":
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, **how)
    fully_shard(model, **how)
    if variant != "bf16":
        bits = int(variant.removesuffix(" bits"))
        nuq.compress_fsdp(model, "qsgdinf", bits=bits, feedback="average")
        nuq.compress_fsdp_weights(model, "qsgdinf", bits=bits)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs, targets = batch_of(model, BATCH)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs).flatten(0, -2).float(), targets.flatten()).backward()
    optimizer.step()


def measure(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, float]:
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    dist.barrier()
    before, start = read_counters(interface), time.perf_counter()
    for _ in range(steps):
        step(model, optimizer)
    seconds = (time.perf_counter() - start) / steps
    dist.barrier()
    return {"step_s": seconds, "interface_bytes": read_counters(interface).payload_since(before) / steps}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    trained: dict[str, tuple[nn.Module, torch.optim.Optimizer]] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, float] = {}
        if command["do"] == "prepare":
            trained = {variant: sharded(variant, small=command["small"]) for variant in command["variants"]}
            for model, optimizer in trained.values():
                for _ in range(command["steps"]):
                    step(model, optimizer)
        else:
            answer = measure(*trained[command["variant"]], command["steps"])
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
