"""Local steps with an outer optimizer, as in DiLoCo: only what a round moved travels, in 4 bits.

torchrun --nproc-per-node=2 examples/outer_loop.py
"""

import torch
import torch.distributed as dist
from torch import nn

import nuq

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loop = nuq.OuterLoop(model, optimizer, every=20, outer_momentum=0.6, method="alq", bits=4)  # all ranks begin alike

torch.manual_seed(1 + dist.get_rank())  # and have data of their own
weights = torch.linspace(-1, 1, 20)
for _ in range(200):
    x = torch.randn(64, 20)
    loss = (model(x).squeeze(1) - torch.tanh(x @ weights)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    loop.step()  # the optimizer's step, and after every 20th the outer one
loop.finish()  # all ranks have one model now, whatever the number of steps: the one to save and evaluate
total = sum(float(p.double().sum()) for p in model.parameters())
print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, parameters sum to {total:.9f}")
loop.close()
dist.destroy_process_group()
