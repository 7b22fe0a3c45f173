"""Training scripts to be advised on, as text."""

from __future__ import annotations

TRAINING = """
import argparse, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=1000)
steps = options.parse_args().steps
dist.init_process_group("gloo")
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 5))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(steps):
    x = torch.randn(16, 40, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    ddp(x).square().mean().backward()
    optimizer.step()
    with torch.no_grad():  # no training step
        ddp(x)
"""
"""A small training of 13,805 parameters whose data follow from the step."""

ANOTHER_HOOK = TRAINING.replace(
    "optimizer = ",
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    "ddp.register_comm_hook(None, default_hooks.allreduce_hook)\noptimizer = ",
)
ZERO = TRAINING.replace(".square().mean()", ".mul(0).mean()")
DOUBLE = TRAINING.replace("ddp = ", "model = model.double()\nddp = ")
HALVES = TRAINING.replace(
    "ddp = DistributedDataParallel(model)",
    "ddp = DistributedDataParallel(model.bfloat16())\nother = DistributedDataParallel(nn.Linear(2, 2))",
).replace("ddp(x)", "ddp(x.bfloat16())")
SCALED = TRAINING.replace(
    ".mean().backward()", ".mean().mul(float('inf') if step in (9, 10) else 1).backward()"
).replace("    optimizer.step()", "    if step not in (9, 10):\n        optimizer.step()")
"""Two steps have no finite gradient, as where a loss scaler has yet to find its scale."""
SPAWNING = """
import os
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def work(rank, world):
    os.environ["MASTER_ADDR"] = "localhost"
    dist.init_process_group("gloo", rank=rank, world_size=world)
    ddp = DistributedDataParallel(torch.nn.Linear(7, 4))
    for _ in range(100):
        ddp(torch.randn(2, 7)).sum().backward()

if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
"""
_SPAWNS = "    mp.spawn(work, args=(2,), nprocs=2)"
STARTING = SPAWNING.replace(
    _SPAWNS,
    """    ranks = [mp.get_context("spawn").Process(target=work, args=(rank, 2)) for rank in range(2)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]""",
)
POOLED = SPAWNING.replace("    dist.init", "    #").replace(
    _SPAWNS,
    """    import warnings
    warnings.simplefilter("ignore")  # a fork beside threads
    with mp.get_context("fork").Pool(1) as pool:
        pool.apply(work, (0, 1))""",
)
BESIDE = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'], check=True)"
WITHOUT_DDP = "print('nothing to see')"
BROKEN = TRAINING.replace("optimizer.step()", "raise KeyError('lost')")
