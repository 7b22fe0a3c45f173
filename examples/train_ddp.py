"""An ordinary DDP training with ALQ's 3 bits: two lines more than without.

torchrun --nproc-per-node=2 examples/train_ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import nuq

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # every rank its own data; DDP gives all ranks the first one's weights
model = DistributedDataParallel(torch.nn.Linear(1000, 100))
state = nuq.CompressionState(model, method="alq", bits=3)  # on every rank
model.register_comm_hook(state, nuq.compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(64, 1000)).square().mean().backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: {state.bytes_sent} bytes sent, collective {state.collective}")
print(state.summary())
state.close()
dist.destroy_process_group()
