"""The optimizers of an outer loop's local steps: several together, and those that do not fit the model."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import nuq
from tests.nuq.small_training import backward, net, parameters


def two_optimizers(group):
    """MuLoCo: every parameter's own optimizer steps, and both go on from what was saved."""
    rank = dist.get_rank(group)

    def loop_of(model: nn.Module) -> nuq.OuterLoop:
        groups = [[p for p in model.parameters() if (p.dim() == 2) == of_muon] for of_muon in (True, False)]
        inner = [torch.optim.Muon(groups[0], lr=0.02), torch.optim.AdamW(groups[1], lr=0.01)]
        return nuq.OuterLoop(model, inner, group=group, every=3, timeout_s=30.0)

    def train(loop: nuq.OuterLoop, steps: range) -> None:
        for step in steps:
            loop.model.zero_grad()
            backward(loop.model, rank, step)
            loop.step()

    by_hand, loop = net(0), loop_of(net(0))
    muon = torch.optim.Muon([p for p in by_hand.parameters() if p.dim() == 2], lr=0.02)
    adamw = torch.optim.AdamW([p for p in by_hand.parameters() if p.dim() != 2], lr=0.01)
    for step in range(2):
        by_hand.zero_grad()
        backward(by_hand, rank, step)
        muon.step()
        adamw.step()
    train(loop, range(2))
    assert torch.equal(parameters(loop.model), parameters(by_hand))
    calls: list[int] = []
    assert loop.step(lambda: calls.append(1) or 0.25) == 0.25
    assert len(calls) == 1
    saved: Any = [loop.state_dict(), loop.model.state_dict(), [each.state_dict() for each in loop.inner_optimizer]]
    saved = copy.deepcopy(saved)
    train(loop, range(2, 5))
    again = loop_of(net(5))
    again.load_state_dict(saved[0])
    again.model.load_state_dict(saved[1])
    for optimizer, state in zip(again.inner_optimizer, saved[2], strict=True):
        optimizer.load_state_dict(state)
    train(again, range(2, 5))
    assert torch.equal(parameters(again.model), parameters(loop.model))
    for one in (loop, again):
        one.close()


def test_several_inner_optimizers_step_together(ranks):
    ranks.run(two_optimizers, world=2)
