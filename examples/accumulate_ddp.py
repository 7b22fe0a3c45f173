"""DDP with gradient accumulation, bfloat16 autocast and clipping: only what `no_sync` lets through is compressed.

torchrun --nproc-per-node=2 examples/accumulate_ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import nuq

ACCUMULATED = 4

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Sequential(nn.Linear(100, 200), nn.LayerNorm(200), nn.ReLU(), nn.Linear(200, 10)))
# what 2 bits leave out is added to the next gradient; norms and biases travel in full precision
state = nuq.CompressionState(model, method="qsgdinf", bits=2, feedback="error", skip_1d=True)
model.register_comm_hook(state, nuq.compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
target = torch.randint(10, (100,), generator=torch.Generator().manual_seed(0))


def loss_of_a_batch() -> torch.Tensor:
    """The cross entropy of 32 random inputs, a hundredth of each of which tells its class."""
    labels = torch.randint(100, (32,))
    with torch.autocast("cpu", torch.bfloat16):
        return nn.functional.cross_entropy(model(nn.functional.one_hot(labels, 100).float()), target[labels])


first = last = 0.0
for step in range(40):
    optimizer.zero_grad()
    total = 0.0
    for part in range(ACCUMULATED):
        if part < ACCUMULATED - 1:
            with model.no_sync():  # added up here, nothing travels
                loss = loss_of_a_batch() / ACCUMULATED
                loss.backward()
        else:
            loss = loss_of_a_batch() / ACCUMULATED
            loss.backward()  # the sum travels, compressed
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of the mean, which all ranks have alike
    optimizer.step()
    first, last = (total if step == 0 else first), total
print(f"rank {dist.get_rank()}: loss {first:.2f} -> {last:.2f}, {state.bytes_sent} bytes sent")
state.close()
dist.destroy_process_group()
