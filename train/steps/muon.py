"""Muon for a model's hidden matrices, and AdamW for all its other parameters: one optimizer, as a trainer knows it.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): the momentum of a matrix is replaced by
the nearest semi-orthogonal one before the step.  The arithmetic is torch.optim.Muon's: with momentum as a running mean,
five Newton-Schulz iterations in bfloat16, and decoupled weight decay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

RATE = "rate"  # the key, in a group of parameters, of the setting that holds its rate


def hidden_matrices(model: nn.Module, spared: Collection[int]) -> list[nn.Parameter]:
    """The parameters that Muon is for: two-dimensional, and neither an embedding's nor the output's.

    The output is the last module that has a matrix.  spared: identities of others that are none (norms, biases).
    Convolutions, of four dimensions, are none either: torch's Muon refuses them.
    """
    having = [m for m in model.modules() if any(p.dim() == 2 for p in m.parameters(recurse=False))]
    apart = [m for m in having if isinstance(m, nn.Embedding | nn.EmbeddingBag)] + having[-1:]
    others = {id(p) for module in apart for p in module.parameters(recurse=False)} | set(spared)
    return [p for p in model.parameters() if p.dim() == 2 and id(p) not in others]


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for some groups of parameters and AdamW for the others, which share one state and one list of groups."""

    def __init__(self, values: Mapping[str, Any], matrices: Sequence[nn.Parameter], others: list[dict[str, Any]]):
        """values: of ``settings.optim.Muon``; others: AdamW's groups, each with its ``weight_decay``."""
        how = {name: values[name] for name in ("lr", "weight_decay", "momentum", "nesterov", "ns_steps")}
        own = [{"params": list(matrices), RATE: "lr"}]
        self._muon = torch.optim.Muon(own, **how, adjust_lr_fn=values["adjust_lr"])
        rest = [{**group, RATE: "adamw_lr"} for group in others]
        self._adamw = torch.optim.AdamW(rest, lr=values["adamw_lr"], betas=(values["beta1"], values["beta2"]))
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for part, rate in ((self._muon, "lr"), (self._adamw, "adamw_lr")):
            part.state = self.state  # another object once a checkpoint is loaded, as are the groups
            part.param_groups = [group for group in self.param_groups if group[RATE] == rate]
            part.step()
