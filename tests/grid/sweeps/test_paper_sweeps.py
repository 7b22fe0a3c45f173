"""The neighbouring papers' sweeps: their settings as the papers' own code has them, epochs as steps,
and matched bits.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest

from grid import dgc, everything, layerwise, smaq
from grid.engine.sweep import Experiment
from grid.engine.sweeps import epochs, rates
from grid.engine.sweeps.families import families, load, makers
from nuq.registry import METHODS, Method
from nuq.settings import setting
from nuq.settings.layers import parsed_format
from settings import resolving, run_identity
from settings.text import TASKS


def rows(family: str, run_name: str) -> dict[str, Experiment]:
    return {item.label: item for item in load(family, run_name).experiments()}


# --- epochs -------------------------------------------------------------------------------------------------------


def test_an_epoch_is_that_of_the_order_of_training() -> None:
    from train.steps.order import Order

    for data, batch_size, workers in (("cifar10", 128, 4), ("cifar10", 512, 1), ("mnist", 128, 4), ("digits", 16, 2)):
        order = Order(epochs.NUM_TRAIN[data], batch_size, workers, seed=1)
        assert epochs.steps_per_epoch(data, batch_size, workers) == order.steps_per_epoch
        accumulated = Order(epochs.NUM_TRAIN[data], batch_size, workers, seed=1, accumulate=3)
        assert epochs.steps_per_epoch(data, batch_size, workers, 3) == accumulated.steps_per_epoch
    assert (
        epochs.steps_per_epoch("imagenet", 32, 256)
        == 1_281_167 // 8192
        == 156
        == epochs.steps_per_epoch("imagenet", 32, 32, 8)
    )
    assert epochs.at_epochs([0, 30, 60.5], 10) == [0, 300, 605]


def test_the_data_sets_are_as_large_as_is_said() -> None:
    from train import data

    found = data.load(resolving.resolve({"data": "digits"}), "cpu")
    assert found.num_train == epochs.NUM_TRAIN["digits"]
    names = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "imagenet")
    pictures = dict(zip(names, (1_442, 60_000, 60_000, 50_000, 50_000, 73_257, 1_281_167), strict=True))
    chosen = {"imdb": {"data": "imdb"}, **{task: {"data": "glue", "data.task": task} for task in TASKS}}
    sentences = {
        name: data.true_size(resolving.resolve({**settings, "model": "bert"})).num_train
        for name, settings in chosen.items()
    }
    assert pictures | sentences == epochs.NUM_TRAIN


# --- DGC ----------------------------------------------------------------------------------------------------------


def test_dgc_on_cifar10_is_trained_as_by_its_authors() -> None:
    found = rows("dgc", "cifar10_resnet110")
    assert {label.split(" ", 1)[1] for label in found} == {
        "SuperSGD", "DGC wm0", "DGC wm5", "DGC wm5o", "DGC paper's warm-up", "DGC wm5 fp32",
    }  # fmt: skip
    for item in found.values():
        config, workers = run_identity.result_settings(item.config), item.config["workers"]
        epoch = 50_000 // (128 * workers)
        assert (config["steps"], config["batch_size"], config["model"]["name"]) == (200 * epoch, 128, "resnet110")
        assert config["optim"]["lr"] == pytest.approx(0.1 * workers)
        assert config["schedule"] == {"name": "cosine", "warmup_steps": 5 * epoch, "warmup_factor": 1 / workers}
    wire = found["workers=4 DGC wm5"].config["method"]
    assert (wire["ratio"], wire["values"], wire["indices"], wire["scope"], wire["dense_1d"]) == (
        0.001,
        "fp16",
        "int32",
        "tensor",
        True,
    )
    assert wire["warmup_every"] == 97
    assert found["workers=8 DGC wm5"].config["method"]["warmup_every"] == 48


def test_the_three_warmups() -> None:
    found = {label: item.config["method"] for label, item in rows("dgc", "cifar10_resnet20").items()}
    assert found["workers=4 DGC wm0"]["warmup_every"] == 0
    assert found["workers=4 DGC wm5"]["warmup_ratios"] == pytest.approx(
        [0.3162, 0.1, 0.03162, 0.01, 0.003162], rel=1e-3
    )
    assert found["workers=4 DGC wm5o"]["warmup_ratios"] == [1.0] * 5
    assert found["workers=4 DGC paper's warm-up"]["warmup_ratios"] == [0.25, 0.0625, 0.015625, 0.004]


IMAGENET = [
    (
        "imagenet_resnet50",
        {"weight_decay": 1e-4, "nesterov": True, "decay_norms": False},
        {"name": "resnet50", "zero_init": True},
    ),
    ("imagenet_vgg16bn", {"weight_decay": 5e-5, "nesterov": False}, {"name": "vgg16_bn"}),
]


@pytest.mark.parametrize(("run_name", "optim", "model"), IMAGENET)
def test_dgc_on_imagenet_has_the_rows_of_the_published_table(
    run_name: str, optim: dict[str, Any], model: dict[str, Any]
) -> None:
    found = rows("dgc", run_name)
    gpus = {}
    for label, item in found.items():
        config = run_identity.result_settings(item.config)
        batches = config["compute"]["accumulate"] if "compute" in config else 1
        total = config["workers"] * batches
        epoch = 1_281_167 // (32 * total)
        assert (config["batch_size"], batches) == (32, 8 if "nodes" in label else 1)
        assert (config["steps"], config["eval_every"]) == (90 * epoch, epoch)
        assert config["optim"] == {"name": "sgd", "lr": 0.0125 * total, "momentum": 0.9, **optim}
        assert config["model"] == {"weights_file": "", **model}
        assert config["schedule"]["warmup_steps"] == 5 * epoch
        if config["schedule"]["name"] == "step":
            assert config["schedule"]["at"] == [30 * epoch, 60 * epoch, 80 * epoch]
        if "wm5" in label:
            gpus[label.split(" DGC")[0]] = (config["workers"], total)
    assert gpus == {
        "gpus=8": (8, 8), "gpus=16": (16, 16), "gpus=32": (32, 32), "gpus=64": (64, 64), "gpus=32 cosine": (32, 32),
        "gpus=64 as 8 nodes": (8, 64), "gpus=128 as 16 nodes": (16, 128), "gpus=256 as 32 nodes": (32, 256),
    }  # fmt: skip


def test_what_the_small_study_of_dgc_compares() -> None:
    found = rows("dgc", "cifar10_cpu")
    methods = {label: (item.config["method"], item.config["feedback"]["kind"]) for label, item in found.items()}
    assert (
        methods["DGC with warm-up"][0]["warmup_every"] == dgc.WARMUP_STEPS
        and methods["DGC without warm-up"][0]["warmup_every"] == 0
    )
    assert [methods[f"TopK {how} feedback"][1] for how in ("with", "without")] == ["error", "none"]
    assert {method["ratio"] for method, _ in methods.values() if "ratio" in method} == {0.001}
    outside = [
        {key: value for key, value in item.config.items() if key not in ("method", "feedback", "seed")}
        for item in found.values()
    ]
    assert all(config == outside[0] for config in outside), "nothing else differs"


# --- layer-wise, ATOMO, LSS ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_name", ["cifar10_resnet9", "cifar10_alexnet", "cifar10_cpu", "cpu", "imagenet_resnet50"])
def test_every_method_is_there_layer_wise_and_entire_model(run_name: str) -> None:
    pairs: dict[str, dict[str, dict[str, Any]]] = {}
    for label, item in rows("layerwise", run_name).items():
        if item.config["method"]["name"] != "supersgd":
            assert item.config["feedback"]["kind"] == "none"
            plain, _, scope = label.rpartition(" ")
            pairs.setdefault(plain, {})[scope] = dict(item.config)
    for both in pairs.values():
        wise, entire = both["layer-wise"], both["entire-model"]
        assert (wise["method"].pop("scope"), entire["method"].pop("scope")) == ("tensor", "model")
        assert wise == entire
    kinds = {"TopK", "RandomK", "ThresholdV", "AdaptiveThreshold", "TernGrad", "QSGD"}
    assert {label.split(" ")[0] for label in pairs} == kinds


def test_layerwise_training_is_the_24_epoch_recipe() -> None:
    found = rows("layerwise", "cifar10_resnet9")
    by_ratio = {item.config["method"].get("ratio") for item in found.values()}
    assert by_ratio >= {0.001, 0.01, 0.1, 0.5}
    for item in found.values():
        config = item.config
        long = config["method"]["name"] in ("randomk", "thresholdv") or "40 epochs" in item.label
        total = (40 if long else 24) * 97
        assert (config["steps"], config["batch_size"], config["data"]["cutout"]) == (total, 512, 8)
        assert config["schedule"] == {"name": "piecewise_linear", "at": [0, 485, total], "factors": [0.0, 1.0, 0.0]}
        assert (config["optim"]["lr"], config["optim"]["weight_decay"]) == (0.4, 5e-4)
    assert found["ThresholdV layer-wise"].config["method"]["threshold"] == 0.001
    assert len(layerwise.methods([0.1])[1]) == 4


DEEPER = {"resnet32", "cifar_resnet50", "cifar_resnet110", "cifar_resnet152", "vgg11_bn"}
ATOMO = [
    ("lenet_mnist", "mnist", {"lenet"}, 117),
    ("resnet18_cifar10", "cifar10", {"cifar_resnet18"}, 97),
    ("networks_cifar10", "cifar10", DEEPER, 97),
    ("svhn", "svhn", DEEPER | {"cifar_resnet18"}, 143),
    ("cifar100", "cifar100", DEEPER | {"cifar_resnet18"}, 97),
]


def test_atomo_is_trained_as_by_its_authors() -> None:
    for run_name, data, models, epoch in ATOMO:
        found = rows("atomo", run_name)
        assert {item.config["model"]["name"] for item in found.values()} == models
        for item in found.values():
            config = run_identity.result_settings(item.config)
            assert (config["data"]["name"], config["batch_size"], config["steps"]) == (data, 128, 100 * epoch)
            assert config["optim"] == {
                "name": "sgd",
                "lr": 0.01,
                "momentum": 0.5,
                "nesterov": False,
                "weight_decay": 0.0,
            }
            assert config["schedule"] == {"name": "exponential", "factor": 0.95, "period": epoch}
        ranks = {
            item.config["method"]["svd_rank"] for item in found.values() if item.config["method"]["name"] == "atomo"
        }
        assert ranks == {1, 2, 3, 4}


def test_topk_at_atomos_bytes_has_its_ratio_from_the_models_matrices() -> None:
    found = rows("atomo", "cifar10_cpu")
    for rank in (1, 3):
        ratio = found[f"TopK bytes of rank {rank}"].config["method"]["ratio"]
        want = rates.factor_bits(rates.cifar_resnet(8), rank)
        assert rates.sparse_bits(ratio) == pytest.approx(want, rel=0.01)


def test_casq_over_clusters_and_cells() -> None:
    found = [
        item.config["method"]
        for item in rows("lss", "resnet18_cifar10").values()
        if item.config["method"]["name"] == "casq"
    ]
    assert {(method["clusters"], method["cells_ratio"]) for method in found} == {
        (k, c) for k in (2, 4, 8, 16) for c in (0.001, 0.01, 0.1)
    }


# --- SmaQ ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_name", ["cifar10_resnet34", "cifar10_others", "cifar100", "bert_stsb", "bert_imdb", "cifar10_cpu", "cpu"]
)
def test_every_format_is_that_of_all_tensors(run_name: str) -> None:
    found = {}
    for label, item in rows("smaq", run_name).items():
        method, tensors = item.config["method"], item.config["tensors"]
        assert item.config["workers"] == 1
        if " only" in label:
            given = [kind for kind in smaq.KINDS if tensors[kind]] + ["gradients"] * (method["name"] == "smaq")
            assert label == f"SmaQ {given[0].replace('_', ' ')} only" and len(given) == 1 and not tensors["all"]
            continue
        name = label.split("=")[-1].split(" ", 1)[-1] if label.startswith("model=") else label
        found[name] = tensors["all"]
        if name == "FP32":
            assert (method["name"], tensors["all"]) == ("supersgd", "")
        else:
            kept, own = parsed_format(tensors["activation_gradients"] or tensors["all"])
            assert {"name": kept, **dataclasses.asdict(own)} == method, "both kinds of gradients have one format"
        assert tensors["master"] == (name == "SmaQ master weights")
    assert found == {
        "FP32": "", "FP16": "fp16 scale=none", "BF16": "bf16", "FP8": "fp8 table=e5m2 scale=none", "S2FP8": "s2fp8",
        "SmaQ": "smaq", "SmaQ, zeros coded": "smaq zeros=coded",
        "NNW-BDI": "nnw_bdi", "FP8 e4m3 scaled": "fp8", "SmaQ master weights": "smaq",
        "SmaQ, gradients to 16 sigma": "smaq",
    }  # fmt: skip


def test_smaq_is_trained_as_by_its_authors() -> None:
    for item in rows("smaq", "cifar10_resnet34").values():
        config = run_identity.result_settings(item.config)
        assert config["optim"] == {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 5e-5}
        assert config["schedule"] == {"name": "step", "at": [39_000, 58_500, 78_000], "factor": 0.1}
        assert (config["batch_size"], config["steps"], config["model"]["name"]) == (128, 97_500, "resnet34")
    for run_name, epoch in (("bert_stsb", 574), ("bert_imdb", 2500)):
        for item in rows("smaq", run_name).values():
            config = item.config
            assert (config["batch_size"], config["steps"], config["model"]["name"]) == (10, 6 * epoch, "bert")
            assert (config["optim"]["name"], config["optim"]["lr"], config["optim"]["weight_decay"]) == (
                "adamw",
                2e-5,
                0.01,
            )


# --- GPT ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_name", ["text", "cpu"])
def test_the_gpt_has_a_transformers_recipe(run_name: str) -> None:
    found = rows("gpt", run_name)
    assert set(found) == {"SuperSGD", "ALQ", "QSGDinf", "DGC", "PowerSGD"}
    for item in found.values():
        config = item.config
        optim, schedule = config["optim"], config["schedule"]
        assert (config["data"]["name"], config["model"]["name"], config["workers"]) == ("text", "gpt", 4)
        assert (optim["name"], optim["weight_decay"], optim["decay_norms"], optim["clip_norm"]) == (
            "adamw",
            0.1,
            False,
            1.0,
        )
        assert schedule["name"] == "cosine" and 0 < schedule["warmup_steps"] <= config["steps"] // 10
        assert config["method"].get("bits", 3) == 3
        assert config["feedback"]["kind"] == ("error" if config["method"]["name"] == "dgc" else "auto")


# --- matched bits -------------------------------------------------------------------------------------------------


def test_bits_of_sparse_values() -> None:
    assert rates.sparse_bits(0.5) == pytest.approx(17) and rates.sparse_bits(0.25, indices=False) == pytest.approx(8)
    for bits in (0.01, 1, 8):
        assert rates.sparse_bits(rates.sparse_ratio(bits)) == pytest.approx(bits, rel=0.01)
    with pytest.raises(ValueError, match=r"bits=20: must be above 0 and at most 17"):
        rates.sparse_ratio(20)


def test_narrow_matrices_travel_whole() -> None:
    assert rates.factor_bits([(64, 512), (1, 64)], 3) == pytest.approx(32 * (3 * 577 + 64) / (64 * 513))
    assert rates.factor_bits([(10, 64)], 3) == 32
    assert rates.factor_bits([(10, 64)], 3, value_bits=4) == pytest.approx(
        4 * 3 * 75 / 640
    )  # a third of its bytes, not of its numbers
    assert rates.factor_bits([(2, 3)], 3, value_bits=4) == 32


@pytest.mark.parametrize(("data", "model"), [("cifar10", "resnet8"), ("cifar10", "resnet32"), ("digits", "cnn")])
def test_matrices_are_those_of_the_model(data: str, model: str) -> None:
    from train import models

    built = models.build(
        resolving.resolve({"data": data, "model": model}), (3, 32, 32) if data == "cifar10" else (1, 8, 8), 10
    )
    weights = [(p.shape[0], math.prod(p.shape[1:])) if p.dim() > 1 else (1, p.numel()) for p in built.parameters()]
    want = rates.cnn_of_digits() if model == "cnn" else rates.cifar_resnet(int(model.removeprefix("resnet")))
    assert sorted(want) == sorted(weights)


def test_every_method_takes_part_at_the_bits_that_it_has() -> None:
    found = load("everything", "cifar10_cpu").experiments()
    by_method: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        by_method.setdefault(item.config["method"]["name"], []).append(item.config["method"])
    assert set(by_method) == set(METHODS) - set(everything.NOT_COMPARED)
    for name in ("qsgd", "alq", "eden"):
        assert [method["bits"] for method in by_method[name]] == [1, 2, 3, 4, 8]
    assert [method["bits"] for method in by_method["ecdq"]] == [1.0, 2.0, 3.0, 4.0]  # its bits end at 7
    assert [method["ratio"] for method in by_method["randomk"]] == pytest.approx(
        [0.01 / 32, 0.1 / 32, *(b / 32 for b in (1, 2, 3, 4, 8))], rel=0.01
    )
    assert len(by_method["sign"]) == len(by_method["bf16"]) == 1
    assert {item.config["method"]["name"] for item in load("everything", "cpu").experiments()} == set(by_method)


@dataclass
class Toy:
    bits: int = setting(2, "of a code", low=2, high=4)


@dataclass
class Plain:
    """A method without settings."""


def test_a_new_method_joins_without_an_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, entry in (("toy", Method("Toy", Toy, "nowhere:toy")), ("plain", Method("Plain", Plain, "nowhere:plain"))):
        monkeypatch.setitem(METHODS, name, entry)
    found = [item for item in everything.methods(everything.BITS) if item.settings["method"] in ("toy", "plain")]
    assert [(item.label, dict(item.settings)) for item in found] == [
        ("Toy 2 bits", {"method": "toy", "method.bits": 2}),
        ("Toy 3 bits", {"method": "toy", "method.bits": 3}),
        ("Toy 4 bits", {"method": "toy", "method.bits": 4}),
        ("Plain", {"method": "plain"}),
    ]


def test_every_knob_is_a_setting_of_some_method() -> None:
    known = {part.name for entry in METHODS.values() for part in dataclasses.fields(entry.settings)}
    assert set(everything.KNOBS) <= known


# --- every sweep ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "run_name"), [(family, run_name) for family in families() for run_name in makers(family)]
)
def test_adaptive_methods_have_the_papers_norm_and_a_schedule_of_their_own(family: str, run_name: str) -> None:
    """Said by the sweep itself: what was run with them keeps its name when the defaults move.

    Only two studies of the first update do so at once, our own methods of the headline and of local steps, whose norm
    may be another, too, and forks, whose first step may be any.
    """
    own, forked = family in ("headline", "outer"), family == "forks"
    for item in load(family, run_name).experiments():
        if METHODS[item.config["method"]["name"]].adaptive:
            assert item.settings["method.norm"] in ("l2", *["linf"] * own)
            ours = own and item.settings.get("method.solver") != "paper"
            at_once = item.label == "ALQ first update 0" or item.settings["method.update_at"] == [0]
            assert (0 in item.settings["method.update_at"]) == (ours or at_once or forked)
            assert not at_once or run_name in ("interval", "cifar10_cpu")
