"""The images a second of every kind of data set, beside torchvision's transforms, one picture at a time.

Our data sets and torchvision's make the same training batches (crop, mirror, normalisation, float32 on the CPU) of the
same pictures, in turns, in one process: medians over the turns, the ratio of each turn, its quartiles; and images per
second of processor time of ours, which other programs on the machine disturb less.  Small pictures are random bytes in
memory, 50,000 of them; large ones are JPEG files that are written first: 500x375 as ImageNet's are on average, and
2000x1500 as cameras make them.  ``told ahead`` is a training loop that also computes on one thread, as long as a batch
takes to decode: with batches told beforehand, against the same loop without.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import in_turns, print_rows, seconds, spread
from settings import resolving
from train import data
from train.data.dataset import Arrays, InMemory
from train.data.torchvision_import import torchvision

SMALL = {"mnist": (1, 28), "fashion_mnist": (1, 28), "svhn": (3, 32), "cifar10": (3, 32), "cifar100": (3, 32)}
LARGE = {"imagenet 500x375": (500, 375), "imagenet 2000x1500": (2000, 1500)}
NUM_FILES, LARGE_BATCH = 48, 16
STEPS = (64, 16, 4, 1)  # pixels of the squares that a written picture is made of

Batch = Callable[[torch.Tensor], object]


def beside(calls: dict[str, Batch], num_images: int, batch: int, turns: int, repeats: int = 1) -> dict[str, float]:
    """The images a second of ``ours``, and its ratio to ``theirs`` with quartiles.

    Every turn has batches of its own, of ours so many ``repeats``, because one of small pictures is made in a
    millisecond, which is less than the clock of a processor's time shows.
    """
    rates: dict[str, list[float]] = {name: [] for name in calls}
    cpu_rates: list[float] = []
    draws = torch.Generator().manual_seed(0)
    for turn in range(turns + 2):
        for name, call in calls.items():
            times = repeats if name == "ours" else 1
            chosen = [torch.randint(num_images, (batch,), generator=draws) for _ in range(times)]
            started, cpu_started = time.perf_counter(), time.process_time()
            for indices in chosen:
                call(indices)
            if turn >= 2:  # the first two warm up
                if name == "ours":
                    cpu_rates.append(times * batch / (time.process_time() - cpu_started))
                rates[name].append(times * batch / (time.perf_counter() - started))
    ratio, low, high = spread(rates["ours"], rates["theirs"])
    medians = {"images_per_s": statistics.median(rates["ours"]), "images_per_cpu_s": statistics.median(cpu_rates)}
    return {**medians, "ratio": ratio, "low": low, "high": high}


def transforms(normalization: Any, *geometry: Any) -> Any:
    """The pipeline of one picture in torchvision."""
    theirs = torchvision().transforms
    return theirs.Compose([*geometry, theirs.ToTensor(), theirs.Normalize(*normalization)])


def small(name: str, batch: int, num_images: int, turns: int, cutout: int = 0) -> dict[str, float]:
    """The figures of a data set that lies in memory, as its stand-in is augmented."""
    channels, side = SMALL[name]
    config = resolving.resolve({"data": name, "data.augment": True, "data.cutout": cutout})
    stand_in = data.stand_in(config, "cpu")
    assert isinstance(stand_in, InMemory)
    pixels = np.random.default_rng(0).integers(0, 256, (num_images, channels, side, side), dtype=np.uint8)
    arrays = Arrays(pixels, np.arange(num_images) % 10)
    whole = InMemory(name, arrays, arrays, 10, torch.device("cpu"))
    whole._normalization, whole._augmentation, whole._cutout = (
        stand_in._normalization,
        stand_in._augmentation,
        stand_in._cutout,
    )
    theirs = torchvision().transforms
    crops = theirs.RandomCrop(side, padding=4), theirs.RandomHorizontalFlip()
    pipeline = transforms(((0.5,) * channels, (0.29,) * channels), *crops)
    draws = torch.Generator().manual_seed(0)

    def one_by_one(indices: torch.Tensor) -> torch.Tensor:
        pictures = (pixels[index].transpose(1, 2, 0) for index in indices.tolist())
        return torch.stack(
            [pipeline(Image.fromarray(picture[:, :, 0] if channels == 1 else picture)) for picture in pictures]
        )

    calls: dict[str, Batch] = {"ours": lambda indices: whole.train_batch(indices, draws), "theirs": one_by_one}
    return beside(calls, num_images, batch, turns, repeats=20)


def write_pictures(root: Path, size: tuple[int, int]) -> list[str]:
    """Write JPEGs with detail at every scale, about as large as photographs of that size."""
    rng = np.random.default_rng(0)
    for split, num in (("train", NUM_FILES), ("val", 1)):
        (root / split / "one").mkdir(parents=True)
        for number in range(num):
            layers = [rng.normal(0, 24, (size[1] // step + 1, size[0] // step + 1, 3)) for step in STEPS]
            scaled = [
                np.kron(layer, np.ones((step, step, 1)))[: size[1], : size[0]]
                for layer, step in zip(layers, STEPS, strict=True)
            ]
            Image.fromarray(np.clip(128 + np.sum(scaled, axis=0) / 2, 0, 255).astype(np.uint8)).save(
                root / split / "one" / f"{number}.jpg", quality=90
            )
    return sorted(str(path) for path in (root / "train").rglob("*.jpg"))


def large(root: Path, decode: str, turns: int) -> dict[str, float]:
    """The figures of pictures decoded batch by batch, with as many threads as there are cores.

    Torchvision's loader has one thread.
    """
    dataset = _imagenet(root, decode)
    paths = sorted(str(path) for path in (root / "imagenet" / "train").rglob("*.jpg"))
    theirs = torchvision()
    geometry = theirs.transforms.RandomResizedCrop(224), theirs.transforms.RandomHorizontalFlip()
    pipeline = transforms(((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), *geometry)
    load, draws = theirs.datasets.folder.default_loader, torch.Generator().manual_seed(0)

    def one_by_one(indices: torch.Tensor) -> torch.Tensor:
        return torch.stack([pipeline(load(paths[index])) for index in indices.tolist()])

    calls: dict[str, Batch] = {"ours": lambda indices: dataset.train_batch(indices, draws), "theirs": one_by_one}
    return beside(calls, NUM_FILES, LARGE_BATCH, turns)


def _imagenet(root: Path, decode: str) -> Any:
    return data.load(resolving.resolve({"data": "imagenet", "data_dir": str(root), "data.decode": decode}), "cpu")


def ahead(root: Path, turns: int) -> dict[str, float]:
    """The figures of a loop of a batch and an equally long computation, told ahead (ours) and not (theirs)."""
    dataset, matrix = _imagenet(root, "fast"), torch.randn(512, 512)
    batches = [
        torch.randint(NUM_FILES, (LARGE_BATCH,), generator=torch.Generator().manual_seed(seed)) for seed in range(6)
    ]

    def compute(times: int) -> None:
        for _ in range(times):
            torch.mm(matrix, matrix)

    decode_s = seconds(lambda: dataset.train_batch(batches[0], torch.Generator()))
    times = max(1, round(decode_s / seconds(lambda: compute(20)) * 20))

    def loop(told: bool) -> None:
        for number, indices in enumerate(batches):
            if told:
                for following in range(number, min(number + 2, len(batches))):
                    dataset.expect(batches[following], torch.Generator().manual_seed(following))
            dataset.train_batch(indices, torch.Generator().manual_seed(number))
            compute(times)

    times_s = in_turns(
        {told: lambda told=told: seconds(lambda: loop(told)) for told in (True, False)}, turns, warm_up=0
    )
    ratio, low, high = spread(times_s[False], times_s[True])
    images_per_s = len(batches) * LARGE_BATCH / statistics.median(times_s[True])
    return {"images_per_s": images_per_s, "ratio": ratio, "low": low, "high": high}


def figures(turns: int, images: int) -> dict[str, dict[str, float]]:
    """The figures of small pictures by data set, batch size and threads, and of large ones by size and decoder."""
    found: dict[str, dict[str, float]] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for batch in (16, 32, 128):
            found[f"cifar10, batch {batch}, threads {threads}"] = small("cifar10", batch, images, turns)
        found[f"cifar10 with cutout, batch 128, threads {threads}"] = small("cifar10", 128, images, turns, cutout=8)
    torch.set_num_threads(1)
    for name in ("mnist", "fashion_mnist", "svhn", "cifar100"):
        found[f"{name}, batch 32, threads 1"] = small(name, 32, images, turns)
    with tempfile.TemporaryDirectory() as folder:
        for name, size in LARGE.items():
            root = Path(folder) / name.replace(" ", "-")
            write_pictures(root / "imagenet", size)
            for decode in ("fast", "full"):
                found[f"{name}, decode={decode}"] = large(root, decode, max(2, turns // 2))
        found["imagenet 500x375, told ahead / not"] = ahead(Path(folder) / "imagenet-500x375", max(2, turns // 3))
    print_rows("training batches, ours over torchvision's", found)
    return {name: {key: round(value, 3) for key, value in values.items()} for name, values in found.items()}
