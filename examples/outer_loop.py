"""Local steps with an outer optimizer, as in DiLoCo: only the difference of a round travels, in 4 bits.

torchrun --nproc-per-node=2 examples/outer_loop.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import nuq

ROUNDS, LOCAL_STEPS = 10, 20

dist.init_process_group("gloo")
torch.manual_seed(0)  # all ranks begin alike
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
outer = parameters_to_vector(model.parameters()).detach().clone()
momentum = torch.zeros_like(outer)
torch.manual_seed(1 + dist.get_rank())  # and have data of their own
weights = torch.linspace(-1, 1, 20)
for number in range(ROUNDS):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(LOCAL_STEPS):
        x = torch.randn(64, 20)
        loss = (model(x).squeeze(1) - torch.tanh(x @ weights)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    difference = outer - parameters_to_vector(model.parameters()).detach()
    mean = nuq.all_reduce(difference, "alq", step=number, bits=4)  # the same bits on every rank
    momentum = 0.6 * momentum + mean
    outer = outer - 0.7 * (mean + 0.6 * momentum)  # Nesterov
    vector_to_parameters(outer.clone(), model.parameters())  # a copy: parameters become views of what they are given
print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, parameters sum to {float(outer.double().sum()):.9f}")
dist.destroy_process_group()
