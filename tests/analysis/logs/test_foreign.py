"""Folders of the shapes that other systems leave, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.logs import foreign
from nuq.registry import METHODS

OPTIONS = {
    "lr_decay_epoch": "40000,60000",
    "exp_lr": False,
    "lr_decay_rate": 0.1,
    "tblog_interval": 100,
    "nesterov": False,
    "g_estim": "nuq",
    "epoch_iters": 0,
    "gvar_log_iter": 100,
    "gvar_estim_iter": 10,
    "gvar_start": 0,
    "g_optim": True,
    "g_batch_size": 128,
    "niters": 80000,
    "data": "./data/cifar10",
    "batch_size": 128,
    "epochs": 100,
    "lr": 0.1,
    "momentum": 0.9,
    "seed": 3,
    "optim": "sgd",
    "arch": "resnet32",
    "workers": 10,
    "weight_decay": 1e-4,
    "num_class": 10,
    "chkpt_iter": 2000,
    "dataset": "cifar10",
    "nuq_method": "alq_nb",
    "nuq_bits": 3,
    "nuq_bucket_size": 8192,
    "nuq_ngpu": 4,
    "nuq_mul": 0.5,
    "nuq_layer": True,
    "nuq_cd_epochs": 30,
    "nuq_number_of_samples": 10,
    "dist_num": 50,
    "nuq_sym": False,
    "nuq_inv": False,
    "g_osnap_iter": "100,2000,10000",
    "untrain_steps": 0,
    "nuq_ig_sm_bkts": True,
}


def original(folder: Path, **options: Any) -> dict[str, Any]:
    """The table that is read from the log of a run of the original code with these options."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"2020-05-01 10:00:00,123 {OPTIONS | options}",
        "2020-05-01 10:00:09,456 Epoch: [0][0/391](1)\tLoss: 2.3 {}",
    ]
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    found = foreign.settings(folder)
    assert found is not None
    return found


def test_the_original_tells_all_in_its_log(tmp_path: Path) -> None:
    assert original(tmp_path) == {
        "system": "learning-to-quantize",
        "data.name": "cifar10",
        "model.name": "resnet32",
        "batch_size": 128,
        "seed": 3,
        "workers": 4,
        "optim.name": "sgd",
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.nesterov": False,
        "optim.weight_decay": 1e-4,
        "steps": 80000,
        "schedule.name": "step",
        "schedule.at": (40000, 60000),
        "schedule.factor": 0.1,
        "trajectory": "method",
        "measure.every": 100,
        "measure.num_samples": 10,
        "eval_every": 2000,
        "untrain.steps": 0,
        "method.name": "alq",
        "method.bits": 3,
        "method.bucket_size": 8192,
        "method.scope": "model",
        "method.fit": "mixture",
        "method.solver": "paper",
        "method.weights": "norm",
        "method.num_components": 50,
        "method.symmetric": False,
        "method.statistics": "fresh",
        "method.num_samples": 10,
        "method.update_at": (100, 2000),
        "method.update_every": 10000,
    }


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(
            ("q", "qsgd"),
            ("qinf", "qsgdinf"),
            ("nuq", "nuqsgd"),
            ("trn", "trn"),
            ("none", "supersgd"),
            ("alq_nb", "alq"),
            ("alq", "alq_n"),
        ),
        *(("alqg_nb", "alq_g"), ("alqg", "alq_gn"), ("amq_nb", "amq"), ("amq", "amq_n")),
    ],
)
def test_its_methods_and_only_what_each_reads(tmp_path: Path, theirs: str, ours: str) -> None:
    found = original(tmp_path, nuq_method=theirs)
    assert found["method.name"] == ours
    known = set(vars(METHODS[ours].settings())) | {"name"}
    assert {name.removeprefix("method.") for name in found if name.startswith("method.")} <= known


def test_its_other_estimators(tmp_path: Path) -> None:
    sgd = original(tmp_path / "sgd", g_estim="sgd")
    assert (sgd["method.name"], sgd["workers"]) == ("sgd", 1) and "method.bits" not in sgd
    assert original(tmp_path / "none", g_estim="none")["method.name"] == "supersgd"
    assert original(tmp_path / "measured", g_optim=False)["trajectory"] == "sgd"
    closed = original(tmp_path / "closed", nuq_inv=True, nuq_sym=True)
    assert (closed["method.solver"], closed["method.symmetric"]) == ("exact", True)
    assert original(tmp_path / "new", nuq_method="quantum")["method.name"] == "quantum"
    assert original(tmp_path / "bare", no_batch_norm=True)["model.batch_norm"] is False


def test_lengths_in_epochs(tmp_path: Path) -> None:
    """469 steps of 128 MNIST digits; one decay epoch stands for its multiples."""
    mnist: dict[str, Any] = {"dataset": "mnist", "arch": "cnn", "niters": 0, "epochs": 30, "nuq_method": "q"}
    once = original(tmp_path / "a", **mnist, lr_decay_epoch=30)
    assert (once["steps"], once["model.name"], "schedule.at" in once) == (14070, "mnist_cnn", False)
    assert original(tmp_path / "b", **mnist, lr_decay_epoch=10)["schedule.at"] == (4690, 9380)
    assert original(tmp_path / "c", **mnist, lr_decay_epoch="10,20")["schedule.at"] == (4690, 9380)
    unknown = original(tmp_path / "d", **mnist | {"dataset": "svhn"}, lr_decay_epoch=10)
    assert not {"steps", "schedule.at", "schedule.name"} & unknown.keys()


def test_the_original_without_a_log_has_its_name(tmp_path: Path) -> None:
    shared = "optim_sgd,arch_resnet32,batch_size_128,lr_0.1,momentum_0.9,weight_decay_0.0001"
    quantized = "nuq_bits_3,nuq_bucket_size_8192,nuq_ngpu_4,dist_num_50,nuq_layer_,nuq_ig_sm_bkts_"
    names = {
        "alq": f"exp_003_{shared},g_optim_,g_estim_nuq,{quantized},"
        "nuq_method_alq_nb,nuq_cd_epochs_30,nuq_sym_,nuq_inv_",
        "sgd": f"my_run_2_1000_{shared},g_estim_sgd",
        "amq": f"exp_004_{shared},g_osnap_iter_0,80000,80000,g_estim_nuq,{quantized},nuq_method_amq,nuq_amq_lr_0.7",
    }
    found = {}
    for key, name in names.items():
        folder = tmp_path / "runs_cifar10_full" / name
        folder.mkdir(parents=True)
        found[key] = foreign.settings(folder) or {}
    alq, sgd, amq = found["alq"], found["sgd"], found["amq"]
    assert (alq["method.name"], alq["method.bits"], alq["method.symmetric"], alq["method.solver"]) == (
        "alq",
        3,
        True,
        "exact",
    )
    assert (alq["data.name"], alq["model.name"], alq["optim.lr"], alq["workers"]) == ("cifar10", "resnet32", 0.1, 4)
    assert (alq["trajectory"], sgd["trajectory"], sgd["method.name"], sgd["workers"]) == ("method", "sgd", "sgd", 1)
    assert (amq["method.name"], amq["method.update_at"], amq["method.update_every"]) == ("amq_n", (0, 80000), 80000)
    assert "method.num_components" not in amq
    assert not {"steps", "seed", "schedule.at"} & alq.keys(), "the name does not tell them"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "cifar.resnet20.np8",
            {"method.name": "supersgd", "data.name": "cifar10", "model.name": "resnet20", "workers": 8},
        ),
        (
            "[cifar.resnet20+dgc.wm5].e500.np8",
            {
                "method.name": "dgc",
                "method.warmup": "wm5",
                "method.fp16": False,
                "method.int32": False,
                "model.name": "resnet20",
                "workers": 8,
            },
        ),
        (
            "[imagenet.[resnet50+cosine]+dgc.[wm5o+fp16+int32]].np32",
            {
                "method.name": "dgc",
                "method.warmup": "wm5o",
                "method.fp16": True,
                "method.int32": True,
                "schedule.name": "cosine",
            },
        ),
        ("imagenet.vgg16_bn.np128", {"data.name": "imagenet", "model.name": "vgg16_bn", "workers": 128}),
    ],
)
def test_dgc_has_its_name(tmp_path: Path, name: str, expected: dict[str, Any]) -> None:
    folder = tmp_path / name
    folder.mkdir()
    found = foreign.settings(folder)
    assert found is not None and found["system"] == "dgc"
    assert {key: found.get(key) for key in expected} == expected
    assert not {"seed", "steps", "batch_size"} & found.keys()


def test_inputs_become_steps(tmp_path: Path) -> None:
    """The inputs of one step are the greatest common divisor of the steps of a tag that is logged at every step."""
    inputs = 1024 * np.arange(1, 50)
    assert foreign.inputs_per_step({"system": "dgc"}, inputs) == 1024
    assert foreign.inputs_per_step({"system": "dgc"}, inputs[30:]) == 1024, "of a run that was gone on with"
    assert foreign.inputs_per_step({"system": "dgc"}, inputs[:0]) is None
    assert foreign.inputs_per_step({"system": "smaq"}, inputs) == foreign.inputs_per_step({}, inputs) == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no dict",
        "t {'g_estim': 'nuq'",
        "t {'a': open('x')}",
        "t {'g_estim': 3}",
        "t {" + "[" * 5000,
        "t {'g_estim': 'nuq', 'dataset': None}",
    ],
)
def test_other_and_damaged_logs(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.txt").write_text(line)
    assert foreign.settings(tmp_path) in (None, {"system": "learning-to-quantize"})


def test_options_of_the_wrong_kind_are_left_out(tmp_path: Path) -> None:
    found = original(
        tmp_path, niters=None, epochs="many", batch_size=None, lr_decay_epoch=None, g_osnap_iter="soon", nuq_bits=None
    )
    assert not {"steps", "batch_size", "schedule.at", "method.update_at", "method.bits"} & found.keys()


@pytest.mark.parametrize(
    "name", ["alq-3b-cnn-digits-s1-a413a11d3576b7", "version_0", "exp_003", "run.np8", ".np8", "001_optim_sgd"]
)
def test_folders_of_nobody(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert foreign.settings(tmp_path / name) is None
    assert foreign.settings(tmp_path / name / "nowhere") is None


def test_tags_are_ours() -> None:
    assert set(foreign.TAGS.values()) == {"loss", "Tloss", "Tacc", "Vloss", "Vacc"}


def test_steps_and_accuracies_in_our_units() -> None:
    """SmaQ's accuracies are shares of one; DGC's are in per cent, at inputs seen."""
    x, values = np.array([2048, 51200]), np.array([0.5, 0.79])
    cases = {
        ("smaq", "Vacc", 1): (x, 100 * values),
        ("smaq", "Vloss", 1): (x, values),
        ("dgc", "Vacc", 1024): ([2, 50], values),
    }
    cases |= {("dgc", "loss", None): (x, values), ("learning-to-quantize", "Vacc", 1): (x, values)}
    for (system, tag, inputs), expected in cases.items():
        found = foreign.in_our_units({"system": system}, tag, x, values, inputs)
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
