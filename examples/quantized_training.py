"""Training with weights, activations, gradients and moments held in SmaQ's six bits.

python examples/quantized_training.py
"""

import torch
from torch import nn

import nuq

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
compressed = nuq.CompressedTraining(
    model, optimizer, weights="smaq", activations="smaq", activation_gradients="bf16", gradients="smaq", moments="smaq"
)
labels = torch.randint(10, (512,))
inputs = torch.randn(10, 64)[labels] + 0.5 * torch.randn(512, 64)
for _ in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}; bytes of float32 over bytes kept:")
for kind, ratio in compressed.ratios().items():
    print(f"  {kind}: {ratio:.2f}")
compressed.remove()
