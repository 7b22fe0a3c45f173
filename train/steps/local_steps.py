"""Local steps (``exchange.local_steps``): models of the workers' own, and the outer optimizer that joins them.

DiLoCo (Douillard et al., 2023, arXiv 2311.08105, Algorithm 1): in a round of H steps every worker trains its own model
with an optimizer of its own; then the mean of the workers' moves, compressed by the method of the run, is the gradient
of an outer optimizer (``nuq.fragments.outer_step``), and all go on from the outer parameters.  What an optimizer
remembers and the buffers (batch norm's) stay each worker's own.  Difference from the paper: a local step exchanges a
few bytes, the losses and whether to stop, so that all processes leave it together.

Streaming DiLoCo (Douillard et al., 2025, arXiv 2501.18512, Algorithm 2): parts of the model (``fragments``) are sent
one after another in a round, at even distances; their means are taken over ``overlap`` local steps later, when a share
(``mixing``) of each worker's own parameters stays.  Meanwhile messages are on their way where the collective is gather
and their lengths are known beforehand; otherwise an exchange ends before the next local step, and its mean waits.
Difference from the paper: parts are neighboring tensors of about as many coordinates, not layers far apart.

At the end of a run, ``finish`` takes over the means on their way, and the mean of what was moved since each part was
sent, as ``nuq.OuterLoop.finish``: all workers have one model, which is evaluated.  What is saved to go on from is the
state before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange.driver import Driver
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.parts import Part
from nuq.fragments import outer_step
from nuq.simulation import Workers
from settings.sections import dotted
from train.steps import optim
from train.steps.update import check_finite


@dataclass
class Sent:
    """A part that was sent after so many local steps, and the mean of its moves, float32[n], there after ``end``."""

    part: Part
    step: int
    mean: Tensor
    end: Callable[[], None]


class LocalModels:
    """The models of the workers that this process hosts, which take turns in one module, and the outer parameters.

    parameters: of ``model``, by name, trained by ``optimizer``; layout: of a vector of them all, float32[n]; parts: of
    the model, as they are sent; exchange: the settings.  A worker's turn (``take``) puts its parameters and buffers
    into the module and its memory into the optimizer; ``show`` puts the outer parameters there.

    Memory: beside the module two vectors of n, for every hosted worker a copy of parameters and buffers and whatever
    its optimizer remembers, and the means that are on their way.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        layout: FlatLayout,
        optimizer: torch.optim.Optimizer,
        hosted: Sequence[int],
        parts: Sequence[Part],
        exchange: Mapping[str, Any],
    ) -> None:
        self._model, self._parameters, self._layout, self._optimizer = model, parameters, layout, optimizer
        self._how = {
            "lr": exchange["outer_lr"],
            "momentum": exchange["outer_momentum"],
            "nesterov": exchange["nesterov"],
        }
        self._every: int = exchange["local_steps"]
        self._overlap: int = exchange["overlap"]
        self._mixing: float = exchange["mixing"] if self._overlap else 0.0
        self._parts = {part.at: part for part in parts}
        self._number = {name: number for number, name in enumerate(parameters)}
        self.hosted = list(hosted)
        self._live = [*(p.detach() for p in parameters.values()), *model.buffers()]  # what the module computes with
        self.begin()

    def begin(self) -> None:
        """Begin with what is in the module: the same model for all workers, and nothing remembered."""
        self._outer = self._flat(self._live)
        self._momentum = torch.zeros_like(self._outer)
        self._kept = {worker: [value.clone() for value in self._live] for worker in self.hosted}
        self._memories: dict[int, Any] = {worker: defaultdict(dict) for worker in self.hosted}
        self._sent: list[Sent] = []  # not taken over yet, the oldest first
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

    # --- exchanges ---

    def sent_after(self, step: int) -> Part | None:
        """The part that is sent after so many local steps, if one is."""
        return self._parts.get(step % self._every)

    @property
    def last(self) -> Part:
        """The part that is sent last in a round."""
        return max(self._parts.values(), key=lambda part: part.at or self._every)

    def moves(self, part: Part) -> dict[int, Tensor]:
        """What each hosted worker moved a part by: the outer parameters minus its own, as the part's vector."""
        self._put_back()
        outer, numbers = self._layout.views(self._outer), [self._number[name] for name in part.names]
        return {
            worker: torch.cat([(outer[number] - kept[number]).reshape(-1) for number in numbers])
            for worker, kept in self._kept.items()
        }

    def expect(self, sent: Sent) -> None:
        """Expect a mean, which ``take_over`` steps along when it is due."""
        self._sent.append(sent)

    def wait(self) -> None:
        """Wait for what is on its way.  Every process calls it after the same step."""
        for sent in self._sent:
            sent.end()
            sent.end = _there

    def take_over(self, step: int) -> None:
        """Step the outer optimizer along the means that are due after so many local steps, and bring all workers there.

        NonFiniteError names the step and the parameter that is no longer finite.
        """
        while self._sent and step >= self._sent[0].step + self._overlap:
            self._take_next(step, self._mixing)

    def _take_next(self, step: int, mixing: float, *, steps: bool = True) -> None:
        """Take over the oldest mean, by a step of the outer optimizer or as it is.

        mixing: the share of every worker's own parameters that stays.
        """
        sent = self._sent.pop(0)
        sent.end()
        self._put_back()
        outer, momentum = self._layout.views(self._outer), self._layout.views(self._momentum)
        for name, piece in self._pieces(sent.part, sent.mean).items():
            number = self._number[name]
            if steps:
                outer_step(outer[number], momentum[number], piece, **self._how)
            else:
                outer[number].sub_(piece)
            check_finite(step - 1, f"the outer parameter {name!r}", outer[number])
            for kept in self._kept.values():
                own = kept[number]
                own.copy_(torch.lerp(outer[number], own, mixing) if mixing else outer[number])

    def has_left(self, step: int) -> bool:
        """Whether ``finish`` changes anything after so many local steps."""
        return bool(self._sent or self._behind(step))

    def _behind(self, step: int) -> list[Part]:
        """The parts with local steps since they were sent, in the order in which they are sent."""
        ordered = sorted(self._parts.values(), key=lambda part: part.at or self._every)
        return [part for part in ordered if (step - part.at) % self._every]

    def finish(self, workers: Workers, step: int, number: int) -> int:
        """Take over what is left after so many local steps: all workers have the outer parameters then.

        number: of the round that ends so.  Every process calls it; returns the bytes that a worker encoded.
        """
        while self._sent:
            self._take_next(step, self._mixing if step > self._sent[0].step else 0.0)
        begun = [(part, workers.begin(self.moves(part), part, step - 1, number)) for part in self._behind(step)]
        self._sent = [Sent(part, step, one.mean, one.end) for part, one in begun]
        while self._sent:
            self._take_next(step, 0.0, steps=False)
        return sum(one.encoded.total() for _, one in begun)

    def _pieces(self, part: Part, vector: Tensor) -> dict[str, Tensor]:
        """A part's vector as views in its parameters' shapes."""
        parameters = [self._parameters[name] for name in part.names]
        pieces = vector.split([p.numel() for p in parameters])
        return {name: piece.view(p.shape) for name, p, piece in zip(part.names, parameters, pieces, strict=True)}

    def _flat(self, values: Sequence[Tensor]) -> Tensor:
        flat = torch.empty(self._layout.num_coordinates, dtype=torch.float32, device=values[0].device)
        _copy(self._layout.views(flat), values[: len(self._parameters)])
        return flat

    # --- checkpoints ---

    def state_dict(self, driver: Driver, step: int) -> dict[str, Any]:
        """The momentum of the outer optimizer, every worker's model and what was sent, the same in every split.

        The outer parameters are what ``show`` puts into the module.  Every process calls it, since it gathers.
        NonFiniteError where a worker's state is not worth keeping.
        """
        self._put_back()
        self.wait()
        mine = {worker: self._of_worker(worker) for worker in self.hosted}
        form = mine[self.hosted[0]]
        rows = driver.gather({worker: _packed(state, self._outer.device) for worker, state in mine.items()})
        sizes = [tensor.nbytes for tensor in dotted(form).values()]
        everyone = {worker: _unpacked(form, iter(row.cpu().split(sizes))) for worker, row in enumerate(rows)}
        for worker, state in everyone.items():
            for name, tensor in dotted(state).items():
                check_finite(step, f"{name} of worker {worker}", tensor)
        return {"momentum": self._momentum, "workers": everyone, **self._saved_means()}

    def _saved_means(self) -> dict[str, Any]:
        """The means that are not taken over yet, and the step after which each was sent, where there may be some."""
        if not self._overlap:
            return {}
        means, steps = torch.zeros_like(self._outer), dict.fromkeys(self._parts, 0)
        views = self._layout.views(means)
        for sent in self._sent:
            steps[sent.part.at] = sent.step
            for name, piece in self._pieces(sent.part, sent.mean).items():
                views[self._number[name]].copy_(piece)
        return {"sent": {"means": means, "steps": steps}}

    def _of_worker(self, worker: int) -> dict[str, Any]:
        values, num = self._kept[worker], len(self._parameters)
        self._optimizer.state = self._memories[worker]
        return {
            "parameters": dict(zip(self._parameters, values[:num], strict=True)),
            "buffers": dict(zip((name for name, _ in self._model.named_buffers()), values[num:], strict=True)),
            "optimizer": optim.saved(self._optimizer)["state"],
        }

    def outline(self, num_workers: int, *, stepped: bool) -> dict[str, Any]:
        """The state that ``load_state_dict`` reads, for ``checkpoint.check_values``."""
        of_optimizer = optim.outline(self._optimizer, stepped=stepped)["state"]
        own = {**self._of_worker(self.hosted[0]), "optimizer": of_optimizer}
        workers = dict.fromkeys(range(num_workers), own)
        return {"momentum": self._momentum, "workers": workers, **self._saved_means()}

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
        if self._overlap:
            means = self._layout.views(state["sent"]["means"].to(self._outer.device))
            for at, step in sorted(state["sent"]["steps"].items(), key=lambda item: item[1]):
                if step:
                    names = self._parts[at].names
                    mean = torch.cat([means[self._number[name]].reshape(-1) for name in names])
                    self._sent.append(Sent(self._parts[at], step, mean, _there))


def _there() -> None:
    """The end of an exchange that has come to it."""


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
