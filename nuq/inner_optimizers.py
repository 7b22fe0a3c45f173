"""The optimizers of a rank's local steps (``nuq.outer``), and the parameters that they train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from nuq.parameters import check_model, trained


def several(inner: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One optimizer, or some of them, as a list; ValueError for anything else."""
    listed = list(inner) if isinstance(inner, Sequence) else [inner]
    if not listed or not all(isinstance(one, Optimizer) for one in listed):
        raise ValueError(f"inner_optimizer={inner!r}: must be a torch.optim.Optimizer, or a list of them")
    return listed


def trained_by(optimizers: Sequence[Optimizer], model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters of a model by name (``nuq.parameters.trained``).

    ValueError where one is in none of the optimizers or in several, where these have one that is not the model's, and
    for a model under DDP.
    """
    check_model(model)
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        why = "which exchanges every gradient; an OuterLoop takes a model of each rank's own"
        raise ValueError(f"the model is under DistributedDataParallel, {why}")
    parameters = trained(model)
    listed = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    times = Counter(map(id, listed))
    for name, p in parameters.items():
        if not times[id(p)]:
            raise ValueError(f"parameter {name!r}: the inner optimizer does not train it; freeze it, or add it")
        if times[id(p)] > 1:
            raise ValueError(f"parameter {name!r}: {times[id(p)]} inner optimizers train it; leave it to one of them")
    own = {id(p) for p in model.parameters()}
    if foreign := [list(p.shape) for p in listed if id(p) not in own]:
        raise ValueError(f"the inner optimizer trains a parameter of shape {foreign[0]} that is not the model's")
    return parameters
