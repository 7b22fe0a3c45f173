"""LSS / CASQ: clusters of values, cells of means, Huffman-coded cluster ids; over clusters and cells, against SketchML,
TopK and QSGD.

The task is that of the code that it grew from (``grid/atomo.py``), with error feedback, which a biased method needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from grid import cifar10_cpu as small
from grid.atomo import WORKERS, paper
from grid.demo import digits
from grid.engine.sweep import Point, Sweep, axis, point, product, union
from grid.nuq import QSGD, SUPERSGD

CLUSTERS = [2, 4, 8, 16]
CELLS = [0.001, 0.01, 0.1]  # over coordinates, of each cluster
CASQ = point("CASQ", method="casq")
SKETCHML = point("SketchML", method="sketchml")
TOPK = product(point("TopK", method="topk"), axis("method.ratio", [0.01, 0.1]))
QUANTIZED = product(
    QSGD, point("", {"method.form": "magnitude", "method.bucket_size": 512}), axis("method.bits", [4, 8])
)


def grid_of(clusters: Sequence[int], cells: Sequence[float]) -> list[Point]:
    """CASQ at so many clusters of either sign, with so many cells each."""
    return product(CASQ, axis("method.clusters", clusters), axis("method.cells_ratio", cells))


def _methods(clusters: Sequence[int], cells: Sequence[float]) -> list[Point]:
    return union(SUPERSGD, grid_of(clusters, cells), SKETCHML, TOPK, QUANTIZED)


def lenet_mnist() -> Sweep:
    """MNIST, LeNet: CASQ at 2 to 16 clusters and three numbers of cells, against SketchML, TopK and QSGD."""
    return Sweep(product(paper("mnist", "lenet"), _methods(CLUSTERS, CELLS)))


def resnet18_cifar10() -> Sweep:
    """CIFAR-10, ResNet-18 for small images: the same methods."""
    return Sweep(product(paper("cifar10", "cifar_resnet18"), _methods(CLUSTERS, CELLS)))


# --- without a GPU ------------------------------------------------------------------------------------------------


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: CASQ at 4 and 16 clusters, 1 % and 10 % of cells, against the same baselines."""
    task = small.images("resnet8", workers=WORKERS, batch_size=16, steps=1000, lr=0.05, eval_every=250)
    return Sweep(product(task, _methods([4, 16], [0.01, 0.1])))


def cpu() -> Sweep:
    """The same on the embedded digits, seconds a run."""
    return Sweep(product(digits(steps=100), _methods([4, 16], [0.01])))
