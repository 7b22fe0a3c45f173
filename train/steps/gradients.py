"""The work of a worker: the loss of one minibatch and its gradient, one flat vector.

The workers of a process take turns.  ``torch.func.vmap`` over them instead was measured and is not here: on a CPU it
took 1.04 to 1.6 times the loop's time for logistic regression, MLPs, LeNet and a small CNN, with 4 and 16 workers, and
its bits are others.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange.finite import surely_finite
from nuq.exchange.flat_layout import of_parameters
from train import models
from train.data.dataset import DataSet, ReadsAhead
from train.data.objective import Tally
from train.steps.cuda_graphs import Pass, Recorded
from train.steps.loss_scale import LossScale, unscaled
from train.steps.order import Order, generator, seed_of

TURNS_AHEAD = 2  # workers' turns whose pictures are decoded during the present one; more would only wait longer
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Gradients:
    """The model and its passes over minibatches of ``dataset``.

    Every worker's pass starts from the same batch-norm buffers.

    scale: of the loss, with ``compute.precision=fp16`` alone.  ValueError where this device cannot do what ``compute``
    asks for.
    """

    def __init__(self, config: dict[str, Any], dataset: DataSet, device: torch.device) -> None:
        self.config, self.data, self.device = config, dataset, device
        self._objective = dataset.objective
        self._reads_ahead = dataset if isinstance(dataset, ReadsAhead) else None
        compute = config["compute"]
        _check_device(compute, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"])
            self.model = models.without_weights_file(config, dataset.input_shape, dataset.num_classes)
        self.model.to(device)
        if compute["channels_last"]:  # 1.1 to 1.2 times as fast as the default order on CPU (ResNet-8 and -32)
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # augmented images come channels-last
        self._arranged = channels_last if compute["channels_last"] else torch.Tensor.contiguous
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        # by worker, the parameters that its last gradient did without; of one pass
        self.unused: dict[int, frozenset[str]] = {}
        self._without: frozenset[str] = frozenset()
        self._leaves, self._buffers = list(self.parameters.values()), list(self.model.buffers())
        self.layout = of_parameters({name: p.shape for name, p in self.parameters.items()})
        self.scale = LossScale() if compute["precision"] == "fp16" else None
        self._forward = torch.compile(self.model) if compute["compile"] else self.model
        dtype = DTYPES.get(compute["precision"])
        self._autocast = functools.partial(torch.autocast, device.type, dtype) if dtype else contextlib.nullcontext
        self._pass: Pass = self._computed
        self._records = bool(compute["cuda_graphs"])
        # called before each worker's passes
        self.begins: Callable[[int, int, str], object] = lambda step, worker, purpose: None

    # --- one worker ---

    def batch(self, worker: int, step: int, order: Order, purpose: str) -> tuple[Tensor, Tensor]:
        """The inputs and labels of one worker's minibatch, or of its first one."""
        return self._batch(order.minibatches(step, worker)[0], worker, step, purpose)

    def _batch(self, indices: Tensor, worker: int, step: int, purpose: str) -> tuple[Tensor, Tensor]:
        x, y = self.data.train_batch(indices, generator(self.config["seed"], step, worker, purpose))
        return self._arranged(x), y

    def one(self, worker: int, step: int, order: Order, purpose: str) -> tuple[Tensor, Tensor]:
        """The gradient float32[n], in ``layout``, and the loss (0-d) of one worker: the means over its minibatches."""
        if not self.model.training:
            self.model.train()
        self.begins(step, worker, purpose)
        minibatches = order.minibatches(step, worker)
        flat, loss = self._of_minibatch(minibatches[0], worker, step, purpose)
        self.unused[worker] = self._without
        for number, indices in enumerate(minibatches[1:], start=1):
            more, its_loss = self._of_minibatch(indices, worker, step, f"{purpose}/{number}")
            flat, loss = flat.add_(more), loss + its_loss
            self.unused[worker] &= self._without
        if len(minibatches) > 1:
            share = 1 / len(minibatches)
            flat, loss = flat.mul_(share), loss * share
        return flat, loss

    def _of_minibatch(self, indices: Tensor, worker: int, step: int, purpose: str) -> tuple[Tensor, Tensor]:
        """The flat gradient and the loss, scaled down until finite unless in training, where a step may overflow."""
        x, y = self._batch(indices, worker, step, purpose)
        scale = self.scale.value if self.scale else 1.0
        while True:
            with _seeded(seed_of(self.config["seed"], step, worker, f"{purpose}/dropout"), self.device):
                factor = _ONE
                if self.scale or self._records:
                    factor = torch.tensor(scale, dtype=torch.float32, device=self.device)
                flat, loss = self._passed(x, y, factor)
            flat = unscaled(flat, scale)
            if scale <= 1 or purpose.startswith("train") or surely_finite([flat]):
                return flat, loss
            scale /= 2

    def _passed(self, x: Tensor, y: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        if self._records:
            before = self._copies()
            self._pass, self._records = Recorded(self._computed, x, y, factor), False
            self._restore(before)
        return self._pass(x, y, factor)

    def _computed(self, x: Tensor, y: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of factor * loss as one vector, in the parameters' default memory order, and the loss."""
        with self._autocast():
            output = self._forward(x)
        loss = self._objective.loss(output.float(), y, label_smoothing=self.config["label_smoothing"])
        found = torch.autograd.grad(loss if factor is _ONE else loss * factor, self._leaves, allow_unused=True)
        self._without = frozenset(name for name, own in zip(self.parameters, found, strict=True) if own is None)
        gradient = [
            torch.zeros_like(leaf) if own is None else own for leaf, own in zip(self._leaves, found, strict=True)
        ]
        flat = torch.empty(self.layout.num_coordinates, dtype=torch.float32, device=self.device)
        torch._foreach_copy_(self.layout.views(flat), gradient)  # pyright: ignore[reportPrivateImportUsage]
        return flat, loss.detach()

    # --- several ---

    def of_workers(
        self, workers: Iterable[int], step: int, order: Order, purpose: str
    ) -> tuple[dict[int, Tensor], dict[int, float]]:
        """The gradients and losses of ``workers``; batch-norm buffers end as worker 0's (if here), or as they were."""
        workers = list(workers)
        alone = workers == [0]
        before = [] if alone else self._copies()
        kept, gradients, losses = before, {}, []
        for number, worker in enumerate(self.in_turn(workers, step, order) if purpose == "train" else workers):
            if number:
                self._restore(before)
            gradients[worker], loss = self.one(worker, step, order, purpose)
            losses.append(loss)
            if worker == 0 and not alone:
                kept = self._copies()
        if not alone:
            self._restore(kept)
        # waits for a GPU once
        return gradients, dict(zip(workers, torch.stack(losses).tolist() if losses else [], strict=True))

    def in_turn(self, workers: Sequence[int], step: int, order: Order) -> Iterator[int]:
        """The workers one after another; a data set that reads files is told what training takes of it next."""
        turns = [(at, worker) for at in (step, step + 1) for worker in workers]
        for number, worker in enumerate(workers):
            self._read_ahead(turns[number : number + 1 + TURNS_AHEAD], order)
            yield worker

    def _read_ahead(self, turns: Iterable[tuple[int, int]], order: Order) -> None:
        """Tell a data set that reads files which minibatches come: those of (step, worker), in turn."""
        if self._reads_ahead is None:
            return
        for step, worker in turns:
            if step < self.config["steps"]:
                for number, indices in enumerate(order.minibatches(step, worker)):
                    purpose = f"train/{number}" if number else "train"
                    self._reads_ahead.expect(indices, generator(self.config["seed"], step, worker, purpose))

    def samples(
        self, workers: Iterable[int], step: int, order: Order, count: int, purpose: str
    ) -> Iterator[dict[int, Tensor]]:
        """The ``count`` extra gradients of each of ``workers`` at the present parameters; batch-norm buffers stay."""
        before = self._copies()
        for number in range(count):
            gradients, _ = self.of_workers(workers, step * count + number, order, purpose)
            self._restore(before)
            yield gradients

    def _copies(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self._buffers]

    def _restore(self, values: list[Tensor]) -> None:
        if values:
            torch._foreach_copy_(self._buffers, values)  # pyright: ignore[reportPrivateImportUsage]


_ONE = torch.tensor(1.0, dtype=torch.float32, device="cpu")


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Make what a pass draws (dropout) a function of the seed; nobody else's numbers change.

    ``torch.manual_seed`` does this too, but formats the whole call stack each time (.4 ms), in case CUDA starts later.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        generators.append(torch.cuda.default_generators[index])
    states = [each.get_state() for each in generators]
    try:
        for each in generators:
            each.manual_seed(seed)
        yield
    finally:
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)


def _check_device(compute: dict[str, Any], device: torch.device) -> None:
    if compute["cuda_graphs"] and device.type != "cuda":
        why = "records the kernels of a CUDA device, and this run is on the CPU"
        raise ValueError(f"compute.cuda_graphs=True: {why}; legal here: false")
    if not compute["compile"]:
        return
    why = ""
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            why = "torch.compile writes Triton kernels, and Triton is not installed"
    elif not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++")))):
        why = "torch.compile needs a C++ compiler (g++, clang++ or $CXX), none is here"
    if why:
        raise ValueError(f"compute.compile=True: {why}; legal here: false")


def channels_last(x: Tensor) -> Tensor:
    """Images (batch, channel, height, width) with their channels side by side in memory; anything else as it is."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


@torch.no_grad()
def evaluate(
    model: nn.Module, dataset: DataSet, split: str, batch_size: int, between: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """The ``V`` (test) or ``T`` (training) scalars over the whole split, without augmentation.

    ``between`` is called after each batch.

    They are computed in float32, whatever the precision of training.
    """
    model.eval()
    tally = Tally(dataset.objective)
    for x, y in dataset.batches(split, batch_size):  # type: ignore[arg-type]
        tally.add(model(channels_last(x)), y)
        between()
    prefix = "V" if split == "test" else "T"
    return {f"{prefix}{name}": value for name, value in tally.values().items()}
