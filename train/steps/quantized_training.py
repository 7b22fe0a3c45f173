"""Quantized training of one run: ``nuq.CompressedTraining`` as the section ``tensors`` sets it, and its log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange.exchanged import Exchanged
from nuq.exchange.flat_layout import FlatLayout
from nuq.quantized_training.counts import EDGES, Bytes, TensorHistograms, ratios
from nuq.quantized_training.training import CompressedTraining
from nuq.settings.quantized_training import formats_of
from train.logs.run_log import Log, keeps_histogram

NOT_ALONE = ("weights", "moments")  # are the optimizer's


def attached(
    config: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> CompressedTraining | None:
    """The quantized training that the section asks for, or None; optimizer: None where the model is only evaluated."""
    values = config["tensors"]
    formats = formats_of(values)
    if optimizer is None:
        formats = {kind: spec for kind, spec in formats.items() if kind not in NOT_ALONE}
    elif config["optim"]["name"] in ("sgd", "signsgd") and not config["optim"]["momentum"]:
        formats.pop("moments", None)  # the key comes from ``all``, and there are no moments
    if not formats:
        return None
    master = values["master"] and optimizer is not None
    more = {"seed": config["seed"], "min_size": values["min_size"], "master": master, "inference": values["inference"]}
    return CompressedTraining(model, optimizer, **formats, **more)


def at(tensors: CompressedTraining | None, step: int, worker: int, purpose: str) -> None:
    """Set the key of the next passes."""
    if tensors is not None:
        tensors.at(step, worker, purpose)


def of_worker(tensors: CompressedTraining, step: int, worker: int, purpose: str) -> None:
    """Set the key of a worker's passes.  Counted are the training passes of the first worker, whose rank logs."""
    tensors.at(step, worker, purpose)
    tensors.counted = worker == 0 and purpose == "train"


def begin_step(tensors: CompressedTraining | None, step: int) -> None:
    """Start counting from here on."""
    if tensors is not None:
        tensors.at(step, 0)
        tensors.counted = False
        tensors.counts.start()


def see_gradients(tensors: CompressedTraining | None, gradients: Mapping[int, Tensor], layout: FlatLayout) -> None:
    """Add the first worker's gradient to the histograms, if any are due; a rank without that worker keeps no log."""
    if tensors is None or tensors.histograms is None:
        return
    for part in layout.views(gradients[0]) if 0 in gradients else ():
        if part.numel() >= tensors.min_size:
            tensors.histograms.add("gradients", part)


def scalars(tensors: CompressedTraining | None, result: Exchanged) -> dict[str, float]:
    """The ``compression_ratio`` and its tags for the last step, the part of the gradients from its exchange."""
    if tensors is None:
        return {}
    counts: dict[str, Bytes] = dict(tensors.counts.last)
    counts["gradients"] = (4 * result.mean.numel(), result.bytes_per_worker)
    return ratios(counts)


@contextlib.contextmanager
def histograms_logged(
    tensors: CompressedTraining | None, config: Mapping[str, Any], step: int, log: Log
) -> Iterator[None]:
    """Log a histogram of z = (x - mean) / std for each kind of tensor around a training step, where one is due.

    It is logged as ``tensors/<kind>``.  Beside them the tensors' own means and stds, averaged, as
    ``tensors/<kind>_mean`` and ``_std``.
    """
    every = config["tensors"]["histogram_every"] or config["measure"]["every"]
    if tensors is None or not every or step % every or not keeps_histogram(step, every, config["steps"]):
        yield
        return
    histograms = tensors.histograms = TensorHistograms()
    try:
        yield
    finally:
        tensors.histograms = None
    for kind, masses in histograms.masses.items():
        log.histogram(step, f"tensors/{kind}", EDGES, masses)
        mean, std = histograms.fits(kind)
        log.scalars(step, {f"tensors/{kind}_mean": mean, f"tensors/{kind}_std": std})
