"""FSDP2: the reduce-scatter of gradients is compressed, parameters are gathered as before.

torchrun --nproc-per-node=2 examples/train_fsdp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 10))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
state = nuq.compress_fsdp(model, "alq", bits=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 100)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: loss {loss.item():.3f}")
dist.destroy_process_group()
