"""Local steps (``exchange.local_steps``): models of the workers' own, and the outer optimizer that joins them.

DiLoCo (Douillard et al., 2023, arXiv 2311.08105, Algorithm 1): in a round of H steps every worker trains its own model
with an optimizer of its own; then the mean of the workers' moves, compressed by the method of the run, is the gradient
of an outer optimizer (``nuq.outer.outer_step``), and all go on from the outer parameters.  What an optimizer remembers
and the buffers (batch norm's) stay each worker's own.  Difference from the paper: a local step exchanges a few bytes,
the losses and whether to stop, so that all processes leave it together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange.driver import Driver
from nuq.exchange.finite import first_not_finite
from nuq.exchange.flat_layout import FlatLayout
from nuq.outer import outer_step
from settings.sections import dotted
from train.process.checkpoint import Open
from train.steps import optim
from train.steps.update import check_finite


class LocalModels:
    """The models of the workers that this process hosts, which take turns in one module, and the outer parameters.

    parameters: of ``model``, by name, trained by ``optimizer``; layout: of a vector of them all, float32[n]; exchange:
    the settings ``outer_lr``, ``outer_momentum`` and ``nesterov``.  A worker's turn (``take``) puts its parameters and
    buffers into the module and its memory into the optimizer; ``show`` puts the outer parameters there.

    Memory: beside the module two vectors of n, and for every hosted worker a copy of parameters and buffers and
    whatever its optimizer remembers.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        layout: FlatLayout,
        optimizer: torch.optim.Optimizer,
        hosted: Sequence[int],
        exchange: Mapping[str, Any],
    ) -> None:
        self._model, self._parameters, self._layout, self._optimizer = model, parameters, layout, optimizer
        self._how = {"momentum": exchange["outer_momentum"], "nesterov": exchange["nesterov"]}
        self._lr: float = exchange["outer_lr"]
        self.hosted = list(hosted)
        self._live = [*(p.detach() for p in parameters.values()), *model.buffers()]  # what the module computes with
        self.begin()

    def begin(self) -> None:
        """Begin with what is in the module: the same model for all workers, and nothing remembered."""
        self._outer = self._flat(self._live)
        self._momentum = torch.zeros_like(self._outer)
        self._kept = {worker: [value.clone() for value in self._live] for worker in self.hosted}
        self._memories: dict[int, Any] = {worker: defaultdict(dict) for worker in self.hosted}
        self._turn: int | None = None  # the worker whose model is in the module, and newer than what is kept of it

    # --- turns ---

    def take(self, worker: int) -> None:
        """Put a worker's model into the module, and what its optimizer remembers into the optimizer."""
        if self._turn != worker:
            self._put_back()
            _copy(self._live, self._kept[worker])
            self._optimizer.state = self._memories[worker]
            self._turn = worker

    def show(self) -> None:
        """Put the outer parameters into the module, and the first worker's buffers where it is hosted here."""
        self._put_back()
        if 0 in self._kept:
            _copy(self._live, self._kept[0])
        _copy(self._live[: len(self._parameters)], self._layout.views(self._outer))

    def _put_back(self) -> None:
        if self._turn is not None:
            _copy(self._kept[self._turn], self._live)
        self._turn = None

    # --- the end of a round ---

    def moves(self) -> dict[int, Tensor]:
        """What each hosted worker moved by since the round began: the outer parameters minus its own, float32[n]."""
        self._put_back()
        return {worker: self._outer - self._flat(kept) for worker, kept in self._kept.items()}

    def end_round(self, mean: Tensor, step: int) -> None:
        """Step the outer optimizer along the mean of all workers' moves, float32[n], and bring all workers there.

        NonFiniteError names the step and the parameter that is no longer finite.
        """
        outer_step(self._outer, self._momentum, mean, lr=self._lr, **self._how)
        views = self._layout.views(self._outer)
        if (bad := first_not_finite(views)) is not None:
            check_finite(step, f"the outer parameter {list(self._parameters)[bad]!r}", views[bad])
        for kept in self._kept.values():
            _copy(kept[: len(views)], views)

    def _flat(self, values: Sequence[Tensor]) -> Tensor:
        flat = torch.empty(self._layout.num_coordinates, dtype=torch.float32, device=values[0].device)
        _copy(self._layout.views(flat), values[: len(self._parameters)])
        return flat

    # --- checkpoints ---

    def state_dict(self, driver: Driver, step: int) -> dict[str, Any]:
        """The momentum of the outer optimizer and every worker's model, the same in every split.

        The outer parameters are what ``show`` puts into the module.  Every process calls it, since it gathers.
        NonFiniteError where a worker's state is not worth keeping.
        """
        self._put_back()
        mine = {worker: self._of_worker(worker) for worker in self.hosted}
        form = mine[self.hosted[0]]
        rows = driver.gather({worker: _packed(state, self._outer.device) for worker, state in mine.items()})
        sizes = [tensor.nbytes for tensor in dotted(form).values()]
        everyone = {worker: _unpacked(form, iter(row.cpu().split(sizes))) for worker, row in enumerate(rows)}
        for worker, state in everyone.items():
            for name, tensor in dotted(state).items():
                check_finite(step, f"{name} of worker {worker}", tensor)
        return {"momentum": self._momentum, "workers": everyone}

    def _of_worker(self, worker: int) -> dict[str, Any]:
        values, num = self._kept[worker], len(self._parameters)
        self._optimizer.state = self._memories[worker]
        return {
            "parameters": dict(zip(self._parameters, values[:num], strict=True)),
            "buffers": dict(zip((name for name, _ in self._model.named_buffers()), values[num:], strict=True)),
            "optimizer": self._optimizer.state_dict()["state"],
        }

    def outline(self, num_workers: int) -> dict[str, Any]:
        """The state that ``load_state_dict`` reads, for ``checkpoint.check_values``."""
        own = {**self._of_worker(self.hosted[0]), "optimizer": Open(optim.outline(self._optimizer)["state"])}
        return {"momentum": self._momentum, "workers": dict.fromkeys(range(num_workers), own)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``, the outer parameters being in the module.  ValueError as ``optim.restore``."""
        self.begin()
        self._momentum.copy_(state["momentum"])
        groups = self._optimizer.state_dict()["param_groups"]
        for worker in self.hosted:
            own = state["workers"][worker]
            _copy(self._kept[worker], [*own["parameters"].values(), *own["buffers"].values()])
            optim.restore(self._optimizer, {"state": own["optimizer"], "param_groups": groups})
            self._memories[worker] = self._optimizer.state


def _copy(to: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    if to:
        torch._foreach_copy_(list(to), list(values))  # pyright: ignore[reportPrivateImportUsage]


def _packed(state: Mapping[str, Any], device: torch.device) -> Tensor:
    """The bytes of all tensors in nested dicts, one after another: uint8[bytes]."""
    return torch.cat([tensor.reshape(-1).view(torch.uint8).to(device) for tensor in dotted(state).values()])


def _unpacked(form: Any, pieces: Iterator[Tensor]) -> Any:
    """Nested dicts as ``form``, of tensors like its own with the bytes of these pieces."""
    if isinstance(form, Tensor):
        return torch.empty_like(form, device="cpu").copy_(next(pieces).clone().view(form.dtype).view(form.shape))
    return {key: _unpacked(value, pieces) for key, value in form.items()}
