"""Counts and settings of the named sweeps, against the published tables."""

from __future__ import annotations

import pytest

from grid.engine.sweeps.families import families, load, makers
from settings import run_identity

# (points as listed, distinct experiments) of reference tables, written down by hand.
COUNTS = {
    ("nuq", "mnist"): (19, 19),
    ("nuq", "cifar10_full_resnet110"): (9, 9),
    ("nuq", "cifar10_full_resnet32"): (9, 9),
    ("nuq", "cifar10_full_resnet8"): (11, 11),
    ("nuq", "imagenet_half"): (12, 12),
    ("nuq", "imagenet_full"): (9, 9),
    ("abl", "bucket_size"): (112, 112),
    ("abl", "bucket_size_trained"): (112, 112),
    ("abl", "bits"): (62, 57),
    ("abl", "interval"): (36, 26),
    ("nuqsgd", "cifar10_full"): (9, 9),
    ("nuqsgd", "imagenet_full"): (5, 5),
    ("nuqsgd", "cifar10_first_epoch"): (5, 5),
    ("nuqsgd", "cifar10_last_epoch"): (5, 5),
    ("demo", "demo"): (30, 30),
    ("demo", "quick"): (6, 6),
    ("cifar10_cpu", "cifar10_cpu"): (14, 14),
    ("dgc", "cifar10_resnet20"): (12, 12),
    ("dgc", "cifar10_resnet110"): (12, 12),
    ("dgc", "imagenet_resnet50"): (11, 11),
    ("dgc", "imagenet_vgg16bn"): (11, 11),
    ("dgc", "cifar10_cpu"): (14, 14),
    ("dgc", "cpu"): (7, 7),
    ("atomo", "lenet_mnist"): (10, 10),
    ("atomo", "resnet18_cifar10"): (10, 10),
    ("atomo", "networks_cifar10"): (50, 50),
    ("atomo", "svhn"): (60, 60),
    ("atomo", "cifar100"): (60, 60),
    ("atomo", "cifar10_cpu"): (18, 18),
    ("atomo", "cpu"): (7, 7),
    ("layerwise", "cifar10_resnet9"): (26, 26),
    ("layerwise", "cifar10_alexnet"): (26, 26),
    ("layerwise", "imagenet_resnet50"): (17, 17),
    ("layerwise", "cifar10_cpu"): (34, 34),
    ("layerwise", "cpu"): (17, 17),
    ("lss", "lenet_mnist"): (18, 18),
    ("lss", "resnet18_cifar10"): (18, 18),
    ("lss", "cifar10_cpu"): (10, 10),
    ("lss", "cpu"): (8, 8),
    ("smaq", "cifar10_resnet34"): (11, 11),
    ("smaq", "cifar10_others"): (33, 33),
    ("smaq", "cifar100"): (44, 44),
    ("smaq", "bert_stsb"): (11, 11),
    ("smaq", "bert_imdb"): (11, 11),
    ("smaq", "cifar10_cpu"): (32, 32),
    ("smaq", "cpu"): (16, 16),
    ("gpt", "text"): (10, 10),
    ("gpt", "cpu"): (5, 5),
    ("outer", "gpt_cpu"): (102, 102),
    ("forks", "cpu"): (50, 50),
    ("headline", "rates_cpu"): (114, 114),
    ("headline", "cifar10_cpu"): (205, 205),
}
# Sweeps over METHODS, whose number grows with the table: tests/grid/sweeps/test_paper_sweeps.py counts them.
GROWING = {("everything", "cifar10_resnet32"), ("everything", "cifar10_cpu"), ("everything", "cpu")}
ALL = [(family, run_name) for family in families() for run_name in makers(family)]


@pytest.mark.parametrize("name", ["demo", "quick"])
def test_the_demos_measure_the_variance_often_enough_for_a_curve(name: str) -> None:
    for experiment in load("demo", name).experiments():
        config = experiment.config
        assert len(range(0, config["steps"], config["measure"]["every"])) >= 5


@pytest.mark.parametrize(("family", "run_name"), ALL)
def test_counts_are_those_of_the_table(family: str, run_name: str) -> None:
    sweep = load(family, run_name)
    experiments = sweep.experiments()
    if (family, run_name) not in GROWING:
        assert (sweep.num_points, len(experiments)) == COUNTS[family, run_name]
    assert sum(1 + len(item.aliases) for item in experiments) == sweep.num_points
    assert len({item.name for item in experiments}) == len(experiments)
    assert len({(item.label, item.seed) for item in experiments}) == len(experiments), (
        "a label must name one experiment"
    )
    assert sweep.doc, "list shows the first line of the docstring"


def test_every_named_sweep_is_counted_and_has_a_folder_of_its_own() -> None:
    assert set(ALL) == set(COUNTS) | GROWING
    folders = [load(*task).experiments()[0].folder for task in ALL]
    assert len(set(folders)) == len(folders)


def _by_label(family: str, run_name: str) -> dict[str, dict]:
    return {item.label: dict(item.config) for item in load(family, run_name).experiments()}


def test_resnet32_is_the_published_task() -> None:
    rows = _by_label("nuq", "cifar10_full_resnet32")
    assert set(rows) == {"SGD", "SuperSGD", "NUQSGD", "QSGDinf", "TRN", "ALQ", "ALQ-N", "AMQ", "AMQ-N"}
    alq = rows["ALQ"]
    assert alq["method"] == {
        "name": "alq", "bucket_size": 8192, "scope": "model", "rotation": "none", "coding": "packed",
        "rounding": "stochastic", "bits": 3, "norm": "l2", "fit": "mixture", "solver": "paper",
        "objective": "message", "weights": "norm", "symmetric": False, "num_components": 50,
        "statistics": "fresh", "num_samples": 10, "update_at": [100, 2000], "update_every": 10000,
    }  # fmt: skip
    assert rows["ALQ-N"]["method"]["fit"] == "normal"
    for config in rows.values():
        counting = run_identity.result_settings(config)  # and all else at its default
        assert counting["optim"] == {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4}
        assert counting["schedule"] == {"name": "step", "at": [40000, 60000], "factor": 0.1}
        assert (config["workers"], config["batch_size"], config["steps"], config["eval_every"]) == (4, 128, 80000, 2000)
        assert (config["model"]["name"], config["data"]["name"], config["trajectory"]) == (
            "resnet32",
            "cifar10",
            "method",
        )
        assert config["measure"] == {"every": 100, "num_samples": 10}


QUANTIZERS = [
    ("cifar10_full_resnet110", 3, 16384, 150),
    ("cifar10_full_resnet8", 3, 16384, 80),
    ("imagenet_half", 4, 8192, 350),
    ("imagenet_full", 3, 8192, 350),
]


@pytest.mark.parametrize(("run_name", "bits", "bucket_size", "num_components"), QUANTIZERS)
def test_quantizers_of_the_paper(run_name: str, bits: int, bucket_size: int, num_components: int) -> None:
    rows = _by_label("nuq", run_name)
    for label, config in rows.items():
        if label not in {"SGD", "SuperSGD"}:
            assert config["method"]["bucket_size"] == bucket_size
        if "fit" in config["method"] and config["method"]["fit"] == "mixture":
            assert config["method"]["num_components"] == num_components
            assert config["method"]["weights"] == "norm"
        assert config["method"].get("bits", bits) == bits


def test_imagenet() -> None:
    for config in _by_label("nuq", "imagenet_half").values():
        assert (config["trajectory"], config["measure"]["every"], config["steps"], config["batch_size"]) == (
            "sgd",
            100,
            300000,
            64,
        )
        assert config["schedule"]["at"] == [150000, 225000]
    rows = _by_label("nuq", "imagenet_full")
    assert (rows["AMQ"]["method"]["update_at"], rows["AMQ"]["method"]["update_every"]) == ([100, 2000], 50000)
    assert rows["SGD"]["schedule"]["at"] == [300000, 450000]


def test_mnist_has_no_momentum_and_thirty_epochs() -> None:
    rows = _by_label("nuq", "mnist")
    assert {
        (config["method"].get("bucket_size"), config["workers"])
        for label, config in rows.items()
        if label.startswith("QSGDinf")
    } == {(bucket, workers) for bucket in (1024, 4096, 8192) for workers in (2, 4)}
    for config in rows.values():
        assert (config["optim"]["momentum"], config["optim"]["weight_decay"], config["steps"]) == (0, 0, 30 * 469)
        assert config["method"].get("bits", 4) == 4


def test_bucket_sizes_and_the_ten_variants() -> None:
    experiments = load("abl", "bucket_size").experiments()
    quantized = [item.config["method"] for item in experiments if "bucket_size" in item.config["method"]]
    sizes = {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}
    alq = {(m["symmetric"], m["solver"], m["bucket_size"]) for m in quantized if m["name"] == "alq"}
    assert alq == {
        (symmetric, solver, size) for symmetric in (True, False) for solver in ("exact", "paper") for size in sizes
    }
    for name in ("alq_n", "amq", "amq_n", "qsgdinf", "trn", "nuqsgd"):
        assert [m["bucket_size"] for m in quantized if m["name"] == name] == sorted(sizes)
    assert all(item.config["trajectory"] == "sgd" and item.config["measure"]["every"] == 100 for item in experiments)
    assert all(item.config["trajectory"] == "method" for item in load("abl", "bucket_size_trained").experiments())


def test_the_ten_methods_of_the_demo_and_their_seeds() -> None:
    experiments = load("demo", "demo").experiments()
    names = {"sgd", "supersgd", "qsgd", "qsgdinf", "nuqsgd", "trn", "alq", "alq_n", "amq", "amq_n"}
    assert {(item.config["method"]["name"], item.seed) for item in experiments} == {
        (name, seed) for name in names for seed in (1, 2, 3)
    }


def test_families_are_the_files_of_grid() -> None:
    assert set(families()) == {family for family, _ in {*COUNTS, *GROWING}}, (
        "no package (engine, commands) and no folder of profiles"
    )
