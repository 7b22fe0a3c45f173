"""Small models under DDP, and the gradients of a few steps: what the tests of the hook compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import nuq

WIDTH, CLASSES = 12, 5


def net(seed: int = 0, *, hidden: int = 40) -> nn.Sequential:
    """Three layers; parameters of 480, 40, 1600, 40, 200 and 5 coordinates."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
    )


def inputs(rank: int, step: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(6, WIDTH, generator=generator, dtype=torch.float32).to(dtype)


def backward(model: Callable[..., Any], rank: int, step: int, dtype: torch.dtype = torch.float32) -> None:
    """One batch's gradient, of a loss that differs from rank to rank."""
    model(inputs(rank, step, dtype)).float().square().mean().backward()


def wrapped(group: dist.ProcessGroup, module: nn.Module, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(module, process_group=group, **options)


def hooked(
    group: dist.ProcessGroup,
    module: nn.Module,
    *,
    ddp: dict[str, Any] | None = None,
    own: dist.ProcessGroup | None = None,
    **settings: Any,
) -> tuple[DistributedDataParallel, nuq.CompressionState]:
    """The module under DDP with a state of its own; everything is compressed.  own: the state's group."""
    model = wrapped(group, module, **(ddp or {}))
    state = nuq.CompressionState(model, group=own, **{"min_size": 0, "timeout_s": 60.0} | settings)
    model.register_comm_hook(state, nuq.compress_hook)
    return model, state


def gradients(module: nn.Module) -> Tensor:
    """All that there are, as one float32 vector."""
    return torch.cat([p.grad.detach().reshape(-1).float() for p in module.parameters() if p.grad is not None])


def parameters(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).float() for p in module.parameters()])


def of_all(group: dist.ProcessGroup, tensor: Tensor) -> list[Tensor]:
    """Every rank's tensor."""
    rows = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, tensor.contiguous(), group=group)
    return rows


def assert_same_bits(group: dist.ProcessGroup, tensor: Tensor) -> None:
    rows = of_all(group, tensor.reshape(-1))
    assert all(torch.equal(row.view(torch.uint8), rows[0].view(torch.uint8)) for row in rows), "ranks hold other bits"


def descend(model: nn.Module, step: Callable[[], None], *, rate: float = 0.1) -> None:
    """One step of plain SGD on what ``step`` leaves in the gradients."""
    model.zero_grad()
    step()
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= rate * p.grad


def own_entry(one: Any) -> dict[str, Any]:
    """What a CompressionState or an OuterLoop saves of its own rank."""
    ((own,),) = one.state_dict().values()
    return own


def residuals(state):
    """The residuals that this rank's state remembers, by parameter."""
    (memory,) = state._here.driver.compressors.memories[0].memories.values()
    return memory["residuals"]
